//! Files whose branches become full, on small disks in memory. Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    FallocateFlags, OFlags, XattrFlags, copy_file_range, fallocate, getxattr, setxattr, statvfs,
};
use shuntfs::{Opcode, Reason};
use shuntfs_pool::policy::BranchMode;
use shuntfs_pool::{BranchOptions, Cache, FlowWish, Locks, MergeOptions, MoveOnFull, Pool, PoolOptions};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::LowerKind;
use shuntfs_testkit::program::call;
use shuntfs_testkit::skipped;

use mounted::{Mounted, disks, merge};

const LIMIT: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
const NOSPC: Option<i32> = Some(28);

/// On disks in memory of so many MiB, through the server; `None` where it cannot be had, and then the reason was said.
fn start(sizes: &[u64]) -> Option<Mounted> {
    start_with(LowerKind::Tmpfs, sizes, |options| options.flow = FlowWish::Relay)
}

fn start_with(kind: LowerKind, sizes: &[u64], change: impl FnOnce(&mut PoolOptions)) -> Option<Mounted> {
    let disks = disks(kind, sizes)?;
    let merge = Some(merge(&disks, "ff"));
    let mut options = PoolOptions { merge, cache: Cache::Second, ..PoolOptions::new("disks") };
    change(&mut options);
    Mounted::new(Pool::open(&options).unwrap(), disks)
}

impl Mounted {
    fn free(&self, disk: usize) -> u64 {
        let below = statvfs(self.disks[disk].path()).unwrap();
        below.f_bavail * below.f_frsize
    }

    fn moved(&self) -> u64 {
        self.observer.facts().files_moved
    }

    fn downgraded(&self, reason: Reason) -> u64 {
        self.session.status().downgrades.get(reason.name()).copied().unwrap_or(0)
    }
}

fn rw(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Bytes that say where they are.
fn bytes(offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len).map(|at| u8::try_from(at / 4096 % 251).unwrap()).collect()
}

fn no_space(outcome: std::io::Result<()>, what: &str) {
    assert_eq!(outcome.expect_err(what).raw_os_error(), NOSPC, "{what}");
}

#[test]
fn a_file_that_outgrows_its_disk_is_written_on_another() {
    let Some(mounted) = start(&[8, 64]) else { return };
    fs::create_dir_all(mounted.at("a/b")).unwrap();
    fs::set_permissions(mounted.at("a"), fs::Permissions::from_mode(0o751)).unwrap();
    let path = mounted.at("a/b/file");
    let mut file = rw(&path);
    chown(&path, Some(71_001), Some(71_002)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o2640)).unwrap();
    setxattr(&path, "user.note", b"kept", XattrFlags::empty()).unwrap();
    let stays = SystemTime::UNIX_EPOCH + Duration::new(1_000_000, 5000);
    for written in 0..20 {
        file.write_all(&bytes(written * MIB, MIB)).unwrap();
        if written == 5 {
            assert_eq!((mounted.on("a/b/file"), mounted.moved()), (vec![0], 0));
        }
    }
    assert_eq!((mounted.on("a/b/file"), mounted.moved()), (vec![1], 1));
    assert!(fs::read(&path).unwrap() == bytes(0, 20 * MIB));
    assert!(fs::read(mounted.below(1, "a/b/file")).unwrap() == bytes(0, 20 * MIB));
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid(), found.len()), (71_001, 71_002, 20 * MIB as u64));
    assert_eq!(found.mode() & 0o7777, 0o2640, "by the superuser, who keeps the bit");
    let mut value = [0; 16];
    let len = getxattr(&path, "user.note", &mut value).unwrap();
    assert_eq!(&value[..len], b"kept");
    assert_eq!(
        fs::metadata(mounted.below(1, "a")).unwrap().mode() & 0o7777,
        0o751,
        "the path is made as it was"
    );
    // Both see the same file: by the descriptor, and by the name.
    assert_eq!(file.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
    file.set_modified(stays).unwrap();
    assert_eq!(fs::metadata(mounted.below(1, "a/b/file")).unwrap().modified().unwrap(), stays);
    // Nobody holds what was on the first disk.
    assert!(wait_until(Duration::from_secs(10), || mounted.free(0) > 7 * MIB as u64), "{}", mounted.free(0));
    fs::remove_file(&path).unwrap();
    assert!(mounted.on("a/b/file").is_empty());
}

