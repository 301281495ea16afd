//! Files whose branches become full, and what others have to do with them: other paths, other requests. Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::fs::{self, File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use shuntfs::{MountOptions, SessionOptions};
use shuntfs_pool::{Cache, FlowWish, Pool, PoolOptions};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::program::{call, find};
use shuntfs_testkit::skipped;

use mounted::bound::Bound;
use mounted::{Mounted, disks, merge};

const LIMIT: Duration = Duration::from_secs(30);
const MIB: usize = 1 << 20;
const NOSPC: Option<i32> = Some(28);

fn mount(disks: Vec<Lower>, options: &SessionOptions) -> Option<Mounted> {
    let merge = Some(merge(&disks, "ff"));
    let (cache, flow) = (Cache::Second, FlowWish::Relay);
    let pool = Pool::open(&PoolOptions { merge, cache, flow, ..PoolOptions::new("disks") }).unwrap();
    let how = MountOptions { allow_other: true, ..MountOptions::default() };
    Mounted::with(pool, disks, &how, options)
}

fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn fill(file: &File) -> Result<()> {
    (0..12).try_for_each(|piece| file.write_all_at(&[7; MIB], (piece * MIB) as u64))
}

/// It lost its other path when its disk was full, and a rule that held by that.
#[test]
fn a_file_with_a_path_through_another_mount_stays() {
    let Some(disks) = disks(LowerKind::Tmpfs, &[8, 64]) else { return };
    let first = disks[0].path().to_owned();
    for name in ["x", "y", "z"] {
        fs::create_dir(first.join(name)).unwrap();
    }
    let bound = Bound::new(&first.join("x"), first.join("y"));
    let Some(mounted) = mount(disks, &SessionOptions::default()) else { return };
    let file = rw(&mounted.at("z/file"));
    fill(&file).unwrap();
    assert_eq!(mounted.observer.facts().files_moved, 1, "nobody has seen the other mount yet");
    fs::write(mounted.below(0, "x/file"), "text").unwrap();
    let (file, other) = (rw(&mounted.at("x/file")), rw(&mounted.at("y/file")));
    assert_eq!(fill(&file).unwrap_err().raw_os_error(), NOSPC);
    other.write_all_at(b"TEXT", 0).unwrap();
    assert!(fs::read(mounted.below(0, "x/file")).unwrap().starts_with(b"TEXT\x07"));
    assert_eq!((mounted.on("x/file"), mounted.observer.facts().files_moved), (vec![0], 1));
    drop((file, other, bound));
}

/// Disks that let nothing be written meanwhile.
struct Frozen<'d>(&'d Path);

impl<'d> Frozen<'d> {
    fn new(disk: &'d Path) -> Self {
        call("fsfreeze", &[&"-f", &disk], LIMIT).unwrap();
        Self(disk)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        drop(call("fsfreeze", &[&"-u", &self.0], LIMIT));
    }
}

/// Each writer of a file that was copied held one of the threads that all others need, too, for as long as the copy took.
#[test]
fn who_waits_for_a_copy_leaves_the_threads_to_others() {
    const WRITERS: usize = 8;
    if find("fsfreeze").is_none() {
        skipped("fsfreeze is not installed");
        return;
    }
    let Some(disks) = disks(LowerKind::Ext4, &[24, 96]) else { return };
    let second = disks[1].path().to_owned();
    let threads = SessionOptions { offload_threads: 2, ..SessionOptions::default() };
    let Some(mounted) = mount(disks, &threads) else { return };
    let other = rw(&mounted.at("other"));
    other.write_all_at(b"text", 0).unwrap();
    let path = mounted.at("file");
    rw(&path).set_len((WRITERS * 4 * MIB) as u64).unwrap();
    // Writes that bypass the page cache and lengthen nothing come to the server at once.
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path).unwrap();
    let frozen = Frozen::new(&second);
    std::thread::scope(|scope| {
        let (file, mounted) = (&file, &mounted);
        let write = move |number: usize| -> Result<()> {
            let mut memory = vec![0_u8; 2 * MIB];
            let start = memory.as_ptr().align_offset(4096);
            memory[start..start + MIB].fill(5);
            (0..4).try_for_each(|piece| {
                file.write_all_at(&memory[start..start + MIB], ((number * 4 + piece) * MIB) as u64)
            })
        };
        let writers: Vec<_> = (0..WRITERS).map(|number| scope.spawn(move || write(number))).collect();
        // The disk is full, the copy hangs, and the others wait for it.
        let is_full =
            || fs::metadata(mounted.below(0, "file")).unwrap().len() > 0 && free(mounted) < MIB as u64;
        assert!(wait_until(LIMIT, is_full), "{}", free(mounted));
        std::thread::sleep(Duration::from_millis(500));
        assert!(writers.iter().any(|writer| !writer.is_finished()));
        let synced = scope.spawn(|| (0..20).try_for_each(|_| other.sync_all()));
        assert!(wait_until(LIMIT, || synced.is_finished()), "it waits for the copy, too");
        synced.join().unwrap().unwrap();
        assert_eq!(mounted.on("file"), [0]);
        drop(frozen);
        writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    });
    assert_eq!((mounted.on("file"), mounted.observer.facts().files_moved), (vec![1], 1));
    assert!(fs::read(&path).unwrap() == vec![5; WRITERS * 4 * MIB]);
}

fn free(mounted: &Mounted) -> u64 {
    let below = rustix::fs::statvfs(mounted.disks[0].path()).unwrap();
    below.f_bavail * below.f_frsize
}
