//! Mounts that end well, badly, and never begin. Needs CAP_SYS_ADMIN and /dev/fuse.

mod common;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::odd::Odd;
use common::{Mounted, can_mount, is_mounted, on_each_transport, options};
use shuntfs::{
    Attr, AttrReply, Cx, FileType, Filesystem, MountError, MountOptions, NodeId, Session, SessionOptions,
    Transport, TransportKind, UnmountError,
};
use shuntfs_testkit::bare;
use shuntfs_testkit::supervisor::Supervisor;

fn mount(path: &Path, options: &SessionOptions) -> Result<Session, MountError> {
    Session::mount(Arc::new(Odd::default()), path, &MountOptions::default(), options)
}

#[test]
fn a_busy_mount_says_so_and_stays() {
    on_each_transport(|options| {
        let mounted = Mounted::new(Odd::default(), options);
        let open = File::open(mounted.join("f")).unwrap();
        assert!(matches!(mounted.session().unmount(), Err(UnmountError::Busy { .. })));
        assert!(is_mounted(mounted.path()));
        assert!(fs::metadata(mounted.join("f")).is_ok());
        drop(open);
        // The close's RELEASE is in the background, but the mount is free at once.
        mounted.end();
    });
}

#[test]
fn a_detached_mount_serves_what_is_open() {
    on_each_transport(|options| {
        let mounted = Mounted::new(Odd::default(), options);
        let open = File::open(mounted.join("f")).unwrap();
        mounted.session().unmount_lazily().unwrap();
        assert!(!is_mounted(mounted.path()));
        assert!(open.metadata().is_ok());
        drop(open);
        mounted.session().wait();
        mounted.session().unmount().unwrap();
    });
}

/// The kernel would answer EIO to everything. It is refused before anything is mounted.
#[test]
fn a_folder_is_not_mounted_over_a_file() {
    on_each_transport(|options| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = mount(file.path(), options).err().unwrap();
        assert!(matches!(error, MountError::OtherType { .. }), "{error}");
        assert!(
            error.to_string().ends_with("is a file, and the root of the file system is a folder"),
            "{error}"
        );
        assert!(!is_mounted(file.path()));
    });
}

#[test]
fn dropping_a_session_unmounts() {
    on_each_transport(|options| {
        let dir = tempfile::tempdir().unwrap();
        let session = mount(dir.path(), options).unwrap();
        assert!(is_mounted(dir.path()));
        drop(session);
        assert!(!is_mounted(dir.path()));
    });
}

#[test]
fn somebody_elses_umount_ends_the_session() {
    on_each_transport(|options| {
        let mounted = Mounted::new(Odd::default(), options);
        assert!(Command::new("umount").arg(mounted.path()).status().unwrap().success());
        mounted.session().wait();
        mounted.session().unmount().expect("gone is as good");
        // Somebody else's mount at the same place is not ours to take down.
        let dir = mounted.path().to_owned();
        let tmpfs = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&dir).status();
        assert!(tmpfs.unwrap().success());
        mounted.session().unmount().unwrap();
        assert!(is_mounted(&dir));
        assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    });
}

#[test]
fn aborting_frees_everybody() {
    on_each_transport(|options| {
        let mounted = Mounted::new(Odd::default(), options);
        let path = mounted.join("f");
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || Command::new("flock").arg(path).arg("true").status().unwrap()
        });
        let waits = || mounted.session().status().requests(shuntfs::Opcode::Setlkw) == 1;
        let end = Instant::now() + Duration::from_secs(5);
        while !waits() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Wherever the control file system is mounted, or is not: see the next test.
        mounted.session().abort().unwrap();
        assert!(!waiting.join().unwrap().success());
        mounted.session().wait();
        assert!(fs::metadata(path).is_err());
        mounted.session().abort().expect("what has ended needs no end");
    });
}

/// Without the control file system an abort did nothing, and whoever waited for the server waited forever.
#[test]
fn aborting_needs_no_control_file_system() {
    if !can_mount() {
        return;
    }
    if bare::is_bare() {
        assert!(!bare::has_control());
        return aborting_frees_everybody();
    }
    let ran = bare::again("aborting_needs_no_control_file_system").unwrap();
    assert!(ran.status.success() && ran.stdout.contains("on device"), "{ran:?}");
}