#[test]
fn holes_stay_holes_and_times_stay() {
    let Some(mounted) = start(&[8, 24]) else { return };
    let path = mounted.at("sparse");
    let file = rw(&path);
    for at in [0, 200 * MIB, 500 * MIB] {
        file.write_all_at(&bytes(at, MIB), at as u64).unwrap();
    }
    file.set_len(600 * MIB as u64).unwrap();
    fs::write(mounted.below(0, "filler"), vec![1; 4 * MIB]).unwrap();
    let accessed = SystemTime::UNIX_EPOCH + Duration::new(2_000_000, 0);
    file.set_times(fs::FileTimes::new().set_accessed(accessed)).unwrap();
    file.write_all_at(&bytes(300 * MIB, 8 * MIB), 300 * MIB as u64).unwrap();
    assert_eq!(mounted.on("sparse"), [1]);
    let found = fs::metadata(mounted.below(1, "sparse")).unwrap();
    assert_eq!((found.len(), found.blocks() * 512), (600 * MIB as u64, 11 * MIB as u64));
    assert_eq!(found.accessed().unwrap(), accessed);
    for (at, len) in [(0, 1), (200, 1), (300, 8), (500, 1)] {
        let mut read = vec![0; len * MIB];
        file.read_exact_at(&mut read, (at * MIB) as u64).unwrap();
        assert!(read == bytes(at * MIB, len * MIB), "{at}");
    }
    let mut hole = vec![1; MIB];
    file.read_exact_at(&mut hole, 100 * MIB as u64).unwrap();
    assert!(hole.iter().all(|byte| *byte == 0));
}

/// Everybody who has it open goes on with it, and what the first disk held is free.
#[test]
fn all_who_have_it_open_go_on() {
    let Some(mounted) = start(&[8, 64]) else { return };
    let path = mounted.at("file");
    let first = rw(&path);
    first.write_all_at(&bytes(0, 4 * MIB), 0).unwrap();
    let (mut reader, idle, second) = (File::open(&path).unwrap(), File::open(&path).unwrap(), rw(&path));
    let mut appending = OpenOptions::new().append(true).open(&path).unwrap();
    let mut begin = vec![0; 100];
    reader.read_exact(&mut begin).unwrap();
    idle.read_at(&mut begin, 0).unwrap();
    second.write_all_at(b"second", 10).unwrap();
    fs::write(mounted.below(0, "filler"), vec![1; 3 * MIB]).unwrap();
    first.write_all_at(&bytes(4 * MIB, 2 * MIB), 4 * MIB as u64).unwrap();
    assert_eq!((mounted.on("file"), mounted.moved()), (vec![1], 1));
    appending.write_all(b"the end").unwrap();
    second.write_all_at(b"again", 20).unwrap();
    let mut seen = [0; 5];
    for file in [&first, &second, &reader, &idle] {
        file.read_exact_at(&mut seen, 20).unwrap();
        assert_eq!(&seen, b"again");
        assert_eq!(file.metadata().unwrap().len(), 6 * MIB as u64 + 7);
    }
    first.sync_all().unwrap();
    let below = fs::read(mounted.below(1, "file")).unwrap();
    assert!(below.ends_with(b"the end") && &below[10..16] == b"second");
    fs::remove_file(mounted.below(0, "filler")).unwrap();
    // Although all of them are open still.
    assert!(wait_until(Duration::from_secs(10), || mounted.free(0) > 7 * MIB as u64), "{}", mounted.free(0));
    drop((first, second, reader, idle, appending));
    assert_eq!(mounted.observer.facts().overdrawn, 0);
}

