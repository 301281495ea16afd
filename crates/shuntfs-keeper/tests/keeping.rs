//! What a keeper does about servers that die, hang, fail and end, with a socket instead of the device.
//!
//! A keeper has one thread, and tests run in threads: each case runs in a forked child of its own.
#![expect(unsafe_code, reason = "a test forks to have a process with one thread")]

#[path = "../examples/kept.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod kept;

use std::fs::File;
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use shuntfs::takeover::KeptMount;
use shuntfs::{SessionOptions, Transport, TransportKind};
use shuntfs_keeper::{Ended, GiveUp, KeepError, Limits, Seat, keep};
use shuntfs_sys::descriptors::OpenNumbers;
use shuntfs_sys::spawn::{Push, push};
use shuntfs_sys::uring::Ring;
use shuntfs_sys::{FuseDevice, OsError, Peer, PeerEnd};

/// `struct fuse_out_header` and `struct fuse_init_out`.
const INIT_ANSWER_LEN: usize = 16 + 64;

/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a case in a process with one thread.
fn alone(case: impl FnOnce()) {
    // SAFETY: the fork of the C library leaves its allocator usable, and the child ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // The harness keeps what is printed, and the child has no harness.
        std::panic::set_hook(Box::new(|info| {
            let _best_effort = writeln!(std::io::stderr(), "{info}");
        }));
        let failed = catch_unwind(AssertUnwindSafe(case)).is_err();
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    let (end, mut status) = (Instant::now() + LIMIT, 0);
    loop {
        // SAFETY: `status` is an int, and the child is ours.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if ended != 0 {
            return assert_eq!((ended, status), (child, 0), "the case failed");
        }
        if Instant::now() > end {
            push(child.unsigned_abs(), Push::Die).expect("it is there");
            // SAFETY: as above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            panic!("the case hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Counts how often requests were asked for again, which is all that a keeper writes.
#[derive(Debug, Default)]
struct Kernel {
    resent: AtomicUsize,
    /// As Linux 7.3 does before INIT is answered.
    refuses: bool,
}

impl Peer for Kernel {
    fn write(&self, message: &[IoSlice<'_>]) -> Result<usize, OsError> {
        let bytes: Vec<u8> = message.iter().flat_map(|piece| piece.iter().copied()).collect();
        if bytes.len() == INIT_ANSWER_LEN {
            return Ok(bytes.len());
        }
        let expected = [&16_u32.to_ne_bytes()[..], &7_u32.to_ne_bytes(), &[0; 8]].concat();
        assert_eq!(bytes, expected, "RESEND");
        if self.refuses {
            return Err(OsError::INVAL);
        }
        self.resent.fetch_add(1, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn backing_open(&self, _: BorrowedFd<'_>) -> Result<u32, OsError> {
        Err(OsError::PERM)
    }

    fn backing_close(&self, _: u32) -> Result<(), OsError> {
        Err(OsError::NOENT)
    }
}

/// A mount with nobody behind it, and what its servers write down.
struct Scene {
    kernel: Arc<Kernel>,
    mount: KeptMount,
    end: PeerEnd,
    notes: File,
}

impl Scene {
    fn new() -> Self {
        Self::of(Kernel::default())
    }

    fn of(kernel: Kernel) -> Self {
        let kernel = Arc::new(kernel);
        let (device, end) = FuseDevice::of_peer(Arc::clone(&kernel) as Arc<dyn Peer>).expect("a pair");
        Self {
            kernel,
            mount: KeptMount::of_device(device),
            end,
            notes: tempfile::tempfile().expect("a file"),
        }
    }

    /// What keeping came to, how often requests were asked for again, and what servers wrote.
    fn keep(
        self,
        limits: &Limits,
        serve: impl Fn(&Seat<'_>, &File, &PeerEnd) -> Result<(), String>,
    ) -> (Result<Ended, KeepError>, usize, String) {
        let Self { kernel, mount, end, mut notes } = self;
        let outcome = keep(mount, limits, |seat| serve(seat, &notes, &end));
        let mut text = String::new();
        notes.seek(SeekFrom::Start(0)).and_then(|_| notes.read_to_string(&mut text)).expect("reads");
        (outcome, kernel.resent.load(Ordering::Relaxed), text)
    }
}

fn note(mut notes: &File, text: &str) {
    notes.write_all(text.as_bytes()).expect("writes");
}

/// What a kernel asks first: INIT, of one that sends requests again (`FUSE_INIT_EXT`, `FUSE_HAS_RESEND`).
fn init() -> Vec<u8> {
    const OPCODE: u32 = 26;
    const LEN: u32 = 40 + 64;
    let mut words = vec![LEN, OPCODE, 2];
    words.resize(10, 0);
    // Major, minor, readahead, flags, and more flags.
    words.extend([7, 45, 1 << 17, 1 << 30, 1 << 7]);
    words.resize((LEN / 4) as usize, 0);
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// Agrees with the kernel, and answers whoever asks from then on.
fn agree(seat: &Seat<'_>, end: &PeerEnd) -> shuntfs::Session {
    let transport = Transport::Only(TransportKind::Device);
    end.send(&init()).expect("it is read");
    let options = SessionOptions { transport, ..SessionOptions::default() };
    seat.begin(Arc::new(kept::Numbers), &options).expect("begins")
}

/// As the kernel does it to whom it chooses.
fn die() -> ! {
    push(std::process::id(), Push::Die).expect("it is there");
    unreachable!("killed");
}

#[test]
fn a_server_that_ends_well_ends_it_all() {
    alone(|| {
        let (outcome, resent, notes) = Scene::new().keep(&Limits::default(), |seat, notes, _| {
            note(notes, "x");
            seat.ready().map_err(|error| error.to_string())
        });
        assert_eq!((outcome.expect("no fault"), resent, notes.as_str()), (Ended::Served, 0, "x"));
    });
}

#[test]
fn a_crash_loop_is_given_up() {
    alone(|| {
        let (outcome, resent, notes) = Scene::new().keep(&Limits::default(), |seat, notes, _| {
            note(notes, &seat.predecessors().to_string());
            seat.ready().expect("heard");
            die()
        });
        let error = outcome.expect_err("nobody ended well");
        assert!(matches!(error, KeepError::GaveUp(GiveUp::Crashes { crashes: 5, .. })), "{error}");
        assert!(error.to_string().contains("5 servers died"), "{error}");
        assert_eq!((resent, notes.as_str()), (5, "01234"));
    });
}

#[test]
fn who_is_never_ready_is_given_up() {
    alone(|| {
        let limits = Limits { ready: Duration::from_millis(200), ..Limits::default() };
        let (outcome, _, notes) = Scene::new().keep(&limits, |_, notes, _| {
            note(notes, "x");
            std::thread::sleep(LIMIT);
            Ok(())
        });
        let error = outcome.expect_err("nobody was ready");
        assert!(matches!(error, KeepError::GaveUp(GiveUp::NeverReady { late: 2, .. })), "{error}");
        assert_eq!(notes, "xx");
    });
}

/// A regression: on a slow machine the first server was killed after ten seconds.
#[test]
fn a_first_server_has_more_time_than_its_successors() {
    alone(|| {
        let limits = Limits { ready: Duration::from_millis(400), ..Limits::default() };
        let (outcome, resent, notes) = Scene::new().keep(&limits, |seat, notes, _| {
            note(notes, &seat.predecessors().to_string());
            std::thread::sleep(limits.ready * 2);
            seat.ready().map_err(|error| error.to_string())?;
            if seat.predecessors() == 0 { die() } else { Ok(()) }
        });
        let error = outcome.expect_err("its successors were late");
        assert!(matches!(error, KeepError::GaveUp(GiveUp::NeverReady { late: 2, .. })), "{error}");
        assert_eq!((resent, notes.as_str()), (3, "012"));
    });
}

/// A regression: the error was that this kernel has no such notification, where the server had been late.
#[test]
fn why_a_first_server_failed_is_told_where_the_kernel_sends_nothing_again() {
    for is_late in [true, false] {
        alone(|| {
            let limits = Limits { ready: Duration::from_millis(100), ..Limits::default() };
            let scene = Scene::of(Kernel { refuses: true, ..Kernel::default() });
            let (outcome, _, notes) = scene.keep(&limits, |_, notes, _| {
                note(notes, "x");
                if !is_late {
                    die()
                }
                std::thread::sleep(LIMIT);
                Ok(())
            });
            let error = outcome.expect_err("it was killed").to_string();
            let why = if is_late { "not ready after 600ms" } else { "ended before it was ready (Signal(9" };
            assert!(error.contains(why), "{error}");
            assert_eq!(notes, "x");
        });
    }
}

#[test]
fn a_first_server_that_cannot_begin_says_why() {
    alone(|| {
        let (outcome, _, notes) = Scene::new().keep(&Limits::default(), |_, notes, _| {
            note(notes, "x");
            Err("there is no such folder".into())
        });
        assert_eq!(outcome.expect_err("it said so").to_string(), "there is no such folder");
        assert_eq!(notes, "x", "no other one could either");
    });
}

/// A server dies in its own way, and the next two cannot begin: the fourth one serves.
fn is_followed_until_one_can_begin(first: impl Fn(&Seat<'_>, &PeerEnd)) {
    alone(|| {
        let (outcome, resent, notes) = Scene::new().keep(&Limits::default(), |seat, notes, end| {
            note(notes, &seat.predecessors().to_string());
            match seat.predecessors() {
                0 => {
                    first(seat, end);
                    die()
                }
                1 | 2 => Err("not now".into()),
                _ => seat.ready().map_err(|error| error.to_string()),
            }
        });
        assert_eq!((outcome.expect("the last one ended well"), resent), (Ended::Served, 3));
        assert_eq!(notes, "0123");
    });
}

/// A regression: a server that was killed when it had answered callers and had not said yet that it serves was taken for one that had never begun. Where
/// its successor could not begin at once, the mount was lost.
#[test]
fn who_may_have_served_is_followed_until_one_can_begin() {
    is_followed_until_one_can_begin(|seat, end| {
        let _session = agree(seat, end);
        die()
    });
}

/// One that has agreed with the kernel, and then cannot serve, as it says itself, is a first server that could not begin; be it after others that
/// said nothing.
#[test]
fn who_says_that_it_cannot_serve_has_not_served() {
    for silent in [0, 1] {
        alone(|| {
            let (outcome, _, notes) = Scene::new().keep(&Limits::default(), |seat, notes, end| {
                note(notes, "x");
                if seat.predecessors() < silent {
                    die()
                }
                let _session = agree(seat, end);
                Err("there is no memory".into())
            });
            assert_eq!(outcome.expect_err("it said so").to_string(), "there is no memory");
            assert_eq!(notes.len() as u64, 1 + silent);
        });
    }
}

#[test]
fn a_successor_that_cannot_begin_is_followed_by_another() {
    is_followed_until_one_can_begin(|seat, _| seat.ready().expect("heard"));
}

#[test]
fn a_panic_is_a_death() {
    alone(|| {
        let (outcome, resent, _) = Scene::new().keep(&Limits::default(), |seat, _, _| {
            seat.ready().expect("heard");
            assert!(seat.predecessors() > 0, "planted");
            Ok(())
        });
        assert_eq!((outcome.expect("the second one ended well"), resent), (Ended::Served, 1));
    });
}

#[test]
fn a_connection_that_is_gone_has_no_successor() {
    alone(|| {
        let (outcome, resent, notes) = Scene::new().keep(&Limits::default(), |seat, notes, end| {
            note(notes, "x");
            seat.ready().expect("heard");
            end.end();
            die()
        });
        assert_eq!((outcome.expect("no fault"), resent, notes.as_str()), (Ended::Connection, 0, "x"));
    });
}

/// What a dead server had open is closed, and nothing else; and there is no ring that could stay.
#[test]
fn descriptors_do_not_gather_and_none_is_a_ring() {
    alone(|| {
        let before = File::open("/dev/null").expect("opens");
        let (outcome, _, notes) = Scene::new().keep(&Limits::default(), |seat, notes, _| {
            // The keeper's own descriptor of this process is there by then.
            std::thread::sleep(Duration::from_millis(100));
            let open = OpenNumbers::look().expect("procfs").count();
            note(notes, &format!("{open} "));
            for _ in 0..20 {
                let _leaked = File::open("/dev/null").expect("opens").into_raw_fd();
            }
            assert_eq!(Ring::new(2).map(drop), Err(OsError::PERM));
            seat.ready().expect("heard");
            if seat.predecessors() < 3 { die() } else { Ok(()) }
        });
        assert_eq!(outcome.expect("the last one ended well"), Ended::Served);
        let counts: Vec<&str> = notes.split_whitespace().collect();
        assert_eq!(counts.len(), 4);
        assert!(counts.iter().all(|count| *count == counts[0]), "{notes}");
        assert!(before.metadata().is_ok(), "it was nobody else's");
    });
}

#[test]
fn a_process_with_threads_keeps_nothing() {
    alone(|| {
        std::thread::spawn(|| std::thread::sleep(LIMIT));
        let (outcome, _, notes) = Scene::new().keep(&Limits::default(), |_, notes, _| {
            note(notes, "x");
            Ok(())
        });
        let error = outcome.expect_err("it has two threads");
        assert!(matches!(error, KeepError::Threads), "{error}");
        assert_eq!(notes, "");
    });
}
