//! A child that shares its parent's table of descriptors: what either opens is open in both, under the same number, and
//! stays so when the other is killed.
//!
//! # Safety
//! The fork is made by the plain system call, because that of the C library cannot share the table. That is as good where the process has
//! one thread: no lock is held by a thread that the child lacks. What the C library's own would do besides is done here or not needed: the
//! child's first thread keeps its parent's number in the C library's books, which `raise`, `abort` and threads that are started later do
//! not look at. A closure in the child ends with the child, and never returns to what called it.
#![expect(unsafe_code, reason = "there is no safe fork")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, kill_process, pidfd_open,
    pidfd_send_signal, waitid, waitpid,
};

use crate::{OsError, Result, proc_fd, raw};

/// What a child that panicked ends with.
pub const PANICKED: i32 = 101;

/// How long threads that have ended may take to be gone.
const ENDING: Duration = Duration::from_secs(1);

/// A child.
#[derive(Debug)]
pub struct Child {
    pid: u32,
    pidfd: OwnedFd,
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Starts a child that runs `run` and ends with the code that it returns, or with [`PANICKED`].
///
/// # Safety
/// `run` must close no descriptor that this process goes on to use: both have the same table.
///
/// # Errors
/// EBUSY where this process has other threads; EAGAIN, ENOMEM; EMFILE at the descriptor limit.
pub unsafe fn fork_sharing_descriptors(run: &mut dyn FnMut() -> i32) -> Result<Child> {
    if !is_alone()? {
        return Err(OsError::BUSY);
    }
    let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: there is no other thread (just looked), and without CLONE_VM the child has memory of its own.
    let forked = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    let pid = raw::check(forked)?;
    if pid == 0 {
        proc_fd::forget_folder();
        let code = catch_unwind(AssertUnwindSafe(run)).unwrap_or(PANICKED);
        // SAFETY: ends the child without running anything that its parent is to run.
        unsafe { libc::_exit(code) };
    }
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(OsError::SRCH)?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Child { pid: pid.as_raw_nonzero().get().unsigned_abs(), pidfd }),
        Err(error) => {
            // Nobody could wait for it.
            let _gone = kill_process(pid, Signal::KILL);
            let _gone = waitpid(Some(pid), WaitOptions::empty());
            Err(error)
        }
    }
}

impl Child {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended; `None` while a thread of it lives.
    ///
    /// # Errors
    /// ECHILD where somebody else has asked before.
    pub fn exit(&self) -> Result<Option<Exit>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = rustix::io::retry_on_intr(|| waitid(WaitId::PidFd(self.pidfd.as_fd()), options))?;
        Ok(status.and_then(|status| exit_of(&status)))
    }

    /// Sends it SIGHUP.
    ///
    /// # Errors
    /// ESRCH where it is gone.
    pub fn hang_up(&self) -> Result<()> {
        pidfd_send_signal(&self.pidfd, Signal::HUP)
    }

    /// Kills it.
    ///
    /// # Errors
    /// ESRCH where it is gone.
    pub fn kill(&self) -> Result<()> {
        pidfd_send_signal(&self.pidfd, Signal::KILL)
    }
}

/// Readable when the child has ended, all of its threads with it.
impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn exit_of(status: &WaitIdStatus) -> Option<Exit> {
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// Whether this process has one thread. One that was joined may be there for a moment yet.
fn is_alone() -> Result<bool> {
    let end = Instant::now() + ENDING;
    loop {
        let tasks = std::fs::read_dir("/proc/self/task");
        let count = tasks.map_err(|error| OsError::from_io_error(&error).unwrap_or(OsError::IO))?.count();
        if count == 1 || Instant::now() > end {
            return Ok(count == 1);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// The tests of a program run in threads.
    #[test]
    fn who_has_threads_is_refused() {
        std::thread::scope(|scope| {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || ended.recv());
            // SAFETY: nothing is closed, because nothing is run.
            let forked = unsafe { fork_sharing_descriptors(&mut || 0) };
            assert_eq!(forked.err(), Some(OsError::BUSY));
            drop(end);
        });
    }
}