#[test]
fn direct_io_allocation_and_lengthening_move_it_too() {
    let Some(mounted) = start_with(LowerKind::Ext4, &[24, 96], |options| options.flow = FlowWish::Relay)
    else {
        return;
    };
    let len = 30 * MIB as u64;
    let allocated = rw(&mounted.at("allocated"));
    allocated.write_all_at(b"text", 0).unwrap();
    fallocate(&allocated, FallocateFlags::empty(), 0, len).unwrap();
    assert_eq!((mounted.on("allocated"), mounted.moved()), (vec![1], 1));
    assert!(
        allocated.metadata().unwrap().len() == len && allocated.metadata().unwrap().blocks() * 512 >= len
    );
    let mut begin = [0; 4];
    allocated.read_exact_at(&mut begin, 0).unwrap();
    assert_eq!(&begin, b"text");
    fs::remove_file(mounted.at("allocated")).unwrap();
    drop(allocated);
    // What is lengthened takes no room, so nothing happens.
    let lengthened = rw(&mounted.at("lengthened"));
    lengthened.set_len(200 * MIB as u64).unwrap();
    assert_eq!((mounted.on("lengthened"), mounted.moved()), (vec![0], 1));

    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let path = mounted.at("direct");
    let direct =
        OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(&path).unwrap();
    // Aligned, as the disk wants it.
    let mut memory = vec![0_u8; 2 * MIB];
    let start = memory.as_ptr().align_offset(4096);
    memory[start..start + MIB].fill(3);
    for piece in 0..30 {
        direct.write_all_at(&memory[start..start + MIB], (piece * MIB) as u64).unwrap();
    }
    assert_eq!((mounted.on("direct"), mounted.moved()), (vec![1], 2));
    assert!(fs::read(&path).unwrap() == vec![3; 30 * MIB]);
}

/// The kernel asks the server to copy, and what finds no room goes on where the file is then.
#[test]
fn a_copy_below_moves_it_too() {
    let Some(mounted) = start(&[8, 64]) else { return };
    fs::write(mounted.below(1, "from"), bytes(0, 12 * MIB)).unwrap();
    let from = File::open(mounted.at("from")).unwrap();
    let to = rw(&mounted.at("to"));
    to.write_all_at(b"text", 0).unwrap();
    assert_eq!(mounted.on("to"), [0]);
    let (mut read, mut written) = (0, 4);
    while read < 12 * MIB as u64 {
        let left = 12 * MIB - usize::try_from(read).unwrap();
        assert!(copy_file_range(&from, Some(&mut read), &to, Some(&mut written), left).unwrap() > 0);
    }
    // The newer one from Linux 6.18 on.
    let asked = |opcode| mounted.session.status().requests(opcode);
    assert!(asked(Opcode::CopyFileRange) + asked(Opcode::CopyFileRange64) > 0);
    assert_eq!((mounted.on("to"), mounted.moved()), (vec![1], 1));
    let mut seen = vec![0; 12 * MIB];
    to.read_exact_at(&mut seen, 4).unwrap();
    assert!(seen == bytes(0, 12 * MIB));
    assert!(fs::read(mounted.below(1, "to")).unwrap().starts_with(b"text"));
}

/// EDQUOT instead of ENOSPC: there is room on the disk, and not for this folder.
#[test]
fn a_quota_that_is_used_up_moves_it_too() {
    let (limited, free) = (disks(LowerKind::Btrfs, &[256]), disks(LowerKind::Tmpfs, &[64]));
    let (Some(limited), Some(free)) = (limited, free) else { return };
    let (top, folder) = (limited[0].path().to_owned(), limited[0].path().join("limited"));
    let ask = |words: &[&dyn AsRef<OsStr>]| call("btrfs", words, LIMIT).unwrap();
    ask(&[&"subvolume", &"create", &folder]);
    ask(&[&"quota", &"enable", &top]);
    ask(&[&"quota", &"rescan", &"-w", &top]);
    ask(&[&"qgroup", &"limit", &"8M", &folder]);
    let branches = vec![BranchOptions::new(&folder), BranchOptions::new(free[0].path())];
    let merge = Some(MergeOptions { branches, ..merge(&free, "ff") });
    let (cache, flow) = (Cache::Second, FlowWish::Relay);
    let pool = Pool::open(&PoolOptions { merge, cache, flow, ..PoolOptions::new("disks") }).unwrap();
    let disks = [limited, free].into_iter().flatten().collect();
    let Some(mounted) = Mounted::new(pool, disks) else { return };
    let refused = fs::write(folder.join("below"), bytes(0, 12 * MIB)).unwrap_err().raw_os_error();
    assert_eq!(refused, Some(122), "the quota is none");
    fs::remove_file(folder.join("below")).unwrap();
    ask(&[&"filesystem", &"sync", &top]);
    let file = rw(&mounted.at("file"));
    for piece in 0..12 {
        file.write_all_at(&bytes(piece * MIB, MIB), (piece * MIB) as u64).unwrap();
    }
    assert_eq!((mounted.on("limited/file"), mounted.on("file"), mounted.moved()), (vec![], vec![1], 1));
    assert!(fs::read(mounted.below(1, "file")).unwrap() == bytes(0, 12 * MIB));
}

