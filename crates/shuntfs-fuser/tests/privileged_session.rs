//! Sessions on each transport: answers now, later and never, how many calls run at once, and the end. Needs CAP_SYS_ADMIN and
//! /dev/fuse.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use shuntfs_fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags, spawn_mount,
};
use shuntfs_testkit::mounted::{Transport, enable_uring};
use shuntfs_testkit::supervisor::Supervisor;
use shuntfs_testkit::{serial, skipped};
use tempfile::TempDir;

/// How long a test may keep its mount, and a call may wait for another.
const LIMIT: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::ZERO;
/// The files, by number: the first is 2.
const NAMES: [&str; 5] = ["now", "later", "dropped", "pair", "data"];

/// What the test looks at from outside.
#[derive(Default)]
struct Seen {
    inside: AtomicUsize,
    most: AtomicUsize,
    ended: AtomicBool,
    /// How many calls are in the file "pair".
    pair: Mutex<usize>,
    met: Condvar,
    data: Mutex<Vec<u8>>,
}

struct Odd(Arc<Seen>);

impl Odd {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        let (kind, perm) =
            if ino == INodeNo::ROOT { (FileType::Directory, 0o755) } else { (FileType::RegularFile, 0o644) };
        let size = if ino.0 == 6 { self.0.data.lock().expect("not poisoned").len() as u64 } else { 4096 };
        FileAttr {
            ino,
            size,
            blocks: 0,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Odd {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        assert!(config.capabilities().contains(InitFlags::FUSE_ASYNC_READ));
        assert_eq!(config.kernel_abi().0, 7);
        Ok(())
    }

    fn destroy(&mut self) {
        assert!(!self.0.ended.swap(true, Ordering::SeqCst), "it ends once");
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.0.most.fetch_max(self.0.inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Whoever else is admitted comes meanwhile.
        thread::sleep(Duration::from_micros(500));
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
        let found = NAMES.iter().position(|known| parent == INodeNo::ROOT && name == OsStr::new(known));
        match found {
            Some(index) => reply.entry(&TTL, &self.attr(INodeNo(index as u64 + 2)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino));
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(ino.0 * 100), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        assert_eq!(fh.0, ino.0 * 100, "the number of the open file comes back");
        match ino.0 {
            2 if offset > 0 => reply.data(b""),
            2 => reply.data(b"now"),
            3 => drop(thread::spawn(move || {
                thread::sleep(Duration::from_millis(2));
                reply.data(&vec![7; size as usize]);
            })),
            4 => drop(reply),
            5 => {
                let mut pair = self.0.pair.lock().expect("not poisoned");
                *pair += 1;
                self.0.met.notify_all();
                let (pair, _) =
                    self.0.met.wait_timeout_while(pair, LIMIT / 4, |pair| *pair < 2).expect("succeeds");
                reply.data(pair.to_string().as_bytes());
            }
            _ => {
                let data = self.0.data.lock().expect("not poisoned");
                let rest =
                    usize::try_from(offset).ok().and_then(|offset| data.get(offset..)).unwrap_or_default();
                reply.data(&rest[..rest.len().min(size as usize)]);
            }
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut data = self.0.data.lock().expect("not poisoned");
        let offset = usize::try_from(offset).expect("succeeds");
        let end = offset + bytes.len();
        let len = data.len().max(end);
        data.resize(len, 0);
        data[offset..end].copy_from_slice(bytes);
        reply.written(u32::try_from(bytes.len()).expect("a write is short"));
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        for (index, name) in NAMES.iter().enumerate().skip(usize::try_from(offset).expect("succeeds")) {
            let index = index as u64;
            if reply.add(INodeNo(index + 2), index + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}

struct Mounted {
    session: Option<BackgroundSession>,
    seen: Arc<Seen>,
    dir: TempDir,
    /// After the session: a caller that waits for a stuck server can only be freed from outside.
    _supervisor: Supervisor,
}

impl Mounted {
    fn new(transport: Transport, threads: Option<usize>) -> Self {
        let seen = Arc::new(Seen::default());
        let dir = tempfile::tempdir().expect("succeeds");
        let mut config = Config::default();
        config.n_threads = threads;
        config.mount_options = vec![
            MountOption::FSName("odd".into()),
            MountOption::CUSTOM(format!("shuntfs_transport={}", transport.name())),
        ];
        let session = spawn_mount(Odd(Arc::clone(&seen)), dir.path(), &config).expect("mounts");
        let supervisor = Supervisor::of(dir.path(), LIMIT).expect("a supervisor");
        Self { session: Some(session), seen, dir, _supervisor: supervisor }
    }

    fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self, name: &str) -> File {
        File::options().read(true).write(name == "data").open(self.join(name)).expect("succeeds")
    }

    /// Unmounts and waits for the end.
    fn end(mut self) {
        let session = self.session.take().expect("mounted until now");
        session.umount_and_join().expect("nothing is open");
        assert!(self.seen.ended.load(Ordering::SeqCst), "the file system was told");
        let table = fs::read_to_string("/proc/self/mountinfo").expect("succeeds");
        assert!(!table.contains(self.dir.path().to_str().expect("succeeds")));
    }
}

fn on(transports: &[Transport], threads: Option<usize>, test: impl Fn(&Mounted)) {
    let _serial = serial();
    let status = fs::read_to_string("/proc/self/status").expect("succeeds");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).expect("succeeds");
    if u64::from_str_radix(effective, 16).expect("succeeds") & 1 << 21 == 0
        || !fs::exists("/dev/fuse").expect("succeeds")
    {
        skipped("needs CAP_SYS_ADMIN and /dev/fuse");
        return;
    }
    for transport in transports {
        if *transport == Transport::Uring && !enable_uring() {
            continue;
        }
        let mounted = Mounted::new(*transport, threads);
        test(&mounted);
        mounted.end();
    }
}

#[test]
fn privileged_answers_come_now_and_later_and_what_is_dropped_is_an_error() {
    on(&Transport::ALL, None, |mounted| {
        let mut text = String::new();
        mounted.open("now").read_to_string(&mut text).expect("succeeds");
        assert_eq!(text, "now");
        let mut bytes = vec![0; 100_000];
        mounted.open("later").read_exact_at(&mut bytes, 0).expect("succeeds");
        assert!(bytes.iter().all(|byte| *byte == 7));
        let error = mounted.open("dropped").read(&mut bytes).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5));
        assert_eq!(fs::metadata(mounted.join("nothing")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let mut names: Vec<_> = fs::read_dir(mounted.dir.path())
            .expect("succeeds")
            .map(|entry| entry.expect("succeeds").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["data", "dropped", "later", "now", "pair"]);
    });
}

/// More wait at once than a ring has places.
#[test]
fn privileged_many_answers_may_be_owed_at_once() {
    on(&Transport::ALL, None, |mounted| {
        thread::scope(|scope| {
            for _ in 0..80 {
                scope.spawn(|| mounted.open("later").read_exact_at(&mut [0; 512], 0).expect("succeeds"));
            }
        });
    });
}

#[test]
fn privileged_long_data_travels_whole_both_ways() {
    on(&Transport::ALL, None, |mounted| {
        let bytes: Vec<u8> = (0..5_000_003_u32).map(|index| (index % 251) as u8).collect();
        let mut file = mounted.open("data");
        file.write_all(&bytes).expect("succeeds");
        let mut back = vec![0; bytes.len()];
        file.read_exact_at(&mut back, 0).expect("succeeds");
        assert!(back == bytes);
    });
}

fn look_at_once(mounted: &Mounted) -> usize {
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for number in 0..40 {
                    assert!(fs::metadata(mounted.join(&format!("none{number}"))).is_err());
                }
            });
        }
    });
    mounted.seen.most.load(Ordering::SeqCst)
}

