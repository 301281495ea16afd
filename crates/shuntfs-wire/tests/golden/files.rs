//! Operations on open files and folders.

use shuntfs_wire::{
    FsyncFlags, IoctlFlags, LkFlags, Op, OpenInFlags, PollFlags, ReadFlags, ReleaseFlags, WriteFlags, abi,
};

use crate::request;

const LARGEFILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o200_000;
const NONBLOCK: u32 = 0o4_000;
const CLOEXEC: u32 = 0o2_000_000;

#[test]
fn open_and_opendir() {
    // Read and write, read, read past the cache.
    for (file, flags) in [("OPEN.bin", 2), ("OPEN-2.bin", 0), ("OPEN-3.bin", 0o40_000)] {
        request(file, |request| {
            let Op::Open(arg) = request.op else { panic!("{request:?}") };
            assert_eq!(arg.flags & !CLOEXEC, flags | LARGEFILE, "{file}");
            assert_eq!(arg.open_flags, OpenInFlags::empty());
        });
    }
    for (file, flags) in [("OPENDIR.bin", DIRECTORY | NONBLOCK), ("OPENDIR-2.bin", 0)] {
        request(file, |request| {
            let Op::Opendir(arg) = request.op else { panic!("{request:?}") };
            assert_eq!(arg.flags & !CLOEXEC, flags | LARGEFILE, "{file}");
        });
    }
}

#[test]
fn read() {
    request("READ.bin", |request| {
        let Op::Read(arg) = request.op else { panic!("{request:?}") };
        assert_eq!((arg.fh, arg.offset, arg.size, arg.read_flags), (5, 0, 8192, ReadFlags::empty()));
        assert_eq!(arg.flags, LARGEFILE);
    });
    request("READ-2.bin", |request| {
        let Op::Read(arg) = request.op else { panic!("{request:?}") };
        assert_eq!((arg.fh, arg.offset, arg.size), (6, 4010, 64));
        assert_eq!(arg.read_flags, ReadFlags::LOCKOWNER);
        assert_ne!(arg.lock_owner, 0);
    });
}

#[test]
fn write() {
    let rest = [0xa5; 100];
    // The kernel splits at the end of a page.
    for (file, offset, data) in [
        ("WRITE.bin", 0, b"Hello, kernel!\n".as_slice()),
        ("WRITE-2.bin", 4000, &rest[..96]),
        ("WRITE-3.bin", 4096, &rest[..4]),
    ] {
        request(file, |request| {
            let Op::Write { arg, data: written } = request.op else { panic!("{request:?}") };
            assert_eq!((arg.offset, arg.size as usize, written), (offset, data.len(), data), "{file}");
            assert_eq!((arg.write_flags, arg.flags), (WriteFlags::empty(), LARGEFILE | 2));
        });
    }
}

#[test]
fn listings() {
    for (file, node, offset) in [("READDIR.bin", 1, 3), ("READDIR-2.bin", 1, 4), ("READDIR-3.bin", 4, 3)] {
        request(file, |request| {
            let Op::Readdir(arg) = request.op else { panic!("{request:?}") };
            assert_eq!((request.header.nodeid, arg.offset, arg.size), (node, offset, 32_768), "{file}");
        });
    }
    for (file, node) in [("READDIRPLUS.bin", 1), ("READDIRPLUS-2.bin", 4)] {
        request(file, |request| {
            let Op::Readdirplus(arg) = request.op else { panic!("{request:?}") };
            assert_eq!((request.header.nodeid, arg.offset, arg.size), (node, 0, 32_768), "{file}");
        });
    }
}

#[test]
fn flush_and_release() {
    for (file, node, fh) in [("FLUSH.bin", 2, 1), ("FLUSH-2.bin", 3, 2)] {
        request(file, |request| {
            let Op::Flush(arg) = request.op else { panic!("{request:?}") };
            assert_eq!((request.header.nodeid, arg.fh), (node, fh));
            assert_ne!(arg.lock_owner, 0);
        });
    }
    for (file, node, fh) in [("RELEASE.bin", 2, 1), ("RELEASE-2.bin", 3, 2)] {
        request(file, |request| {
            let Op::Release(arg) = request.op else { panic!("{request:?}") };
            assert_eq!((request.header.nodeid, arg.fh), (node, fh));
            assert_eq!((arg.flags, arg.release_flags), (LARGEFILE | 2, ReleaseFlags::empty()));
        });
    }
    request("RELEASEDIR.bin", |request| {
        let Op::Releasedir(arg) = request.op else { panic!("{request:?}") };
        assert_eq!((request.header.nodeid, arg.flags & DIRECTORY), (1, DIRECTORY));
    });
}

