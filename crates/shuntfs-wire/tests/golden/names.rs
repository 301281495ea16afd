//! Operations on names.

use shuntfs_wire::{Op, OpenInFlags, Request};

use crate::request;

/// Whether a creation carries the group of the folder, and a security context that counts none.
fn has_group(request: &Request<'_>) -> bool {
    let extensions = request.extensions;
    assert_eq!(request.header.total_extlen, 3, "8 bytes of contexts and 16 of groups");
    assert_eq!(extensions.security_contexts(), b"");
    extensions.groups().collect::<Vec<_>>() == [2000] && extensions.supplementary_group() == Some(2000)
}

#[test]
fn lookup() {
    for (file, expected) in [("LOOKUP.bin", "file"), ("LOOKUP-2.bin", "other"), ("LOOKUP-3.bin", "folder")] {
        request(file, |request| {
            assert_eq!(request.header.nodeid, 1, "{file}");
            assert_eq!(request.extensions.supplementary_group(), None, "{file}");
            let Op::Lookup { name } = request.op else { panic!("{request:?}") };
            assert_eq!(name.as_bytes(), expected.as_bytes(), "{file}");
        });
    }
}

#[test]
fn create() {
    for (file, expected, expected_mode) in [("CREATE.bin", "file", 0o644), ("CREATE-2.bin", "other", 0o600)] {
        request(file, |request| {
            assert!(has_group(&request), "{request:?}");
            let Op::Create { arg, name } = request.op else { panic!("{request:?}") };
            assert_eq!(name.as_bytes(), expected.as_bytes());
            assert_eq!((arg.mode, arg.umask), (0o100_000 | expected_mode, 0o022));
            assert_eq!(arg.open_flags, OpenInFlags::empty());
            // O_RDWR, O_CREAT, O_EXCL, O_LARGEFILE.
            assert_eq!(arg.flags, 0o2 | 0o100 | 0o200 | 0o100_000);
        });
    }
}

#[test]
fn tmpfile() {
    request("TMPFILE.bin", |request| {
        assert!(has_group(&request), "{request:?}");
        let Op::Tmpfile { arg } = request.op else { panic!("{request:?}") };
        assert_eq!((arg.mode, arg.umask), (0o100_640, 0o022));
        // O_TMPFILE, which has O_DIRECTORY in it.
        assert_eq!(arg.flags & 0o20_200_000, 0o20_200_000);
    });
}

#[test]
fn mknod() {
    for (file, expected, mode, rdev) in
        [("MKNOD.bin", "pipe", 0o10_640, 0), ("MKNOD-2.bin", "device", 0o20_640, 5 << 8 | 1)]
    {
        request(file, |request| {
            assert!(has_group(&request), "{request:?}");
            let Op::Mknod { arg, name } = request.op else { panic!("{request:?}") };
            assert_eq!(name.as_bytes(), expected.as_bytes());
            assert_eq!((arg.mode, arg.rdev, arg.umask), (mode, rdev, 0o022));
        });
    }
}

#[test]
fn mkdir() {
    for (file, expected) in [("MKDIR.bin", "folder"), ("MKDIR-2.bin", "inner"), ("MKDIR-3.bin", "last")] {
        request(file, |request| {
            let Op::Mkdir { arg, name } = request.op else { panic!("{request:?}") };
            assert_eq!(name.as_bytes(), expected.as_bytes());
            assert_eq!((arg.mode, arg.umask), (0o777, 0o022));
        });
    }
    assert!(request("MKDIR.bin", |request| has_group(&request)));
}

#[test]
fn symlink() {
    for (file, expected) in [("SYMLINK.bin", c"file"), ("SYMLINK-2.bin", c"../some/where")] {
        request(file, |request| {
            let Op::Symlink { name, target } = request.op else { panic!("{request:?}") };
            assert_eq!((name.as_bytes(), target), (b"link".as_slice(), expected));
        });
    }
    assert!(request("SYMLINK.bin", |request| has_group(&request)));
}

#[test]
fn link() {
    for (file, expected, node) in [("LINK.bin", "second name", 2), ("LINK-2.bin", "third name", 3)] {
        request(file, |request| {
            let Op::Link { arg, name } = request.op else { panic!("{request:?}") };
            assert_eq!((name.as_bytes(), arg.oldnodeid), (expected.as_bytes(), node));
        });
    }
}

#[test]
fn unlink_and_rmdir() {
    for (file, expected) in [("UNLINK.bin", "device"), ("UNLINK-2.bin", "moved")] {
        request(file, |request| {
            let Op::Unlink { name } = request.op else { panic!("{request:?}") };
            assert_eq!(name.as_bytes(), expected.as_bytes());
        });
    }
    for (file, expected) in [("RMDIR.bin", "inner"), ("RMDIR-2.bin", "last")] {
        request(file, |request| {
            let Op::Rmdir { name } = request.op else { panic!("{request:?}") };
            assert_eq!(name.as_bytes(), expected.as_bytes());
        });
    }
}

#[test]
fn rename_and_rename2() {
    for (file, old, new, folder) in [("RENAME.bin", "link", "moved", 4), ("RENAME-2.bin", "pipe", "fifo", 1)]
    {
        request(file, |request| {
            let Op::Rename { arg, name, new_name } = request.op else { panic!("{request:?}") };
            assert_eq!((name.as_bytes(), new_name.as_bytes()), (old.as_bytes(), new.as_bytes()));
            assert_eq!(arg.newdir, folder);
        });
    }
    // RENAME_NOREPLACE, RENAME_EXCHANGE.
    for (file, new, folder, flags) in [("RENAME2.bin", "fifo", 4, 1), ("RENAME2-2.bin", "device", 1, 2)] {
        request(file, |request| {
            let Op::Rename2 { arg, name, new_name } = request.op else { panic!("{request:?}") };
            assert_eq!((name.as_bytes(), new_name.as_bytes()), (b"fifo".as_slice(), new.as_bytes()));
            assert_eq!((arg.newdir, arg.flags), (folder, flags));
        });
    }
}
