//! Mounting a raw FUSE device as root, with a thread that answers only what the kernel insists on.

mod support;

use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shuntfs_sys::mount::{
    MountCall, MountError, MountOptions, MountRequest, abort_by_umount, mount_by_fusermount, mount_fuse,
    mount_with, mounts, unmount, unmount_by_fusermount,
};
use shuntfs_sys::{FuseDevice, MountInfo, OsError, open_folder, open_path_at, open_target};
use shuntfs_testkit::supervisor::Supervisor;
use support::{TimeLimit, is_privileged};
use tempfile::TempDir;

/// A server of an empty root folder.
struct Server {
    device: Arc<FuseDevice>,
    thread: Option<JoinHandle<OsError>>,
    place: TempDir,
    _supervisor: Supervisor,
}

impl Server {
    fn start(device: FuseDevice, place: TempDir) -> Self {
        let device = Arc::new(device);
        let thread = std::thread::spawn({
            let device = Arc::clone(&device);
            move || serve(&device)
        });
        let supervisor = Supervisor::of(place.path(), Duration::from_secs(50)).expect("a supervisor");
        Self { device, thread: Some(thread), place, _supervisor: supervisor }
    }

    fn path(&self) -> &Path {
        self.place.path()
    }

    /// Waits for the first answer, and so for INIT.
    fn settle(&self) {
        std::fs::metadata(self.path()).expect("the server answers");
    }

    /// Waits for the end of the connection and gives the error that told of it.
    fn end(mut self) -> OsError {
        self.thread.take().expect("ends once").join().expect("the server does not panic")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = unmount(self.place.path(), true);
        }
    }
}

