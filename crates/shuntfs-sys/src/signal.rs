//! Signals as something to read, and as the way to call a thread back from a system call.
//!
//! # Safety
//! Signal sets are initialised before use; the one handler installed does nothing.
#![expect(unsafe_code, reason = "rustix has no signal masks, signalfd or handlers")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::retry_on_intr;

use crate::{OsError, Result, raw};

/// A signal that a server waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Signal {
    /// SIGHUP: read the settings again.
    Hup,
    /// SIGINT: Ctrl-C.
    Int,
    /// SIGQUIT.
    Quit,
    /// SIGTERM: end cleanly.
    Term,
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
    /// SIGCHLD: a child ended.
    Child,
    /// SIGPIPE.
    Pipe,
}

impl Signal {
    const ALL: [Self; 8] =
        [Self::Hup, Self::Int, Self::Quit, Self::Term, Self::Usr1, Self::Usr2, Self::Child, Self::Pipe];

    fn number(self) -> c_int {
        match self {
            Self::Hup => libc::SIGHUP,
            Self::Int => libc::SIGINT,
            Self::Quit => libc::SIGQUIT,
            Self::Term => libc::SIGTERM,
            Self::Usr1 => libc::SIGUSR1,
            Self::Usr2 => libc::SIGUSR2,
            Self::Child => libc::SIGCHLD,
            Self::Pipe => libc::SIGPIPE,
        }
    }
}

/// Blocks signals in the calling thread and in every thread that it starts later.
///
/// # Errors
/// What pthread_sigmask(3) gives.
pub fn block_signals(signals: &[Signal]) -> Result<()> {
    change_mask(libc::SIG_BLOCK, signals)
}

/// Unblocks signals in the calling thread. One that waits takes effect at once.
///
/// # Errors
/// What pthread_sigmask(3) gives.
pub fn unblock_signals(signals: &[Signal]) -> Result<()> {
    change_mask(libc::SIG_UNBLOCK, signals)
}

fn change_mask(how: c_int, signals: &[Signal]) -> Result<()> {
    let set = set_of(signals)?;
    // SAFETY: `set` is initialised, and the old mask is not asked for.
    let failed = unsafe { libc::pthread_sigmask(how, &raw const set, ptr::null_mut()) };
    if failed == 0 { Ok(()) } else { Err(OsError::from_raw_os_error(failed)) }
}

fn set_of(signals: &[Signal]) -> Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the pointer is to a set, which this call initialises.
    let failed = unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    raw::check(failed.into())?;
    // SAFETY: initialised just above.
    let mut set = unsafe { set.assume_init() };
    for signal in signals {
        // SAFETY: the pointer is to an initialised set.
        let failed = unsafe { libc::sigaddset(&raw mut set, signal.number()) };
        raw::check(failed.into())?;
    }
    Ok(set)
}

/// Blocked signals as something to read.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks the signals in the calling thread and collects them here; reading never waits. Call it before other
    /// threads are started, so that they inherit the mask.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit.
    pub fn new(signals: &[Signal]) -> Result<Self> {
        block_signals(signals)?;
        let set = set_of(signals)?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: `set` is initialised; -1 asks for a new descriptor.
        let made = unsafe { libc::signalfd(-1, &raw const set, flags) };
        raw::check(made.into())?;
        // SAFETY: the kernel has just made this descriptor for us alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(made) }))
    }

    /// Takes the next signal; `None` where there is none.
    ///
    /// # Errors
    /// What read(2) gives; EIO for a signal that was not asked for.
    pub fn take(&self) -> Result<Option<Signal>> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        match retry_on_intr(|| rustix::io::read(&self.0, &mut info)) {
            Ok(_) => {}
            Err(OsError::AGAIN) => return Ok(None),
            Err(error) => return Err(error),
        }
        // `ssi_signo` comes first.
        let number = info.first_chunk().map(|number| i32::from_ne_bytes(*number));
        let known = Signal::ALL.into_iter().find(|signal| Some(signal.number()) == number);
        known.map(Some).ok_or(OsError::IO)
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The signal that calls threads back: ignored unless a handler is there, and used by nothing else of ours.
const CALL_BACK: c_int = libc::SIGURG;

/// Prepares the process for [`interrupt_thread`]; a second call changes nothing.
///
/// # Errors
/// What sigaction(2) gives.
pub fn allow_interrupts() -> Result<()> {
    extern "C" fn nothing(_signal: c_int) {}
    let action = libc::sigaction {
        sa_sigaction: (nothing as extern "C" fn(c_int)) as libc::sighandler_t,
        sa_mask: set_of(&[])?,
        // Without SA_RESTART, so that a waiting system call ends with EINTR.
        sa_flags: 0,
        sa_restorer: None,
    };
    // SAFETY: the handler does nothing, so it may run at any time; the old action is not asked for.
    let failed = unsafe { libc::sigaction(CALL_BACK, &raw const action, ptr::null_mut()) };
    raw::check(failed.into()).map(drop)
}

/// Makes a thread of this process leave the system call it waits in with EINTR. A signal that comes just before the
/// thread starts to wait is lost, so repeat it until the thread answers. Needs [`allow_interrupts`] once before.
///
/// # Errors
/// ESRCH where the thread is gone.
pub fn interrupt_thread(tid: u32) -> Result<()> {
    let process = std::process::id();
    // SAFETY: takes integers; the signal's handler does nothing.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, tid, CALL_BACK) };
    raw::check(sent).map(drop)
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::locks::{FlockOp, flock};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn a_blocked_signal_is_read() {
        std::thread::spawn(|| {
            let signals = SignalFd::new(&[Signal::Usr1, Signal::Usr2]).unwrap();
            assert_eq!(signals.take(), Ok(None));
            let tid = crate::threads::gettid();
            // SAFETY: the signal is blocked in this very thread.
            let sent = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), tid, libc::SIGUSR2) };
            assert_eq!(sent, 0);
            assert_eq!(signals.take(), Ok(Some(Signal::Usr2)));
            assert_eq!(signals.take(), Ok(None));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_waits_for_a_lock_can_be_called_back() {
        allow_interrupts().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locked");
        let holder = std::fs::File::create(&path).unwrap();
        flock(&holder, FlockOp::Exclusive, false).unwrap();
        let (tell, told) = mpsc::channel();
        let waiter = std::thread::spawn(move || {
            tell.send(crate::threads::gettid()).unwrap();
            flock(std::fs::File::open(path).unwrap(), FlockOp::Exclusive, true)
        });
        let tid = told.recv().unwrap();
        let limit = Instant::now() + Duration::from_secs(10);
        while !waiter.is_finished() {
            assert!(Instant::now() < limit, "the waiter did not come back");
            let _ = interrupt_thread(tid);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(waiter.join().unwrap(), Err(OsError::INTR));
    }
}
