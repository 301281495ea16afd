//! Operations on nodes, and those of the connection as a whole.

use shuntfs_wire::{GetattrFlags, NodeId, Op, SetattrValid, SetxattrFlags};

use crate::frames::all;
use crate::request;

#[test]
fn getattr_and_statx() {
    request("GETATTR.bin", |request| {
        let Op::Getattr(arg) = request.op else { panic!("{request:?}") };
        assert_eq!((arg.getattr_flags, arg.fh, arg.dummy), (GetattrFlags::empty(), 0, 0));
    });
    request("STATX.bin", |request| {
        let Op::Statx(arg) = request.op else { panic!("{request:?}") };
        // STATX_BASIC_STATS and STATX_BTIME.
        assert_eq!((arg.getattr_flags, arg.sx_flags, arg.sx_mask), (GetattrFlags::empty(), 0, 0xfff));
    });
}

#[test]
fn setattr() {
    request("SETATTR.bin", |request| {
        let Op::Setattr(arg) = request.op else { panic!("{request:?}") };
        assert_eq!((arg.valid, arg.mode), (SetattrValid::MODE, 0o100_600));
    });
    request("SETATTR-2.bin", |request| {
        let Op::Setattr(arg) = request.op else { panic!("{request:?}") };
        assert_eq!(arg.valid, SetattrValid::SIZE | SetattrValid::FH | SetattrValid::LOCKOWNER);
        assert_eq!(arg.size, 20);
        assert!(arg.fh != 0 && arg.lock_owner != 0);
    });
    request("SETATTR-3.bin", |request| {
        let Op::Setattr(arg) = request.op else { panic!("{request:?}") };
        assert_eq!((arg.valid, arg.mtime, arg.mtimensec), (SetattrValid::MTIME, 1_000_000_000, 5));
        assert_eq!((arg.atime, arg.atimensec), (0, 0));
    });
}

#[test]
fn extended_attributes() {
    for (file, expected, flags, expected_value) in
        [("SETXATTR.bin", c"user.one", 1, b"first".as_slice()), ("SETXATTR-2.bin", c"user.two", 0, b"")]
    {
        request(file, |request| {
            let Op::Setxattr { arg, name, value } = request.op else { panic!("{request:?}") };
            assert_eq!((name, value, arg.flags), (expected, expected_value, flags), "{file}");
            assert_eq!(arg.setxattr_flags, SetxattrFlags::empty());
        });
    }
    for (file, expected, size) in [
        ("GETXATTR.bin", c"security.capability", 0),
        ("GETXATTR-2.bin", c"user.one", 100),
        ("GETXATTR-3.bin", c"user.two", 0),
    ] {
        request(file, |request| {
            let Op::Getxattr { arg, name } = request.op else { panic!("{request:?}") };
            assert_eq!((name, arg.size), (expected, size), "{file}");
        });
    }
    for (file, size) in [("LISTXATTR.bin", 0), ("LISTXATTR-2.bin", 100)] {
        request(file, |request| {
            let Op::Listxattr(arg) = request.op else { panic!("{request:?}") };
            assert_eq!(arg.size, size, "{file}");
        });
    }
    for (file, expected) in [("REMOVEXATTR.bin", c"user.one"), ("REMOVEXATTR-2.bin", c"user.two")] {
        request(file, |request| {
            let Op::Removexattr { name } = request.op else { panic!("{request:?}") };
            assert_eq!(name, expected, "{file}");
        });
    }
}

#[test]
fn access() {
    // R_OK with W_OK, X_OK.
    for (file, node, mask) in [("ACCESS.bin", 2, 6), ("ACCESS-2.bin", 1, 1)] {
        request(file, |request| {
            let Op::Access(arg) = request.op else { panic!("{request:?}") };
            assert_eq!((request.header.nodeid, arg.mask), (node, mask), "{file}");
        });
    }
}

#[test]
fn operations_without_arguments() {
    for (file, node, op) in [
        ("READLINK.bin", 6, Op::Readlink),
        ("READLINK-2.bin", 7, Op::Readlink),
        ("STATFS.bin", 1, Op::Statfs),
        ("STATFS-2.bin", 2, Op::Statfs),
    ] {
        request(file, |request| assert_eq!((request.header.nodeid, request.op), (node, op), "{file}"));
    }
}

#[test]
fn forgets() {
    request("FORGET.bin", |request| {
        let Op::Forget(arg) = request.op else { panic!("{request:?}") };
        assert_eq!(arg.nlookup, 1);
        assert!(request.header.node().is_some_and(|node| node != NodeId::ROOT));
    });
    // How many come together is a matter of time, and so is the number of files.
    for (file, _) in all().into_iter().filter(|(file, _)| file.starts_with("BATCH_FORGET")) {
        request(&file, |request| {
            let Op::BatchForget(records) = request.op else { panic!("{request:?}") };
            assert_eq!(request.header.node(), None, "the nodes are in the records");
            assert!(records.len() >= 2, "one alone comes as FORGET");
            for record in records {
                assert!(record.node().is_some_and(|node| node != NodeId::ROOT), "{record:?}");
                assert!((1..10).contains(&record.lookups().0), "{record:?}");
            }
        });
    }
}

#[test]
fn notify_reply() {
    request("NOTIFY_REPLY.bin", |request| {
        let Op::NotifyReply { arg, data } = request.op else { panic!("{request:?}") };
        // The numbers that RETRIEVE was sent with.
        assert_eq!((request.header.unique, request.header.nodeid), (7, 2));
        assert_eq!((arg.offset, arg.size), (0, 64));
        assert!(data.starts_with(b"Hello, kernel!\n\0"), "{data:?}");
    });
}