/// A test whose process serves what it waits for can only be freed from outside.
#[test]
fn a_supervisor_frees_who_waits_for_this_process() {
    on_each_transport(|options| {
        let dir = tempfile::tempdir().unwrap();
        let session = mount(dir.path(), options).unwrap();
        let supervisor = Supervisor::of(dir.path(), Duration::from_secs(1)).unwrap();
        let started = Instant::now();
        // Waits for a lock that is never given.
        let freed = Command::new("flock").arg(dir.path().join("f")).arg("true").output().unwrap();
        assert!(!freed.status.success() && started.elapsed() >= Duration::from_millis(900), "{freed:?}");
        session.wait();
        drop(session);
        assert!(!is_mounted(dir.path()));
        drop(supervisor);
    });
}

#[test]
fn what_cannot_be_mounted_leaves_nothing_behind() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let device = options(TransportKind::Device);
    let missing = mount(&dir.path().join("missing"), &device).unwrap_err();
    assert!(matches!(missing, MountError::MountPoint { .. }), "{missing}");
    let handed = mount(Path::new("/dev/fd/9999"), &device).unwrap_err();
    assert!(matches!(handed, MountError::NoSuchDescriptor { number: 9999, .. }), "{handed}");
    let no_memory = SessionOptions { payload_cap: 1, ..device.clone() };
    let refused = mount(dir.path(), &no_memory).unwrap_err();
    assert!(matches!(refused, MountError::Transport { kind: TransportKind::Device, .. }), "{refused}");
    assert!(!is_mounted(dir.path()));
    let wrong = MountOptions { max_read: Some(u32::MAX), subtype: "a,b".into(), ..MountOptions::default() };
    let outcome = Session::mount(Arc::new(Odd::default()), dir.path(), &wrong, &device);
    drop(outcome);
    assert!(!is_mounted(dir.path()));
}

#[test]
fn a_file_can_be_mounted_on() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("point");
    fs::write(&file, "under").unwrap();
    let (how, options) = (MountOptions::default(), options(TransportKind::Device));
    let session = Session::mount(Arc::new(OneFile), &file, &how, &options).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), 77);
    session.unmount().unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "under");
    let error = Session::mount(Arc::new(OneFile), dir.path(), &how, &options).err().unwrap();
    assert!(error.to_string().ends_with("is a folder, and the root of the file system is a file"), "{error}");
}

/// A file system of one file.
struct OneFile;

impl Filesystem for OneFile {
    type File = ();
    type Dir = ();

    fn root_type(&self) -> FileType {
        FileType::Regular
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> shuntfs::Result<AttrReply> {
        Ok(Attr::new(node.get(), FileType::Regular, 0o644).with_size(77).valid_for(Duration::MAX))
    }
}

/// As mount.fuse3 does it with `drop_privileges`: the device is mounted before the server starts.
#[test]
fn a_device_that_is_mounted_already_is_served() {
    use std::os::fd::{AsFd, AsRawFd};
    struct Detached<'a>(&'a Path);
    impl Drop for Detached<'_> {
        fn drop(&mut self) {
            let _gone_already = Command::new("umount").args(["-q", "-l"]).arg(self.0).output();
        }
    }
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let device = shuntfs_sys::FuseDevice::open().unwrap();
    let target = File::open(dir.path()).unwrap();
    let request = shuntfs_sys::MountRequest::new("handed".as_ref(), target.as_fd(), &device);
    shuntfs_sys::mount::mount_fuse(&request).unwrap();
    let _detached = Detached(dir.path());
    drop(target);
    let session =
        mount(Path::new(&format!("/dev/fd/{}", device.as_raw_fd())), &options(TransportKind::Cloned));
    let session = session.unwrap();
    drop(device);
    assert!(fs::metadata(dir.path().join("f")).is_ok());
    assert!(matches!(session.unmount(), Err(UnmountError::NotOurs)));
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
    session.wait();
}

#[test]
fn auto_says_what_it_took_and_why() {
    if !can_mount() {
        return;
    }
    let auto =
        SessionOptions { transport: Transport::Auto, readahead: Some(1 << 20), ..SessionOptions::default() };
    let mounted = Mounted::new(Odd::default(), &auto);
    let status = mounted.session().status();
    assert!(!status.transport.why.is_empty());
    assert!(status.transport.queues >= 1 && status.transport.payload_max > 0);
    let connection = mounted.session().connection().expect("a number");
    let readahead = fs::read_to_string(format!("/sys/class/bdi/0:{connection}/read_ahead_kb")).unwrap();
    assert_eq!(readahead.trim(), "1024");
    assert!(fs::metadata(mounted.join("f")).is_ok());
    println!("{}: {}", status.transport.kind, status.transport.why);
    mounted.end();
}
