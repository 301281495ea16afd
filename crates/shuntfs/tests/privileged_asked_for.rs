//! What a file system has only where it asks for it: handles that last, polls, writeback caching, what the kernel has cached.
//! Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere it says so and passes.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::shelf::{Shelf, State};
use common::{Mounted, on_each_transport};
use shuntfs::{
    MountError, MountOptions, NodeId, NotifyError, OpSet, Opcode, Reason, Session, SessionOptions, Wanted,
};
use shuntfs_sys::event::wait_readable;
use shuntfs_sys::{OsError, handle_of, open_by_handle};

const CREATE_AND_OPEN: OpSet = OpSet::CREATE.union(OpSet::OPEN);

fn mounted(state: &Arc<State>, wanted: Wanted, options: &SessionOptions) -> Mounted {
    Mounted::new(Shelf { state: Arc::clone(state), wanted }, options)
}

fn with_ops(ops: OpSet) -> Wanted {
    Wanted { ops: Some(CREATE_AND_OPEN | ops), ..Wanted::default() }
}

/// What NFS needs: a handle is good when the kernel has dropped the inode, and when the file system was mounted again.
#[test]
fn handles_outlive_the_mount() {
    on_each_transport(|options| {
        let state = State::new();
        let first = mounted(&state, with_ops(OpSet::EXPORT), options);
        fs::create_dir_all(first.join("a/b")).unwrap();
        fs::write(first.join("a/b/file"), "deep").unwrap();
        fs::write(first.join("a/other"), "other").unwrap();
        let handle = |path: &str| handle_of(File::open(first.join(path)).unwrap()).unwrap().0;
        let (file, folder, other) = (handle("a/b/file"), handle("a/b"), handle("a/other"));
        let root = File::open(first.path()).unwrap();
        let mut read = String::new();
        File::from(open_by_handle(&root, &file, 0).unwrap()).read_to_string(&mut read).unwrap();
        assert_eq!(read, "deep");
        drop(root);
        first.end();

        let second = mounted(&state, with_ops(OpSet::EXPORT), options);
        let root = File::open(second.path()).unwrap();
        let mut read = String::new();
        File::from(open_by_handle(&root, &file, 0).unwrap()).read_to_string(&mut read).unwrap();
        assert_eq!(read, "deep");
        assert_eq!(second.session().status().requests(Opcode::Lookup), 1, "by its number alone");
        // The kernel wants to know where a folder is: it asks for "..", and lists the parent.
        let opened = File::from(open_by_handle(&root, &folder, 0o200_000).unwrap());
        assert_eq!(opened.metadata().unwrap().ino(), fs::metadata(second.join("a/b")).unwrap().ino());
        assert_eq!(fs::read_to_string(second.join("a/b/file")).unwrap(), "deep");
        // Another file has the number now.
        let node = NodeId::new(fs::metadata(second.join("a/other")).unwrap().ino()).unwrap();
        drop((root, opened));
        second.end();
        state.replace(node);
        let third = mounted(&state, with_ops(OpSet::EXPORT), options);
        let root = File::open(third.path()).unwrap();
        assert_eq!(open_by_handle(&root, &other, 0).err(), Some(OsError::STALE));
        assert!(open_by_handle(&root, &file, 0).is_ok());
        drop(root);
        third.end();
    });
}

#[test]
fn handles_end_with_the_mount_where_nobody_asked() {
    on_each_transport(|options| {
        let state = State::new();
        let first = mounted(&state, with_ops(OpSet::empty()), options);
        fs::write(first.join("file"), "text").unwrap();
        let (file, _) = handle_of(File::open(first.join("file")).unwrap()).unwrap();
        first.end();
        let second = mounted(&state, with_ops(OpSet::empty()), options);
        let root = File::open(second.path()).unwrap();
        assert_eq!(open_by_handle(&root, &file, 0).err(), Some(OsError::STALE));
        assert_eq!(second.session().status().requests(Opcode::Lookup), 0);
        drop(root);
        second.end();
    });
}

#[test]
fn who_polls_is_told_when_something_is_there() {
    on_each_transport(|options| {
        let state = State::new();
        let mounted = mounted(&state, with_ops(OpSet::POLL), options);
        fs::write(mounted.join("file"), "text").unwrap();
        let file = File::open(mounted.join("file")).unwrap();
        assert_eq!(wait_readable(&[file.as_fd()], Some(Duration::ZERO)), Ok(false));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait_readable(&[file.as_fd()], Some(Duration::from_secs(30))));
            let limit = Instant::now() + Duration::from_secs(30);
            let waiter = loop {
                if let Some(waiter) = state.waiter.lock().take() {
                    break waiter;
                }
                assert!(Instant::now() < limit, "nobody waits");
                std::thread::sleep(Duration::from_millis(1));
            };
            state.ready.store(true, Ordering::SeqCst);
            mounted.session().notifier().poll(waiter).unwrap();
            assert_eq!(waits.join().unwrap(), Ok(true));
        });
        assert_eq!(wait_readable(&[file.as_fd()], Some(Duration::ZERO)), Ok(true));
        assert!(mounted.session().status().requests(Opcode::Poll) >= 3);
        drop(file);
        mounted.end();
    });
}