#[test]
fn fsync_and_fsyncdir() {
    for (file, flags) in [
        ("FSYNC.bin", FsyncFlags::empty()),
        ("FSYNC-2.bin", FsyncFlags::FDATASYNC),
        ("FSYNCDIR.bin", FsyncFlags::empty()),
        ("FSYNCDIR-2.bin", FsyncFlags::FDATASYNC),
    ] {
        request(file, |request| {
            let (Op::Fsync(arg) | Op::Fsyncdir(arg)) = request.op else { panic!("{request:?}") };
            assert_eq!(arg.fsync_flags, flags, "{file}");
            assert_ne!(arg.fh, 0);
        });
    }
}

#[test]
fn locks() {
    let end = abi::LOCK_END_OF_FILE;
    // F_RDLCK 0, F_WRLCK 1, F_UNLCK 2.
    for (file, kind, range, flags) in [
        ("GETLK.bin", 1, (0, end), LkFlags::empty()),
        ("GETLK-2.bin", 1, (100, 149), LkFlags::empty()),
        ("SETLK.bin", 1, (0, end), LkFlags::empty()),
        ("SETLKW.bin", 1, (0, end), LkFlags::empty()),
        ("SETLKW-2.bin", 2, (0, end), LkFlags::empty()),
        ("SETLKW-3.bin", 0, (0, end), LkFlags::FLOCK),
    ] {
        request(file, |request| {
            let (Op::Getlk(arg) | Op::Setlk(arg) | Op::Setlkw(arg)) = request.op else {
                panic!("{request:?}")
            };
            assert_eq!((arg.lk.r#type, (arg.lk.start, arg.lk.end)), (kind, range), "{file}");
            assert_eq!(arg.lk_flags, flags, "{file}");
            assert_ne!(arg.owner, 0, "{file}");
        });
    }
}

#[test]
fn ioctl() {
    // FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_SETFLAGS.
    for (file, cmd, in_out, data) in [
        ("IOCTL.bin", 0x8008_6601, (0, 4), b"".as_slice()),
        ("IOCTL-2.bin", 0x801c_581f, (0, 28), b""),
        ("IOCTL-3.bin", 0x4008_6602, (4, 0), &[0x40, 0, 0, 0]),
    ] {
        request(file, |request| {
            let Op::Ioctl { arg, data: given } = request.op else { panic!("{request:?}") };
            assert_eq!((arg.cmd, (arg.in_size, arg.out_size), given), (cmd, in_out, data), "{file}");
            assert_eq!(arg.flags, IoctlFlags::empty());
        });
    }
}

#[test]
fn poll() {
    // What was asked for, and POLLERR and POLLHUP, which are always meant.
    for (file, events) in [("POLL.bin", 0x19), ("POLL-2.bin", 0x1f)] {
        request(file, |request| {
            let Op::Poll(arg) = request.op else { panic!("{request:?}") };
            assert_eq!((arg.flags, arg.events), (PollFlags::SCHEDULE_NOTIFY, events), "{file}");
            assert_ne!(arg.kh, 0);
        });
    }
}

#[test]
fn ranges() {
    // 3 is FALLOC_FL_PUNCH_HOLE with FALLOC_FL_KEEP_SIZE.
    for (file, offset, length, mode) in [("FALLOCATE.bin", 8192, 4096, 0), ("FALLOCATE-2.bin", 100, 200, 3)] {
        request(file, |request| {
            let Op::Fallocate(arg) = request.op else { panic!("{request:?}") };
            assert_eq!((arg.offset, arg.length, arg.mode), (offset, length, mode), "{file}");
        });
    }
    // SEEK_DATA, SEEK_HOLE.
    for (file, offset, whence) in [("LSEEK.bin", 10, 3), ("LSEEK-2.bin", 20, 4)] {
        request(file, |request| {
            let Op::Lseek(arg) = request.op else { panic!("{request:?}") };
            assert_eq!((arg.offset, arg.whence), (offset, whence), "{file}");
        });
    }
    for (file, off_in, off_out, len) in [
        ("COPY_FILE_RANGE_64.bin", 5, 1000, 50),
        ("COPY_FILE_RANGE.bin", 5, 1000, 50),
        ("COPY_FILE_RANGE-2.bin", 55, 1050, 60),
    ] {
        request(file, |request| {
            let (Op::CopyFileRange(arg) | Op::CopyFileRange64(arg)) = request.op else {
                panic!("{request:?}")
            };
            assert_eq!((request.header.nodeid, arg.nodeid_out, arg.flags), (2, 3, 0));
            assert_eq!((arg.off_in, arg.off_out, arg.len), (off_in, off_out, len), "{file}");
            assert_ne!(arg.fh_in, arg.fh_out);
        });
    }
}