/// Answers until the connection ends; gives the error that told of it.
fn serve(device: &FuseDevice) -> OsError {
    let mut request = vec![0; 132 * 1024];
    loop {
        let len = match device.read(&mut request) {
            Ok(len) => len,
            Err(OsError::INTR | OsError::NOENT | OsError::AGAIN) => continue,
            // The device is not mounted yet.
            Err(OsError::PERM) => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            Err(error) => return error,
        };
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        assert_eq!(usize::try_from(word(0)), Ok(len));
        let body = match word(4) {
            // FORGET, INTERRUPT, BATCH_FORGET
            2 | 36 | 42 => continue,
            // LOOKUP
            1 => Err(2),
            // GETATTR
            3 => Ok(attributes()),
            // INIT
            26 => Ok(init()),
            // OPENDIR
            27 => Ok(vec![0; 16]),
            // READDIR, READDIRPLUS: an empty folder. FLUSH, RELEASEDIR.
            28 | 44 | 25 | 29 => Ok(Vec::new()),
            _ => Err(38),
        };
        let (error, body) = match body {
            Ok(body) => (0_i32, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let len = u32::try_from(16 + body.len()).expect("small");
        let head = [&len.to_ne_bytes()[..], &error.to_ne_bytes(), &request[8..16]].concat();
        match device.write(&[IoSlice::new(&head), IoSlice::new(&body)]) {
            Ok(_) | Err(OsError::NOENT) => {}
            Err(error) => return error,
        }
    }
}

/// `struct fuse_init_out`: ABI 7.45, passthrough over plain file systems.
fn init() -> Vec<u8> {
    let words: [u32; 16] = [7, 45, 65_536, 1 << 30, 0, 65_536, 1, 0, 1 << 5, 1, 0, 0, 0, 0, 0, 0];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct fuse_attr_out`: a folder of mode 0755.
fn attributes() -> Vec<u8> {
    let mut out = vec![0; 104];
    out[16..24].copy_from_slice(&1_u64.to_ne_bytes());
    out[16 + 60..16 + 64].copy_from_slice(&0o04_0755_u32.to_ne_bytes());
    out[16 + 64..16 + 68].copy_from_slice(&2_u32.to_ne_bytes());
    out
}

fn request<'a>(device: &'a FuseDevice, target: std::os::fd::BorrowedFd<'a>) -> MountRequest<'a> {
    MountRequest {
        source: OsStr::new("a source"),
        subtype: Some("systest"),
        target,
        device,
        rootmode: 0o04_0755,
        uid: 0,
        gid: 0,
        options: MountOptions {
            nosuid: true,
            nodev: true,
            default_permissions: true,
            ..MountOptions::default()
        },
    }
}

fn mounted_at(path: &Path) -> Option<MountInfo> {
    mounts().expect("the table is there").into_iter().find(|mount| mount.mount_point == path)
}

/// Mounts on a new folder and serves it.
fn mounted(options: MountOptions, call: Option<MountCall>) -> Server {
    let place = tempfile::tempdir().expect("a folder");
    let target = open_folder(place.path()).expect("opens");
    let device = FuseDevice::open().expect("/dev/fuse opens");
    let request = MountRequest { options, ..request(&device, target.as_fd()) };
    match call {
        Some(call) => mount_with(call, &request).expect("mounts"),
        None => assert_eq!(mount_fuse(&request), Ok(MountCall::New)),
    }
    Server::start(device, place)
}

#[test]
fn both_calls_mount_as_root() {
    if !is_privileged("mounting") {
        return;
    }
    let _limit = TimeLimit::start();
    for call in [MountCall::New, MountCall::Classic] {
        let options =
            MountOptions { nosuid: true, noexec: true, default_permissions: true, ..MountOptions::default() };
        let server = mounted(options, Some(call));
        server.settle();
        let mount = mounted_at(server.path()).expect("is in the table");
        assert_eq!((mount.fs_type.as_str(), mount.source.as_str()), ("fuse.systest", "a source"), "{call:?}");
        for option in ["rw", "nosuid", "noexec"] {
            assert!(mount.options.split(',').any(|held| held == option), "{call:?}: {}", mount.options);
        }
        assert!(mount.super_options.contains("default_permissions"), "{call:?}: {}", mount.super_options);
        assert!(!mount.super_options.contains("allow_other"), "{call:?}: {}", mount.super_options);
        assert_eq!(server.device.connection_id(), Ok(Some(mount.dev.1)));
        assert_eq!(std::fs::read_dir(server.path()).expect("opens").count(), 0);
        let path = server.path().to_owned();
        // A folder that was closed a moment ago, or a look at all mounts from elsewhere, keeps it busy for moments.
        let unmounted = (0..100).any(|_| {
            let done = unmount(&path, false).is_ok();
            if !done {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            done
        });
        assert!(unmounted);
        assert_eq!(mounted_at(&path), None);
        assert_eq!(server.end(), OsError::NODEV, "{call:?}");
    }
}

#[test]
fn options_reach_the_mount_as_root() {
    if !is_privileged("mount options") {
        return;
    }
    let _limit = TimeLimit::start();
    for call in [MountCall::New, MountCall::Classic] {
        let options = MountOptions {
            read_only: true,
            noatime: true,
            nodev: true,
            sync: true,
            allow_other: true,
            max_read: Some(8192),
            ..MountOptions::default()
        };
        let server = mounted(options, Some(call));
        server.settle();
        let mount = mounted_at(server.path()).expect("is in the table");
        for option in ["ro", "noatime", "nodev"] {
            assert!(mount.options.split(',').any(|held| held == option), "{call:?}: {}", mount.options);
        }
        for option in ["ro", "sync", "allow_other", "max_read=8192"] {
            assert!(
                mount.super_options.split(',').any(|held| held == option),
                "{call:?}: {}",
                mount.super_options
            );
        }
        let refused = std::fs::File::create(server.path().join("file")).expect_err("is read-only");
        assert_eq!(refused.raw_os_error(), Some(OsError::ROFS.raw_os_error()));
        unmount(server.path(), true).expect("detaches");
        server.end();
    }
}

#[test]
fn refusals_say_why_as_root() {
    if !is_privileged("refused mounts") {
        return;
    }
    let _limit = TimeLimit::start();
    let place = tempfile::tempdir().expect("a folder");
    let target = open_folder(place.path()).expect("opens");
    let device = FuseDevice::open().expect("/dev/fuse opens");
    let sound = request(&device, target.as_fd());
    for call in [MountCall::New, MountCall::Classic] {
        // A root that is a file does not go on a folder; the device is spent by the attempt.
        let spent = FuseDevice::open().expect("/dev/fuse opens");
        let wrong = MountRequest { rootmode: 0o10_0644, device: &spent, ..sound };
        let refused = mount_with(call, &wrong).expect_err("is refused");
        assert_eq!(refused.errno(), OsError::NOTDIR, "{refused}");
    }
    let null =
        rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).expect("opens");
    let null = FuseDevice::from_fd(null).expect("is a descriptor");
    let refused = mount_fuse(&MountRequest { device: &null, ..sound }).expect_err("is refused");
    assert_eq!(refused.errno(), OsError::INVAL, "{refused}");
    // Without a type the kernel says what is wrong with the number.
    let refused = mount_fuse(&MountRequest { rootmode: 0, ..sound }).expect_err("is refused");
    assert!(matches!(&refused, MountError::Refused { log, .. } if log.contains("rootmode")), "{refused:?}");
    assert_eq!(mounted_at(place.path()), None);
}

#[test]
fn a_device_without_a_mount_refuses() {
    let device = match FuseDevice::open() {
        Ok(device) => device,
        Err(error) => {
            println!("SKIPPED: /dev/fuse: {error}");
            return;
        }
    };
    assert_eq!(device.connection_id().map(|id| id.is_none()), Ok(true));
    assert_eq!(device.clone_of().err(), Some(OsError::PERM));
    let file = tempfile::tempfile().expect("a file");
    assert_eq!(device.backing_open(&file), Err(OsError::PERM));
    device.set_nonblocking(true).expect("fcntl");
    assert_eq!(device.read(&mut [0; 8192]), Err(OsError::PERM));
}

#[test]
fn backing_files_are_registered_after_init_as_root() {
    if !is_privileged("backing files") {
        return;
    }
    let _limit = TimeLimit::start();
    let place = tempfile::tempdir().expect("a folder");
    let target = open_folder(place.path()).expect("opens");
    let device = FuseDevice::open().expect("/dev/fuse opens");
    mount_fuse(&request(&device, target.as_fd())).expect("mounts");
    let room = tempfile::tempdir_in("/dev/shm").expect("tmpfs is there");
    std::fs::write(room.path().join("file"), "content").expect("writes");
    let folder = open_folder(room.path()).expect("opens");
    let file = open_path_at(&folder, c"file").expect("O_PATH");
    assert_eq!(device.backing_open(&file), Err(OsError::PERM), "INIT is not answered");
    let server = Server::start(device, place);
    server.settle();
    let first = server.device.backing_open(&file).expect("registers");
    let second = server.device.backing_open(&file).expect("registers");
    assert!(first >= 1 && second != first);
    assert_eq!(server.device.backing_open(&folder), Err(OsError::ISDIR));
    assert_eq!(server.device.backing_close(first), Ok(()));
    assert_eq!(server.device.backing_close(first), Err(OsError::NOENT));
    assert_eq!(server.device.backing_close(second), Ok(()));
    let clone = server.device.clone_of().expect("clones");
    assert_eq!(clone.connection_id(), server.device.connection_id());
    clone.set_nonblocking(true).expect("fcntl");
    assert_eq!(clone.read(&mut [0; 132 * 1024]), Err(OsError::AGAIN));
    unmount(server.path(), true).expect("detaches");
    assert_eq!(server.end(), OsError::NODEV);
    assert_eq!(clone.read(&mut [0; 132 * 1024]), Err(OsError::NODEV));
}

#[test]
fn aborting_frees_everybody_as_root() {
    if !is_privileged("aborting") {
        return;
    }
    let _limit = TimeLimit::start();
    let server = mounted(MountOptions::default(), None);
    server.settle();
    let open = std::fs::File::open(server.path()).expect("opens");
    let path = server.path().to_owned();
    assert_eq!(unmount(&path, false), Err(OsError::BUSY));
    abort_by_umount(&path).expect("aborts");
    let error = server.end();
    assert!([OsError::NODEV, OsError::CONNABORTED].contains(&error), "{error:?}");
    drop(open);
    let limit = Instant::now() + Duration::from_secs(10);
    while mounted_at(&path).is_some() && Instant::now() < limit {
        let _ = unmount(&path, true);
    }
    assert_eq!(mounted_at(&path), None);
}

/// Needs the program; runs as root here, which takes the same way through it.
#[test]
fn fusermount_mounts_and_unmounts_as_root() {
    if !is_privileged("fusermount3") {
        return;
    }
    let _limit = TimeLimit::start();
    let place = tempfile::Builder::new().prefix("name with space, comma ").tempdir().expect("a folder");
    let options = OsStr::new("fsname=some\\,thing,subtype=systest,ro,default_permissions");
    let device = match mount_by_fusermount(place.path(), options) {
        Ok(device) => device,
        Err(MountError::NoFusermount) => {
            println!("SKIPPED: fusermount3 is not installed");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let server = Server::start(device, place);
    server.settle();
    let mount = mounted_at(server.path()).expect("is in the table");
    assert_eq!((mount.fs_type.as_str(), mount.source.as_str()), ("fuse.systest", "some,thing"));
    assert!(mount.options.split(',').any(|option| option == "ro"));
    let path = server.path().to_owned();
    unmount_by_fusermount(&path, false).expect("unmounts");
    assert_eq!(server.end(), OsError::NODEV);
    assert_eq!(mounted_at(&path), None);

    let started = Instant::now();
    let refused = mount_by_fusermount(Path::new("/no/such/folder"), options).expect_err("is refused");
    assert!(
        matches!(&refused, MountError::Fusermount { message } if message.contains("/no/such/folder")),
        "{refused}"
    );
    assert!(started.elapsed() < Duration::from_secs(10), "waited for an answer that cannot come");
    let refused = unmount_by_fusermount(Path::new("/no/such/folder"), true).expect_err("is refused");
    assert!(matches!(refused, MountError::Fusermount { .. }), "{refused}");
}

#[test]
fn a_file_can_be_a_mount_point_as_root() {
    if !is_privileged("mounting on a file") {
        return;
    }
    let _limit = TimeLimit::start();
    let device = FuseDevice::open().expect("/dev/fuse opens");
    // The second is one more mount of the same connection.
    let places = [MountCall::New, MountCall::Classic].map(|call| {
        let place = MountedFile(tempfile::NamedTempFile::new().expect("a file"));
        let target = open_target(place.0.path()).expect("O_PATH");
        mount_with(call, &MountRequest { rootmode: 0o10_0644, ..request(&device, target.as_fd()) })
            .expect("mounts");
        place
    });
    let mounts = places.each_ref().map(|place| mounted_at(place.0.path()).expect("is in the table"));
    assert_eq!(mounts[0].dev, mounts[1].dev);
    drop(places);
    assert_eq!(mounts.map(|mount| mounted_at(&mount.mount_point)), [None, None]);
    assert_eq!(device.read(&mut [0; 8192]), Err(OsError::NODEV));
}

struct MountedFile(tempfile::NamedTempFile);

impl Drop for MountedFile {
    fn drop(&mut self) {
        unmount(self.0.path(), true).expect("detaches");
    }
}