#[test]
fn without_poll_every_file_is_ready() {
    on_each_transport(|options| {
        let state = State::new();
        let mounted = mounted(&state, with_ops(OpSet::empty()), options);
        fs::write(mounted.join("file"), "text").unwrap();
        let file = File::open(mounted.join("file")).unwrap();
        for _ in 0..2 {
            assert_eq!(wait_readable(&[file.as_fd()], Some(Duration::ZERO)), Ok(true));
        }
        assert_eq!(mounted.session().status().requests(Opcode::Poll), 1, "asked once");
        drop(file);
        mounted.end();
    });
}

#[test]
fn small_writes_are_gathered_where_that_was_asked_for() {
    const WRITES: u64 = 1000;
    on_each_transport(|options| {
        for writeback_cache in [false, true] {
            let state = State::new();
            let wanted = Wanted { writeback_cache, ..with_ops(OpSet::empty()) };
            let mounted = mounted(&state, wanted, options);
            // Sixteen bytes each, so that no write spans two pages, which would be two requests.
            let mut file = File::create_new(mounted.join("file")).unwrap();
            for index in 0..WRITES {
                file.write_all(format!("{index:015}\n").as_bytes()).unwrap();
            }
            file.sync_all().unwrap();
            let mut appended = File::options().append(true).open(mounted.join("file")).unwrap();
            appended.write_all(b"end").unwrap();
            drop((file, appended));
            let node = NodeId::new(fs::metadata(mounted.join("file")).unwrap().ino()).unwrap();
            let expected: String = (0..WRITES).map(|index| format!("{index:015}\n")).collect();
            assert_eq!(state.bytes(node), format!("{expected}end").as_bytes());
            let status = mounted.session().status();
            let writes = status.requests(Opcode::Write);
            if writeback_cache {
                assert!(writes < WRITES / 10, "{writes}");
                assert_eq!(status.negotiated.passthrough_off, Some(Reason::Writeback));
            } else {
                assert_eq!(writes, WRITES + 1);
            }
            let failed = ["READ", "WRITE", "SETATTR"].map(|op| status.ops.get(op).map_or(0, |op| op.errors));
            assert_eq!(failed, [0; 3]);
            mounted.end();
        }
    });
}

#[test]
fn what_the_kernel_has_cached_comes_back() {
    on_each_transport(|options| {
        let state = State::new();
        let mounted = mounted(&state, with_ops(OpSet::empty()), options);
        let bytes: Vec<u8> = (0..20_000_u32).map(|index| (index % 251) as u8).collect();
        fs::write(mounted.join("file"), &bytes).unwrap();
        let file = File::open(mounted.join("file")).unwrap();
        let mut seen = vec![0; bytes.len()];
        file.read_exact_at(&mut seen, 0).unwrap();
        let node = NodeId::new(file.metadata().unwrap().ino()).unwrap();
        let notifier = mounted.session().notifier();
        if mounted.session().status().transport.kind == "uring" {
            assert_eq!(notifier.retrieve(node, 0, 1), Err(NotifyError::Unsupported));
            drop(file);
            mounted.end();
            return;
        }
        assert_eq!(notifier.retrieve(node, 0, 20_000).unwrap(), bytes);
        assert_eq!(notifier.retrieve(node, 5000, 100).unwrap(), bytes[5000..5100]);
        notifier.store(node, 4096, b"stored").unwrap();
        assert_eq!(notifier.retrieve(node, 4096, 8).unwrap(), [b"stored", &bytes[4102..4104]].concat());
        file.read_exact_at(&mut seen[..6], 4096).unwrap();
        assert_eq!(&seen[..6], b"stored");
        let unknown = NodeId::new(1 << 40).unwrap();
        assert_eq!(notifier.retrieve(unknown, 0, 10), Err(NotifyError::Unknown));
        drop(file);
        assert_eq!(mounted.session().status().malformed, 0);
        mounted.end();
        assert_eq!(notifier.retrieve(node, 0, 1), Err(NotifyError::Ended));
    });
}

#[test]
fn locks_that_no_close_would_end_are_refused_before_anything_is_mounted() {
    on_each_transport(|options| {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf { state: State::new(), wanted: Wanted::default() };
        let refused = Session::mount(Arc::new(shelf), folder.path(), &MountOptions::default(), options);
        let error = refused.err().unwrap();
        assert!(matches!(error, MountError::Disagreed(_)), "{error}");
        assert!(error.to_string().contains("POSIX_LOCKS"), "{error}");
        assert!(!common::is_mounted(folder.path()));
    });
}