/// Stores through a mapping come back as WRITEs, and find room.
#[test]
fn what_is_stored_through_a_mapping_moves_it_too() {
    let Some(mounted) = start(&[8, 64]) else { return };
    let path = mounted.at("mapped");
    let file = rw(&path);
    file.set_len(16 * MIB as u64).unwrap();
    let script = [
        "import mmap, sys",
        "f = open(sys.argv[1], 'r+b')",
        "m = mmap.mmap(f.fileno(), 0)",
        "for at in range(0, len(m), 4096): m[at] = 7",
        "m.flush()",
        "m[0] = 9",
        "m.flush()",
    ]
    .join("\n");
    let mut command = std::process::Command::new("python3");
    let ran = shuntfs_testkit::program::run(command.args(["-c", &script]).arg(&path), LIMIT).unwrap();
    assert!(ran.status.success(), "{ran:?}");
    file.sync_all().unwrap();
    assert_eq!(mounted.on("mapped"), [1]);
    let below = fs::read(mounted.below(1, "mapped")).unwrap();
    assert!(below.len() == 16 * MIB && below[0] == 9);
    assert!(below.iter().skip(4096).step_by(4096).all(|byte| *byte == 7));
}

#[test]
fn what_cannot_be_moved_gets_the_error_and_stays_whole() {
    let Some(mounted) = start(&[8, 64]) else { return };
    let fill = |file: &File| -> std::io::Result<()> {
        (0..12).try_for_each(|piece| file.write_all_at(&bytes(piece * MIB, MIB), (piece * MIB) as u64))
    };
    let linked = rw(&mounted.at("linked"));
    fs::hard_link(mounted.at("linked"), mounted.at("other")).unwrap();
    no_space(fill(&linked), "it has two names");
    assert_eq!((mounted.on("linked"), mounted.on("other"), mounted.moved()), (vec![0], vec![0], 0));
    fs::remove_file(mounted.at("other")).unwrap();
    fill(&linked).unwrap();
    assert_eq!((mounted.on("linked"), mounted.moved()), (vec![1], 1));
    assert!(fs::read(mounted.at("linked")).unwrap() == bytes(0, 12 * MIB));

    let nameless = rw(&mounted.at("nameless"));
    fs::remove_file(mounted.at("nameless")).unwrap();
    no_space(fill(&nameless), "it has no name");
    drop(nameless);
    assert!(wait_until(Duration::from_secs(10), || mounted.free(0) > 7 * MIB as u64));

    // Each disk has one of this name; what is shown would be another one.
    fs::write(mounted.below(0, "copied"), "first").unwrap();
    fs::write(mounted.below(1, "copied"), "second").unwrap();
    let copied = rw(&mounted.at("copied"));
    no_space(fill(&copied), "there is another copy");
    assert_eq!(fs::read(mounted.below(1, "copied")).unwrap(), b"second");
    drop(copied);
    fs::remove_file(mounted.at("copied")).unwrap();
    assert!(mounted.on("copied").is_empty());
    assert_eq!(mounted.moved(), 1);
}