#[test]
fn privileged_one_call_runs_at_a_time_where_nobody_asked_for_more() {
    on(&Transport::ALL, None, |mounted| assert_eq!(look_at_once(mounted), 1));
}

#[test]
fn privileged_no_more_calls_run_at_once_than_were_asked_for() {
    on(&Transport::ALL, Some(2), |mounted| assert!(look_at_once(mounted) <= 2));
}

/// On rings it depends on the callers' CPUs whether two calls meet.
#[test]
fn privileged_two_calls_meet_where_two_were_asked_for() {
    on(&[Transport::Device, Transport::Cloned], Some(2), |mounted| {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut text = [0];
                    assert_eq!(mounted.open("pair").read_at(&mut text, 0).expect("succeeds"), 1);
                    assert_eq!(text, *b"2");
                });
            }
        });
    });
}

#[test]
fn privileged_the_kernel_is_told_of_changes() {
    on(&Transport::ALL, None, |mounted| {
        assert!(mounted.open("now").metadata().is_ok());
        let notifier = mounted.session.as_ref().expect("succeeds").notifier();
        notifier.inval_inode(INodeNo(2), 0, 0).expect("succeeds");
        notifier.inval_entry(INodeNo::ROOT, OsStr::new("now")).expect("succeeds");
        notifier.inval_entry(INodeNo::ROOT, OsStr::new("nobody looked this up")).expect("succeeds");
        assert!(mounted.open("now").metadata().is_ok());
    });
}

#[test]
fn privileged_a_busy_mount_says_so_and_stays() {
    on(&Transport::ALL, None, |mounted| {
        let open = mounted.open("now");
        let out = std::process::Command::new("umount").arg(mounted.dir.path()).output().expect("succeeds");
        assert!(!out.status.success());
        assert!(open.metadata().is_ok());
    });
}
