//! What tests of the keeper share: a process with one thread, a mount with nobody behind it, and a kernel's side spoken to by hand.
//!
//! A keeper has one thread, and tests run in threads: each case runs in a forked child of its own.
#![expect(unsafe_code, reason = "a test forks to have a process with one thread")]
#![allow(dead_code, reason = "no test uses all of it")]

pub(crate) mod kept;

use std::fs::{self, File};
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use shuntfs::takeover::KeptMount;
use shuntfs_keeper::{Ended, KeepError, Limits, Seat, keep};
use shuntfs_sys::caps::{Cap, has_effective};
use shuntfs_sys::spawn::{Push, inherited_fd, push};
use shuntfs_sys::{FuseDevice, OsError, Peer, PeerEnd};

/// Tells tests that they run as an ordinary user, who mounts by fusermount3.
pub(crate) const ORDINARY: &str = "SHUNTFS_TEST_ORDINARY";

/// How long a case, or anything that is waited for, may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Runs a case in a process with one thread.
pub(crate) fn alone(case: impl FnOnce()) {
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

/// Sends what this process logs from now on to a file, and gives the path of it.
pub(crate) fn log_to(path: &Path) {
    let file = File::create(path).expect("makes");
    tracing_subscriber::fmt().with_ansi(false).with_writer(Mutex::new(file)).init();
}

/// Asks until there is an answer.
pub(crate) fn wait_until<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    wait_until_or_say(what, probe, String::new)
}

/// The same, and where there is none, what else there is to say about it.
pub(crate) fn wait_until_or_say<T>(
    what: &str,
    mut probe: impl FnMut() -> Option<T>,
    more: impl FnOnce() -> String,
) -> T {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if let Some(found) = probe() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what}: not in {LIMIT:?}\n{}", more());
}

/// As the kernel does it to whom it chooses.
pub(crate) fn die() -> ! {
    push(std::process::id(), Push::Die).expect("it is there");
    unreachable!("killed");
}

/// Counts how often requests were asked for again, which is all that a keeper writes.
#[derive(Debug, Default)]
pub(crate) struct Kernel(AtomicUsize);

impl Peer for Kernel {
    fn write(&self, message: &[IoSlice<'_>]) -> Result<usize, OsError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(message.iter().map(|piece| piece.len()).sum())
    }

    fn backing_open(&self, _: BorrowedFd<'_>) -> Result<u32, OsError> {
        Err(OsError::PERM)
    }

    fn backing_close(&self, _: u32) -> Result<(), OsError> {
        Err(OsError::NOENT)
    }
}

/// A mount with nobody behind it, and what its servers write down.
pub(crate) struct Scene {
    kernel: Arc<Kernel>,
    device: FuseDevice,
    end: PeerEnd,
    notes: File,
}

/// What a server of a scene sees of it.
pub(crate) struct Stage<'s> {
    pub(crate) end: &'s PeerEnd,
    device: RawFd,
    notes: &'s File,
    kernel: &'s Kernel,
}

impl Stage<'_> {
    /// Writes something down that stays when this process dies.
    pub(crate) fn note(&self, text: &str) {
        let mut notes = self.notes;
        notes.write_all(text.as_bytes()).expect("writes");
    }

    /// A second descriptor of the device, to read it by hand.
    pub(crate) fn device(&self) -> FuseDevice {
        inherited_fd(self.device).and_then(FuseDevice::from_fd).expect("is open")
    }

    /// How often requests were asked for again before this server was started.
    pub(crate) fn resent(&self) -> usize {
        self.kernel.0.load(Ordering::Relaxed)
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        let kernel = Arc::new(Kernel::default());
        let (device, end) = FuseDevice::of_peer(Arc::clone(&kernel) as Arc<dyn Peer>).expect("a pair");
        Self { kernel, device, end, notes: tempfile::tempfile().expect("a file") }
    }

    /// What keeping came to, and what servers wrote down.
    pub(crate) fn keep(
        self,
        limits: &Limits,
        serve: impl Fn(&Seat<'_>, &Stage<'_>) -> Result<(), String>,
    ) -> (Result<Ended, KeepError>, String) {
        let Self { kernel, device, end, mut notes } = self;
        let stage = Stage { end: &end, device: device.as_raw_fd(), notes: &notes, kernel: &kernel };
        let outcome = keep(KeptMount::of_device(device), limits, |seat| serve(seat, &stage));
        let mut text = String::new();
        notes.seek(SeekFrom::Start(0)).and_then(|_| notes.read_to_string(&mut text)).expect("reads");
        (outcome, text)
    }
}

/// Whether mounts are possible here; says why not.
pub(crate) fn can_mount() -> bool {
    if fs::metadata("/dev/fuse").is_err() {
        println!("SKIPPED: there is no /dev/fuse");
        return false;
    }
    if !has_effective(Cap::SysAdmin) && std::env::var_os(ORDINARY).is_none() {
        println!("SKIPPED: needs CAP_SYS_ADMIN");
        return false;
    }
    true
}

pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// What a stat(2) asks for: GETATTR, or STATX.
pub(crate) const ATTRIBUTES: [u32; 2] = [3, 52];
const INIT: u32 = 26;
/// `struct fuse_out_header`, and it with `struct fuse_init_out`.
const HEADER_LEN: u32 = 16;
const INIT_OUT_LEN: u32 = 80;

/// A request that was read by hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
}

/// Reads the next request.
pub(crate) fn read(device: &FuseDevice) -> Request {
    let mut room = vec![0; 1 << 17];
    let len = device.read(&mut room).expect("a request");
    assert!(len >= 40, "{len} bytes");
    let opcode = u32::from_ne_bytes(room[4..8].try_into().expect("four bytes"));
    let unique = u64::from_ne_bytes(room[8..16].try_into().expect("eight bytes"));
    Request { opcode, unique }
}

/// Answers a request with an error.
pub(crate) fn refuse(device: &FuseDevice, request: Request, errno: i32) -> Result<usize, OsError> {
    answer(device, HEADER_LEN, request, -errno, &[])
}

/// Reads INIT and agrees to nothing.
pub(crate) fn greet(device: &FuseDevice) {
    let request = read(device);
    assert_eq!(request.opcode, INIT);
    // Major, minor, readahead, flags; background requests and when there are many of them; longest write; granularity of times.
    let words: [u32; 7] = [7, 31, 0, 0, (9 << 16) | 12, 1 << 16, 1];
    let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    body.resize((INIT_OUT_LEN - HEADER_LEN) as usize, 0);
    answer(device, INIT_OUT_LEN, request, 0, &body).expect("the kernel takes it");
}

fn answer(
    device: &FuseDevice,
    len: u32,
    request: Request,
    error: i32,
    body: &[u8],
) -> Result<usize, OsError> {
    let header = [&len.to_ne_bytes()[..], &error.to_ne_bytes(), &request.unique.to_ne_bytes()].concat();
    device.write(&[IoSlice::new(&header), IoSlice::new(body)])
}