#[test]
fn where_there_is_no_room_anywhere_the_caller_hears_it() {
    let Some(mounted) = start(&[8, 8, 8]) else { return };
    let file = rw(&mounted.at("file"));
    let mut whole = 0;
    let refused = loop {
        match file.write_at(&bytes(whole, MIB), whole as u64) {
            Ok(len) => whole += len,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), NOSPC);
    assert!(whole > 7 * MIB, "{whole}");
    assert_eq!(mounted.on("file").len(), 1);
    assert!(fs::read(mounted.at("file")).unwrap() == bytes(0, whole));
    // Once there is room it goes on.
    fs::remove_file(mounted.at("file")).unwrap();
    drop(file);
    let again = rw(&mounted.at("again"));
    again.write_all_at(&bytes(0, 6 * MIB), 0).unwrap();
    assert!(fs::read(mounted.at("again")).unwrap() == bytes(0, 6 * MIB));
}

/// The policy decides, and what it must leave free is what something new must.
#[test]
fn the_policy_says_where_it_goes() {
    for (policy, expected) in [("ff", 1), ("mfs", 3), ("lfs", 1), ("epff", 2)] {
        let moves = MoveOnFull::of(policy).unwrap();
        let change = |options: &mut PoolOptions| {
            options.flow = FlowWish::Relay;
            let merge = options.merge.as_mut().unwrap();
            merge.move_on_full = moves;
            merge.branches[4].mode = BranchMode::NoCreate;
        };
        let Some(mounted) = start_with(LowerKind::Tmpfs, &[8, 32, 40, 48, 64], change) else { return };
        fs::create_dir(mounted.below(0, "d")).unwrap();
        fs::create_dir(mounted.below(2, "d")).unwrap();
        fs::write(mounted.at("d/file"), bytes(0, 12 * MIB)).unwrap();
        assert_eq!(mounted.on("d/file"), [expected], "{policy}");
    }
    let off = |options: &mut PoolOptions| {
        options.flow = FlowWish::Relay;
        options.merge.as_mut().unwrap().move_on_full = MoveOnFull::OFF;
    };
    let Some(mounted) = start_with(LowerKind::Tmpfs, &[8, 32], off) else { return };
    no_space(fs::write(mounted.at("file"), bytes(0, 12 * MIB)), "it is turned off");
    let control = mounted.at(".mergerfs");
    let set =
        |value: &str| setxattr(&control, "user.mergerfs.moveonenospc", value.as_bytes(), XattrFlags::empty());
    assert!(set("most").is_err() && set("mfs").is_ok());
    fs::write(mounted.at("file"), bytes(0, 12 * MIB)).unwrap();
    let mut value = [0; 16];
    let len = getxattr(&control, "user.mergerfs.moveonenospc", &mut value).unwrap();
    assert_eq!((&value[..len], mounted.on("file")), (&b"mfs"[..], vec![1]));
}

