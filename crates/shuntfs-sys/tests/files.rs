//! Lower files on real file systems: tmpfs, ext4, XFS, Btrfs.

mod support;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{ErrorKind, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use shuntfs_sys::bulkstat::xfs_generation;
use shuntfs_sys::data::{
    Pipe, copy_range, fallocate, read_at, read_at_cached, seek_data, seek_hole, splice_from_pipe,
    splice_to_pipe, sync_all, sync_data, sync_filesystem, write_at,
};
use shuntfs_sys::ioctl::file_ioctl;
use shuntfs_sys::stat::filesystem_of;
use shuntfs_sys::{
    Device, DirReader, FsMagic, OsError, Time, TimeSet, chmod, chown, encode_dev, get_xattr, handle_at,
    handle_of, link_to, list_xattr, mkdir_at, mknod_at, open_at, open_by_handle, open_folder, open_path_at,
    readlink_of, remove_xattr, rename_at, reopen, rmdir_at, set_times, set_xattr, stat_at, stat_of,
    symlink_at, tmpfile_at, truncate, unlink_at,
};
use support::{Lower, TimeLimit, is_privileged, on_own_thread};

const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;
const O_CREAT: u32 = 0o100;
const O_EXCL: u32 = 0o200;
const O_DIRECTORY: u32 = 0o200_000;
const O_PATH: u32 = 0o10_000_000;

/// Runs a test on a fresh folder of each kind of lower file system.
fn on_each(test: &str, check: impl Fn(&Lower, &OwnedFd)) {
    if !is_privileged(test) {
        return;
    }
    let _limit = TimeLimit::start();
    for lower in Lower::all() {
        println!("on {}", lower.kind);
        let root = open_folder(lower.path()).expect("the root opens");
        check(&lower, &root);
    }
}

fn create(root: &OwnedFd, name: &std::ffi::CStr, bytes: &[u8]) -> OwnedFd {
    let file = open_at(root, name, O_RDWR | O_CREAT | O_EXCL, 0o644).expect("creates");
    assert_eq!(write_at(&file, bytes, 0), Ok(bytes.len()));
    file
}

#[test]
fn handles_name_inodes_as_root() {
    on_each("handles", |lower, root| {
        let magic = filesystem_of(root).expect("statfs").magic;
        let known = [FsMagic::TMPFS, FsMagic::EXT, FsMagic::XFS, FsMagic::BTRFS];
        assert!(known.contains(&magic) && !magic.can_block(), "{}: {magic:?}", lower.kind);
        let file = create(root, c"file", b"content");
        let stat = stat_at(root, c"file").expect("stat");
        let (handle, mount_id) = handle_at(root, c"file").expect("has a handle");
        assert_eq!(handle.inode(magic), Some(stat.ino), "{}: {handle:?}", lower.kind);
        assert!(handle.generation(magic).is_some());
        assert_eq!(u64::try_from(mount_id).ok(), stat.mnt_id);
        let held = open_path_at(root, c"file").expect("O_PATH");
        assert_eq!(handle_of(&held).expect("has a handle").0, handle);

        let mount = reopen(root, O_RDONLY | O_DIRECTORY).expect("the root opens for reading");
        assert_eq!(open_by_handle(root, &handle, O_RDONLY).err(), Some(OsError::BADF), "an O_PATH mount");
        let generation = |inode| xfs_generation(&mount, inode);
        let is_xfs = magic == FsMagic::XFS;
        let known = if is_xfs { handle.generation(magic).ok_or(OsError::IO) } else { Err(OsError::NOTTY) };
        assert_eq!(generation(stat.ino), known, "{}", lower.kind);
        let again = open_by_handle(&mount, &handle, O_RDONLY).expect("opens by handle");
        let mut bytes = [0; 16];
        assert_eq!(read_at(&again, &mut bytes, 0), Ok(7));
        let path_only = open_by_handle(&mount, &handle, O_PATH).expect("opens O_PATH by handle");
        assert_eq!(stat_of(&path_only).expect("stat").ino, stat.ino);
        unlink_at(root, c"file").expect("unlinks");
        drop((file, held, again, path_only));
        // A neighbouring test that starts a program holds copies of our descriptors until it runs.
        let gone = || open_by_handle(&mount, &handle, O_RDONLY).err();
        let limit = Instant::now() + Duration::from_secs(10);
        while gone().is_none() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(gone(), Some(OsError::STALE), "{}", lower.kind);
        if is_xfs {
            for inode in [0, stat.ino, stat.ino + 1, 1 << 38, u64::MAX] {
                assert_eq!(generation(inode), Err(OsError::STALE), "{inode}");
            }
        }
        // A second inode with the same number has another handle.
        create(root, c"file", b"");
        assert_ne!(handle_at(root, c"file").expect("has a handle").0, handle);
        let (folder, _) = handle_of(root).expect("has a handle");
        assert_eq!(folder.inode(magic), Some(stat_of(root).expect("stat").ino));
        assert!(open_by_handle(&mount, &folder, O_PATH).is_ok());
    });
}

#[test]
fn attributes_change_through_o_path_as_root() {
    on_each("attributes", |_, root| {
        create(root, c"file", b"content");
        symlink_at(c"some/where", root, c"link").expect("symlink");
        let file = open_path_at(root, c"file").expect("O_PATH");
        let link = open_path_at(root, c"link").expect("O_PATH");
        chmod(&file, 0o4750).expect("chmod");
        chown(&file, Some(7), None).expect("chown");
        chown(&link, None, Some(8)).expect("chown");
        chmod(&file, 0o2750).expect("chmod");
        assert_eq!(chmod(&link, 0o600), Err(OsError::OPNOTSUPP));
        assert_eq!(chown(&file, Some(u32::MAX), None), Err(OsError::INVAL));
        let time = Time { secs: -1, nanos: 999_999_000 };
        let before = stat_of(&file).expect("stat");
        set_times(&file, TimeSet::Omit, TimeSet::At(time)).expect("utimensat");
        set_times(&link, TimeSet::At(time), TimeSet::Now).expect("utimensat");
        assert_eq!(
            set_times(&file, TimeSet::Now, TimeSet::At(Time { secs: 0, nanos: 0x3fff_ffff })),
            Err(OsError::INVAL)
        );
        let stat = stat_of(&file).expect("stat");
        assert_eq!((stat.mode, stat.uid, stat.gid), (0o10_2750, 7, 0));
        assert_eq!((stat.mtime, stat.atime), (time, before.atime));
        assert!(stat.is_file() && !stat.is_dir() && stat.btime.is_some());
        let stat = stat_of(&link).expect("stat");
        assert_eq!((stat.uid, stat.gid, stat.atime), (0, 8, time));
        assert!(stat.is_symlink() && stat.mtime > time);

        let mut target = [0; 64];
        assert_eq!(readlink_of(&link, &mut target), Ok(10));
        assert_eq!(&target[..10], b"some/where");
        assert_eq!(readlink_of(&link, &mut target[..4]), Ok(4));
        let open = reopen(&file, O_RDWR).expect("reopens");
        truncate(&open, 3).expect("truncates");
        assert_eq!(stat_of(&file).expect("stat").size, 3);
        assert_eq!(reopen(&link, O_RDONLY).err(), Some(OsError::LOOP));
        assert_eq!(open_at(root, c"link", O_RDONLY, 0).err(), Some(OsError::LOOP));
    });
}

#[test]
fn extended_attributes_work_through_o_path_as_root() {
    on_each("xattrs", |lower, root| {
        create(root, c"file", b"");
        symlink_at(c"file", root, c"link").expect("symlink");
        let file = open_path_at(root, c"file").expect("O_PATH");
        let link = open_path_at(root, c"link").expect("O_PATH");
        for (fd, name) in [(&file, c"trusted.shuntfs"), (&link, c"trusted.of-link")] {
            assert_eq!(get_xattr(fd, name, &mut [0; 8]), Err(OsError::NODATA), "{}", lower.kind);
            set_xattr(fd, name, b"value", 1).expect("creates");
            assert_eq!(set_xattr(fd, name, b"value", 1), Err(OsError::EXIST));
            let mut value = [0; 8];
            assert_eq!(get_xattr(fd, name, &mut []), Ok(5));
            assert_eq!(get_xattr(fd, name, &mut value[..3]), Err(OsError::RANGE));
            assert_eq!(get_xattr(fd, name, &mut value), Ok(5));
            assert_eq!(&value[..5], b"value");
            let mut names = [0; 64];
            assert_eq!(list_xattr(fd, &mut []), Ok(name.to_bytes_with_nul().len()));
            let len = list_xattr(fd, &mut names).expect("lists");
            assert_eq!(&names[..len], name.to_bytes_with_nul());
        }
        let mut names = [0; 64];
        remove_xattr(&file, c"trusted.shuntfs").expect("removes");
        assert_eq!(remove_xattr(&file, c"trusted.shuntfs"), Err(OsError::NODATA));
        assert_eq!(list_xattr(&file, &mut names), Ok(0));
        set_xattr(&file, c"trusted.empty", b"", 0).expect("creates");
        assert_eq!(get_xattr(&file, c"trusted.empty", &mut [0; 8]), Ok(0));
    });
}

#[test]
fn names_come_and_go_as_root() {
    on_each("names", |lower, root| {
        mkdir_at(root, c"folder", 0o755).expect("mkdir");
        let folder = open_path_at(root, c"folder").expect("O_PATH");
        let file = create(root, c"file", b"content");
        link_to(open_path_at(root, c"file").expect("O_PATH"), &folder, c"second").expect("links an O_PATH");
        assert_eq!(stat_of(&file).expect("stat").nlink, 2);
        assert_eq!(link_to(&file, &folder, c"second"), Err(OsError::EXIST));
        let hidden = tmpfile_at(root, O_RDWR, 0o600).expect("O_TMPFILE");
        assert_eq!(stat_of(&hidden).expect("stat").nlink, 0);
        link_to(&hidden, root, c"shown").expect("links a nameless file");
        assert_eq!(stat_at(root, c"shown").expect("stat").ino, stat_of(&hidden).expect("stat").ino);
        mknod_at(root, c"device", 0o02_0600, encode_dev(259, 70_000)).expect("mknod");
        mknod_at(root, c"fifo", 0o01_0600, 0).expect("mknod");
        let device = stat_at(root, c"device").expect("stat");
        assert_eq!(
            (device.mode, device.rdev),
            (0o02_0600, Device { major: 259, minor: 70_000 }),
            "{}",
            lower.kind
        );
        assert_eq!(rename_at(root, c"fifo", root, c"device", 1), Err(OsError::EXIST));
        rename_at(root, c"fifo", root, c"device", 2).expect("exchanges");
        assert_eq!(stat_at(root, c"device").expect("stat").mode, 0o01_0600);
        rename_at(root, c"file", &folder, c"second", 0).expect("both names are one file: nothing happens");
        assert_eq!(rmdir_at(root, c"folder"), Err(OsError::NOTEMPTY));
        assert_eq!(unlink_at(root, c"folder"), Err(OsError::ISDIR));
        unlink_at(&folder, c"second").expect("unlinks");
        rmdir_at(root, c"folder").expect("rmdir");
        let name = CString::new(vec![b'n'; 256]).expect("no NUL");
        assert_eq!(mkdir_at(root, &name, 0o755), Err(OsError::NAMETOOLONG));
    });
}

#[test]
fn listings_go_on_from_any_cookie_as_root() {
    on_each("listings", |lower, root| {
        mkdir_at(root, c"folder", 0o755).expect("mkdir");
        let folder = open_path_at(root, c"folder").expect("O_PATH");
        let names: BTreeSet<CString> = (0..2000)
            .map(|i| CString::new(format!("a name that is long enough {i}")).expect("no NUL"))
            .collect();
        for name in &names {
            mknod_at(&folder, name, 0o10_0600, 0).expect("creates");
        }
        let open = || DirReader::new(reopen(&folder, O_RDONLY | O_DIRECTORY).expect("opens"));
        let mut reader = open();
        let (mut listed, mut cookies) = (Vec::new(), Vec::new());
        let mut batches = 0;
        while reader.fill().expect("lists") {
            batches += 1;
            let ahead = reader.records().count();
            let mut seen = 0;
            while let Some(record) = reader.peek().expect("holds together") {
                let stat = stat_at(&folder, record.name).expect("stat");
                assert!(record.ino == stat.ino || record.name == c"..", "{}", lower.kind);
                listed.push(record.name.to_owned());
                cookies.push(record.next);
                reader.advance().expect("holds together");
                seen += 1;
            }
            assert_eq!(seen, ahead);
        }
        assert!(batches > 1, "the test needs more than one batch");
        let whole: BTreeSet<CString> = listed.iter().cloned().collect();
        assert_eq!(whole.len(), listed.len());
        assert_eq!(whole.len(), names.len() + 2);
        assert!(names.is_subset(&whole));

        // A new reader goes on where another stopped, and one that left half a batch refetches it.
        for stop in [0, 1, 700, 1999, listed.len() - 1] {
            let mut other = open();
            other.seek(cookies[stop]).expect("seeks");
            let more = other.fill().expect("lists");
            let next = other.peek().expect("holds together").map(|record| record.name.to_owned());
            assert_eq!(
                (more, next.as_ref()),
                (stop + 1 < listed.len(), listed.get(stop + 1)),
                "{}",
                lower.kind
            );
            other.fill().expect("lists");
            assert_eq!(other.peek().expect("holds together").map(|record| record.name.to_owned()), next);
        }
        reader.seek(0).expect("rewinds");
        assert!(reader.fill().expect("lists"));
        assert_eq!(
            reader.peek().expect("holds together").map(|record| record.name),
            Some(listed[0].as_c_str())
        );
    });
}

#[test]
fn bytes_and_holes_as_root() {
    on_each("data", |lower, root| {
        let bytes: Vec<u8> = (0..262_144_u32).map(|i| i.to_le_bytes()[0]).collect();
        let file = create(root, c"file", &bytes);
        sync_all(&file).expect("fsync");
        sync_data(&file).expect("fdatasync");
        sync_filesystem(&file).expect("syncfs");
        let mut room = vec![0; 100];
        match read_at_cached(&file, &mut room, 1) {
            Ok(len) => assert_eq!(&room[..len], &bytes[1..=len]),
            Err(error) => assert_eq!((error, lower.kind), (OsError::OPNOTSUPP, "tmpfs")),
        }
        // FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
        fallocate(&file, 3, 65_536, 65_536).expect("punches a hole");
        assert_eq!(seek_hole(&file, 0), Ok(65_536));
        assert_eq!(seek_data(&file, 65_536), Ok(131_072));
        assert_eq!(seek_data(&file, 262_144), Err(OsError::NXIO));
        assert_eq!(seek_data(&file, u64::MAX), Err(OsError::NXIO));
        assert_eq!(fallocate(&file, 1 << 20, 0, 1), Err(OsError::OPNOTSUPP));
        let copy = create(root, c"copy", b"");
        assert_eq!(copy_range(&file, 131_072, &copy, 5, 1000), Ok(1000));
        let mut room = vec![0; 2000];
        assert_eq!(read_at(&copy, &mut room, 5), Ok(1000));
        assert_eq!(room[..1000], bytes[131_072..132_072]);
        assert_eq!(read_at(&copy, &mut room, 1_000_000), Ok(0));

        let pipe = Pipe::new(65_536).expect("a pipe");
        assert!(pipe.capacity() >= 65_536);
        let moved = splice_to_pipe(&file, Some(131_072), &pipe, 10_000).expect("splices");
        assert!(moved > 0);
        assert_eq!(splice_from_pipe(&pipe, &copy, Some(0), moved), Ok(moved));
        assert_eq!(splice_from_pipe(&pipe, &copy, Some(0), moved), Err(OsError::AGAIN));
        let copy = File::from(copy);
        let mut room = vec![0; moved];
        copy.read_exact_at(&mut room, 0).expect("reads");
        assert_eq!(room, bytes[131_072..131_072 + moved]);
        splice_to_pipe(&file, Some(0), &pipe, 5000).expect("splices");
        let (mut head, mut rest) = ([0; 100], [0; 8192]);
        let pieces = &mut [IoSliceMut::new(&mut head), IoSliceMut::new(&mut rest)];
        assert_eq!(pipe.read(pieces), Ok(5000), "read across pieces");
        assert_eq!(pipe.read(pieces), Ok(0), "empty");
        assert_eq!(splice_from_pipe(&pipe, &copy, Some(0), 1), Err(OsError::AGAIN));
    });
}

#[test]
fn attribute_ioctls_reach_the_lower_file_as_root() {
    if !is_privileged("ioctls") {
        return;
    }
    let _limit = TimeLimit::start();
    let Some(lower) = Lower::make("ext4") else { return };
    let root = open_folder(lower.path()).expect("opens");
    let file = create(&root, c"file", b"");
    const NODUMP: u32 = 0x40;
    let mut flags = [0; 8];
    assert_eq!(file_ioctl(&file, 0x8008_6601, &mut flags), Ok(0));
    let held = flags.first_chunk().map(|flags| u32::from_ne_bytes(*flags)).expect("four bytes");
    let mut wanted = (held | NODUMP).to_ne_bytes();
    assert_eq!(file_ioctl(&file, 0x4008_6602, &mut wanted), Ok(0));
    let mut flags = [0; 4];
    assert_eq!(file_ioctl(&file, 0x8004_6601, &mut flags), Ok(0));
    assert_eq!(u32::from_ne_bytes(flags), held | NODUMP);
    // FS_XFLAG_NODUMP
    let mut fsxattr = [0; 28];
    assert_eq!(file_ioctl(&file, 0x801c_581f, &mut fsxattr), Ok(0));
    assert_ne!(fsxattr[0] & 0x80, 0);
    let held = open_path_at(&root, c"file").expect("O_PATH");
    assert_eq!(file_ioctl(&held, 0x801c_581f, &mut fsxattr), Err(OsError::BADF));
}

#[test]
fn descriptors_are_close_on_exec() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = open_folder(folder.path()).expect("opens");
    let file = create(&root, c"file", b"");
    let pipe = Pipe::new(4096).expect("a pipe");
    let fds = [
        &reopen(&file, O_RDONLY).expect("reopens"),
        &open_path_at(&root, c"file").expect("O_PATH"),
        &shuntfs_sys::open::duplicate(&file).expect("duplicates"),
        &tmpfile_at(&root, O_RDWR, 0o600).unwrap_or_else(|_| file.try_clone().expect("duplicates")),
        &root,
        &file,
    ];
    for fd in fds {
        assert!(rustix::io::fcntl_getfd(fd).expect("is open").contains(rustix::io::FdFlags::CLOEXEC));
    }
    for fd in [pipe.reader(), pipe.writer()] {
        assert!(rustix::io::fcntl_getfd(fd).expect("is open").contains(rustix::io::FdFlags::CLOEXEC));
    }
    assert_eq!(
        fs::metadata(folder.path().join("file")).expect("is there").ino(),
        stat_of(&file).expect("stat").ino
    );
}

/// A server may lock itself into its source; what is held by descriptors must go on.
#[test]
fn descriptors_work_in_a_root_without_procfs_as_root() {
    if !is_privileged("chroot") {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
    let root = open_folder(folder.path()).expect("opens");
    create(&root, c"file", b"content");
    let held = open_path_at(&root, c"file").expect("O_PATH");
    let first = reopen(&held, O_RDONLY).expect("reopens");
    set_xattr(&held, c"trusted.shuntfs", b"value", 0).expect("sets");
    on_own_thread(|| {
        shuntfs_sys::prepare_thread().expect("has a root of its own from here on");
        rustix::process::chroot(folder.path()).expect("chroot");
        assert_eq!(fs::metadata("/proc").map_err(|error| error.kind()).err(), Some(ErrorKind::NotFound));
        let second = reopen(&held, O_RDONLY).expect("reopens");
        assert_eq!(stat_of(second), stat_of(&first));
        if shuntfs_sys::kernel::kernel_version() >= (6, 13) {
            assert_eq!(get_xattr(&held, c"trusted.shuntfs", &mut []), Ok(5));
        }
    });
}