/// The kernel cannot be given another file, so near the mark an open is not in passthrough.
#[test]
fn passthrough_is_left_in_time_and_else_the_file_stays() {
    let reserve = |bytes: u64| {
        move |options: &mut PoolOptions| {
            options.merge.as_mut().unwrap().passthrough_reserve = Some(bytes);
        }
    };
    let four = 4 * MIB as u64;
    let Some(mounted) = start_with(LowerKind::Tmpfs, &[13, 64], reserve(four)) else { return };
    if let Some(reason) = mounted.session.status().negotiated.passthrough_off {
        skipped(&format!("no passthrough: {reason}"));
        return;
    }
    // Three times four fit; the fourth goes another way, and so does not even the first file of the other disk.
    let files: Vec<File> = (0..4).map(|number| rw(&mounted.at(&format!("file-{number}")))).collect();
    assert_eq!(mounted.downgraded(Reason::NearFull), 1);
    // As much as was reserved for each.
    for file in &files[..3] {
        file.write_all_at(&bytes(0, 4 * MIB), 0).unwrap();
    }
    assert_eq!(mounted.moved(), 0);
    files[3].write_all_at(&bytes(0, 6 * MIB), 0).unwrap();
    assert_eq!((mounted.moved(), mounted.on("file-3"), mounted.on("file-0")), (1, vec![1], vec![0]));
    // What outgrows it in passthrough is the rest: it stays where it is, and is whole.
    let (mut whole, file) = (4 * MIB, &files[0]);
    let refused = loop {
        match file.write_at(&bytes(whole, MIB), whole as u64) {
            Ok(len) => whole += len,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.raw_os_error(), NOSPC);
    assert!(fs::read(mounted.at("file-0")).unwrap() == bytes(0, whole));
    drop(files);
    // What is opened from now on finds the branch full, and is moved. What is known of its space is at most a second old.
    let appends = mounted.at("appended");
    std::thread::sleep(Duration::from_millis(1100));
    let mut file = OpenOptions::new().append(true).create(true).open(&appends).unwrap();
    assert!(mounted.downgraded(Reason::NearFull) >= 2);
    file.write_all(&bytes(0, 2 * MIB)).unwrap();
    assert_eq!(mounted.on("appended"), [1]);
}

/// A file that was written in passthrough, and that the kernel keeps there for its next open, leaves it where it would meet a full disk.
#[test]
fn a_kept_backing_file_is_let_go_of_near_the_mark() {
    let reserve = |options: &mut PoolOptions| {
        options.merge.as_mut().unwrap().passthrough_reserve = Some(4 * MIB as u64);
    };
    let Some(mounted) = start_with(LowerKind::Tmpfs, &[8, 64], reserve) else { return };
    if let Some(reason) = mounted.session.status().negotiated.passthrough_off {
        skipped(&format!("no passthrough: {reason}"));
        return;
    }
    let path = mounted.at("file");
    let append = || OpenOptions::new().append(true).create(true).open(&path).unwrap();
    append().write_all(&bytes(0, 2 * MIB)).unwrap();
    assert_eq!(mounted.downgraded(Reason::NearFull), 0);
    fs::write(mounted.below(0, "filler"), vec![1; 4 * MIB]).unwrap();
    // What is known of the disk's space is at most a second old.
    std::thread::sleep(Duration::from_millis(1100));
    append().write_all(&bytes(2 * MIB, 8 * MIB)).unwrap();
    assert_eq!((mounted.downgraded(Reason::NearFull), mounted.moved()), (1, 1));
    assert!(mounted.on("file") == [1] && fs::read(&path).unwrap() == bytes(0, 10 * MIB));
}

#[test]
fn a_file_that_was_locked_below_is_not_moved() {
    let lower = |options: &mut PoolOptions| {
        options.flow = FlowWish::Relay;
        options.locks = Locks::Lower;
    };
    let Some(mounted) = start_with(LowerKind::Tmpfs, &[8, 64], lower) else { return };
    let (locked, free) = (rw(&mounted.at("locked")), rw(&mounted.at("free")));
    locked.lock().unwrap();
    let fill =
        |file: &File| (0..12).try_for_each(|piece| file.write_all_at(&bytes(0, MIB), (piece * MIB) as u64));
    no_space(fill(&locked), "it is locked");
    fill(&free).unwrap();
    assert_eq!((mounted.on("locked"), mounted.on("free")), (vec![0], vec![1]));
}

/// Reads the files of a folder again and again: once they are there, they stay there.
fn look_at_all(mounted: &Mounted, stop: &AtomicBool, looks: &AtomicU64) {
    let mut has_seen = [false; 4];
    while !stop.load(Ordering::Relaxed) {
        for (number, has_seen) in has_seen.iter_mut().enumerate() {
            let path = mounted.at(&format!("d/file-{number}"));
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) => {
                    assert!(!*has_seen, "{number}: {error}");
                    continue;
                }
            };
            *has_seen = true;
            let len = file.metadata().unwrap().len();
            assert!(fs::metadata(&path).unwrap().is_file(), "{number}");
            let mut begin = vec![0; usize::try_from(len.min(8192)).unwrap()];
            // The size that was told is the one below. Until the WRITE that made it has returned, the kernel reads up to the size before
            // (FUSE_I_SIZE_UNSTABLE).
            let is_read = wait_until(Duration::from_secs(10), || file.read_exact_at(&mut begin, 0).is_ok());
            assert!(is_read, "{number}: fewer bytes than {}", begin.len());
            assert!(begin == bytes(0, begin.len()), "{number}");
            looks.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Changes their modes and attributes again and again: what was set is there.
fn change_all(mounted: &Mounted, stop: &AtomicBool) {
    let mut mode = 0;
    while !stop.load(Ordering::Relaxed) {
        mode = (mode + 1) % 8;
        for number in 0..4 {
            let path = mounted.at(&format!("d/file-{number}"));
            if fs::set_permissions(&path, fs::Permissions::from_mode(0o640 + mode)).is_ok() {
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640 + mode);
            }
            let note = mode.to_string();
            if setxattr(&path, "user.note", note.as_bytes(), XattrFlags::empty()).is_ok() {
                let mut value = [0; 8];
                let len = getxattr(&path, "user.note", &mut value).unwrap();
                assert_eq!(&value[..len], note.as_bytes());
            }
        }
    }
}

/// Whoever looks at the name while the file is moved finds it, with what was written; attributes hold.
#[test]
fn readers_and_changes_meanwhile() {
    let Some(mounted) = start(&[16, 256, 16, 256]) else { return };
    fs::create_dir(mounted.at("d")).unwrap();
    let (stop, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (stop, looks, mounted) = (&stop, &looks, &mounted);
        let others = [
            scope.spawn(move || look_at_all(mounted, stop, looks)),
            scope.spawn(move || look_at_all(mounted, stop, looks)),
            scope.spawn(move || change_all(mounted, stop)),
        ];
        let write = move |number: usize| {
            let file = rw(&mounted.at(&format!("d/file-{number}")));
            for piece in 0..40 {
                file.write_all_at(&bytes(piece * MIB, MIB), (piece * MIB) as u64).unwrap();
            }
        };
        let writers: Vec<_> = (0..4).map(|number| scope.spawn(move || write(number))).collect();
        let written: Vec<_> = writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        written.into_iter().for_each(|written| written.unwrap());
        others.into_iter().for_each(|other| other.join().unwrap());
    });
    assert!(looks.load(Ordering::Relaxed) > 0);
    for number in 0..4 {
        let name = format!("d/file-{number}");
        assert_eq!(mounted.on(&name).len(), 1, "{name}");
        assert!(fs::read(mounted.at(&name)).unwrap() == bytes(0, 40 * MIB), "{name}");
    }
    assert!(mounted.moved() >= 3, "{}", mounted.moved());
    let names: Vec<OsString> =
        fs::read_dir(mounted.at("d")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!(mounted.observer.facts().overdrawn, 0);
}

/// A removal while the file is copied wins, and nothing comes back; a rename is followed.
#[test]
fn a_name_that_goes_or_moves_meanwhile() {
    let Some(mounted) = start(&[64, 512]) else { return };
    for round in 0..6 {
        let path = mounted.at("file");
        let file = rw(&path);
        file.write_all_at(&bytes(0, 40 * MIB), 0).unwrap();
        fs::write(mounted.below(0, "filler"), vec![1; 20 * MIB]).unwrap();
        std::thread::scope(|scope| {
            let file = &file;
            let writer = scope.spawn(move || file.write_all_at(&bytes(40 * MIB, 8 * MIB), 40 * MIB as u64));
            std::thread::sleep(Duration::from_millis(round * 3));
            if round % 2 == 0 {
                fs::remove_file(&path).unwrap();
                // Whether it was moved before or has no name: what matters is that it is gone.
                drop(writer.join().unwrap());
            } else {
                fs::rename(&path, mounted.at("renamed")).unwrap();
                writer.join().unwrap().unwrap();
            }
        });
        assert!(mounted.on("file").is_empty(), "{round}");
        if round % 2 == 1 {
            assert_eq!(mounted.on("renamed"), [1]);
            assert!(fs::read(mounted.at("renamed")).unwrap() == bytes(0, 48 * MIB));
            fs::remove_file(mounted.at("renamed")).unwrap();
        }
        drop(file);
        fs::remove_file(mounted.below(0, "filler")).unwrap();
        assert!(wait_until(Duration::from_secs(10), || mounted.free(0) > 63 * MIB as u64));
    }
}
