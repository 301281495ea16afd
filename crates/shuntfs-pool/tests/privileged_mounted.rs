//! A pool, mounted for real, used through the kernel and compared with the folder below. Needs root and /dev/fuse.
//!
//! Every mount has a supervisor outside of this process that aborts it after a minute, so that nothing hangs for longer.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]
#![expect(clippy::disallowed_methods, reason = "tests make such calls on the mount")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use shuntfs::{MountOptions, Session, SessionOptions, Transport, TransportKind};
use shuntfs_pool::{Cache, Calls, FlowWish, Locks, Observer, Pool, PoolOptions};
use shuntfs_sys::{FlockOp, LockKind, LockSpec, flock, ofd_lock, ofd_test};
use shuntfs_testkit::supervisor::Supervisor;

const LIMIT: Duration = Duration::from_secs(60);

struct Mounted {
    session: Option<Session>,
    observer: Observer,
    lower: PathBuf,
    top: PathBuf,
    _supervisor: Supervisor,
    _folders: [tempfile::TempDir; 2],
}

fn mount(change: impl FnOnce(&mut PoolOptions)) -> Option<Mounted> {
    mount_with(change, SessionOptions::default())
}

fn mount_with(change: impl FnOnce(&mut PoolOptions), session: SessionOptions) -> Option<Mounted> {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let top = folders[1].path().to_owned();
    let mut options = PoolOptions::new(folders[0].path());
    change(&mut options);
    let lower = options.source.clone();
    fs::set_permissions(&lower, fs::Permissions::from_mode(0o777)).unwrap();
    let pool = Pool::open(&options).unwrap();
    let observer = pool.observer();
    let how = MountOptions { allow_other: true, nosuid: false, nodev: false, ..MountOptions::default() };
    let session = match Session::mount(Arc::new(pool), &top, &how, &session) {
        Ok(session) => session,
        Err(error) => {
            eprintln!("SKIPPED: cannot mount here: {error}");
            return None;
        }
    };
    let supervisor = Supervisor::of(&top, LIMIT).unwrap();
    let session = Some(session);
    Some(Mounted { session, observer, lower, top, _supervisor: supervisor, _folders: folders })
}

impl Mounted {
    /// A name's path on the mount, and below.
    fn sides(&self) -> (impl Fn(&str) -> PathBuf, impl Fn(&str) -> PathBuf) {
        (|name: &str| self.top.join(name), |name: &str| self.lower.join(name))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = session.unmount();
            drop(session);
        }
    }
}

/// What `stat` tells of two files that should be one.
fn same(a: &Path, b: &Path) {
    let (a_stat, b_stat) = (fs::symlink_metadata(a).unwrap(), fs::symlink_metadata(b).unwrap());
    let facts = |stat: &fs::Metadata| {
        (
            stat.ino(),
            stat.mode(),
            stat.nlink(),
            stat.uid(),
            stat.gid(),
            stat.size(),
            stat.mtime(),
            stat.mtime_nsec(),
        )
    };
    assert_eq!(facts(&a_stat), facts(&b_stat), "{} and {}", a.display(), b.display());
}

/// Runs a shell script as a user, which must succeed.
fn as_user(uid: u32, script: &str) {
    let status = Command::new("setpriv")
        .args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "sh", "-ec", script])
        .status()
        .unwrap();
    assert!(status.success(), "{script}");
}

fn tour(mounted: &Mounted) {
    names_agree(mounted);
    long_listings_agree(mounted);
    data_agrees(mounted);
    space_agrees(mounted);
    files_live_without_a_name(mounted);
    attributes_agree(mounted);
    copies_below(mounted);
    makes_as_the_caller(mounted);
}

fn names_agree(mounted: &Mounted) {
    let (above, below) = mounted.sides();
    fs::create_dir(above("d")).unwrap();
    fs::write(above("d/f"), b"hello").unwrap();
    fs::hard_link(above("d/f"), above("d/g")).unwrap();
    symlink("f", above("d/s")).unwrap();
    for name in ["d", "d/f", "d/g", "d/s"] {
        same(&above(name), &below(name));
    }
    assert_eq!(fs::read_link(above("d/s")).unwrap(), Path::new("f"));
    assert_eq!(fs::read(above("d/s")).unwrap(), b"hello");
    fs::rename(above("d/g"), above("h")).unwrap();
    assert_eq!(fs::read(below("h")).unwrap(), b"hello");
    fs::remove_file(above("h")).unwrap();
    assert!(fs::metadata(above("missing")).is_err());
    assert_eq!(fs::remove_dir(above("d")).unwrap_err().raw_os_error(), Some(39));
}

fn long_listings_agree(mounted: &Mounted) {
    let (above, below) = mounted.sides();
    fs::create_dir(above("many")).unwrap();
    for number in 0..500 {
        fs::write(above(&format!("many/a rather long name to fill the buffers {number}")), b"").unwrap();
    }
    let list = |at: &Path| {
        let mut names: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(list(&above("many")), list(&below("many")));
    assert_eq!(list(&above("many")).len(), 500);
}

fn data_agrees(mounted: &Mounted) {
    let (above, below) = mounted.sides();
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(above("data")).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    file.write_all(&bytes).unwrap();
    file.sync_all().unwrap();
    file.write_at(b"patch", 1_000_001).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3_000_000);
    let mut read = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut read).unwrap();
    assert_eq!(read, fs::read(below("data")).unwrap());
    assert_eq!(&read[1_000_001..1_000_006], b"patch");
    file.set_len(10).unwrap();
    assert_eq!(fs::metadata(below("data")).unwrap().len(), 10);
    let mut appender = OpenOptions::new().append(true).open(above("data")).unwrap();
    appender.write_all(b"end").unwrap();
    appender.write_all(b"END").unwrap();
    assert_eq!(fs::read(below("data")).unwrap()[10..], *b"endEND");
    let cut = OpenOptions::new().write(true).truncate(true).open(above("data")).unwrap();
    assert_eq!((cut.metadata().unwrap().len(), fs::metadata(below("data")).unwrap().len()), (0, 0));
    File::open(above("d")).unwrap().sync_all().unwrap();
}

fn space_agrees(mounted: &Mounted) {
    let (above, below) = mounted.sides();
    let file = OpenOptions::new().read(true).write(true).open(above("data")).unwrap();
    shuntfs_sys::data::fallocate(&file, 0, 0, 1 << 20).unwrap();
    file.write_at(b"x", 1 << 20).unwrap();
    shuntfs_sys::data::fallocate(&file, 0b11, 4096, 8192).unwrap();
    assert_eq!(
        shuntfs_sys::data::seek_hole(&file, 4096),
        shuntfs_sys::data::seek_hole(File::open(below("data")).unwrap(), 4096)
    );
    same(&above("data"), &below("data"));
}

fn files_live_without_a_name(mounted: &Mounted) {
    let (above, below) = mounted.sides();
    let mut gone = File::create_new(above("gone")).unwrap();
    let mut reader = File::open(above("gone")).unwrap();
    fs::remove_file(above("gone")).unwrap();
    gone.write_all(b"still").unwrap();
    assert_eq!(gone.metadata().unwrap().nlink(), 0);
    drop(gone);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still");
    let unnamed =
        OpenOptions::new().write(true).read(true).custom_flags(0o20_200_000).open(&mounted.top).unwrap();
    unnamed.write_at(b"found", 0).unwrap();
    shuntfs_sys::link_to(&unnamed, File::open(&mounted.top).unwrap(), c"named").unwrap();
    assert_eq!(fs::read(below("named")).unwrap(), b"found");
}

fn attributes_agree(mounted: &Mounted) {
    let (above, below) = mounted.sides();
    let file = OpenOptions::new().read(true).write(true).open(above("data")).unwrap();
    let times =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789));
    file.set_times(times).unwrap();
    same(&above("data"), &below("data"));
    assert_eq!(fs::metadata(above("data")).unwrap().mtime_nsec(), 123_456_789);
    assert_eq!(
        fs::metadata(above("data")).unwrap().created().ok(),
        fs::metadata(below("data")).unwrap().created().ok()
    );
    std::os::unix::fs::chown(above("data"), Some(12), Some(34)).unwrap();
    fs::set_permissions(above("data"), fs::Permissions::from_mode(0o2751)).unwrap();
    same(&above("data"), &below("data"));

    let name = c"user.colour";
    if shuntfs_sys::set_xattr(File::open(below("data")).unwrap(), c"user.test", b"1", 0).is_ok() {
        shuntfs_sys::set_xattr(&file, name, b"blue", 0).unwrap();
        let mut value = [0; 16];
        assert_eq!(shuntfs_sys::get_xattr(&file, name, &mut value), Ok(4));
        assert_eq!(shuntfs_sys::get_xattr(&file, name, &mut []), Ok(4));
        assert_eq!(&value[..4], b"blue");
        let mut names = [0; 256];
        let len = shuntfs_sys::list_xattr(&file, &mut names).unwrap();
        assert!(names[..len].windows(12).any(|part| part == b"user.colour\0"));
        shuntfs_sys::remove_xattr(&file, name).unwrap();
        assert_eq!(shuntfs_sys::get_xattr(&file, name, &mut value), Err(shuntfs_sys::OsError::NODATA));
    }
}

fn copies_below(mounted: &Mounted) {
    let (top, lower) = (&mounted.top, &mounted.lower);
    fs::write(top.join("from"), vec![7; 100_000]).unwrap();
    let (from, to) = (File::open(top.join("from")).unwrap(), File::create(top.join("to")).unwrap());
    assert_eq!(shuntfs_sys::data::copy_range(&from, 10, &to, 0, 50_000), Ok(50_000));
    assert_eq!(fs::read(lower.join("to")).unwrap(), vec![7; 50_000]);
    let mut flags = [0; 8];
    if shuntfs_sys::ioctl::file_ioctl(File::open(lower.join("to")).unwrap(), 0x8008_6601, &mut flags).is_ok()
    {
        let mut above = [0; 8];
        shuntfs_sys::ioctl::file_ioctl(&from, 0x8008_6601, &mut above).unwrap();
        assert_eq!(flags, above);
    }
}

fn makes_as_the_caller(mounted: &Mounted) {
    let (top, lower) = (mounted.top.display(), &mounted.lower);
    fs::create_dir(lower.join("shared")).unwrap();
    fs::set_permissions(lower.join("shared"), fs::Permissions::from_mode(0o1777)).unwrap();
    as_user(1234, &format!("cd {top}/shared; umask 027; echo x > f; mkdir d; ln -s f s; mkfifo p"));
    for (name, mode) in [("f", 0o640), ("d", 0o750), ("p", 0o640)] {
        let stat = fs::symlink_metadata(lower.join("shared").join(name)).unwrap();
        assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o777), (1234, 1234, mode), "{name}");
    }
    // A write by somebody who may not leave it set-uid strips it, whoever moves the bytes.
    let tool = lower.join("shared/tool");
    fs::write(&tool, b"x").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o6777)).unwrap();
    as_user(1234, &format!("echo more >> {top}/shared/tool"));
    assert_eq!(fs::metadata(&tool).unwrap().mode() & 0o7777, 0o777);
    assert_eq!(fs::metadata(mounted.top.join("shared/tool")).unwrap().mode() & 0o7777, 0o777);
}

#[test]
fn privileged_tour_in_passthrough() {
    let Some(mounted) = mount(|_| ()) else { return };
    tour(&mounted);
    assert_eq!(mounted.observer.facts().overdrawn, 0);
}

#[test]
fn privileged_tour_relayed() {
    let Some(mounted) = mount(|options| options.flow = FlowWish::Relay) else { return };
    tour(&mounted);
}

#[test]
fn privileged_tour_served() {
    let Some(mounted) = mount(|options| options.flow = FlowWish::Served) else { return };
    tour(&mounted);
}

#[test]
fn privileged_tour_with_every_call_offloaded_and_nothing_cached() {
    let change = |options: &mut PoolOptions| {
        options.calls = Calls::Offload;
        options.cache = Cache::None;
    };
    let Some(mounted) = mount(change) else { return };
    tour(&mounted);
}

#[test]
fn privileged_tour_with_one_cached_descriptor() {
    let Some(mounted) = mount(|options| options.descriptors = Some(1)) else { return };
    tour(&mounted);
    assert!(mounted.observer.facts().descriptors <= 1);
}

/// A file system of its own, mounted until dropped.
struct Lower(tempfile::TempDir);

impl Lower {
    fn mount(kind: &str, options: impl Fn(&Path) -> String) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        for name in ["l", "u", "w", "m"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut command = Command::new("mount");
        command.args(["-t", kind, "none", "-o", &options(folder.path())]).arg(folder.path().join("m"));
        if !command.status().unwrap().success() {
            eprintln!("SKIPPED: cannot mount {kind} here");
            return None;
        }
        Some(Self(folder))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("m")
    }
}

impl Drop for Lower {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

#[test]
fn privileged_tour_on_tmpfs() {
    let Some(lower) = Lower::mount("tmpfs", |_| "size=64m".into()) else { return };
    let Some(mounted) = mount(|options| options.source = lower.path()) else { return };
    tour(&mounted);
    assert!(mounted.observer.facts().handles);
    drop(mounted);
}

#[test]
fn privileged_tour_on_a_file_system_without_handles() {
    let Some(base) = Lower::mount("tmpfs", |_| "size=64m".into()) else { return };
    for name in ["l", "u", "w"] {
        fs::create_dir(base.path().join(name)).unwrap();
    }
    let at = base.path();
    let layers = format!("lowerdir={0}/l,upperdir={0}/u,workdir={0}/w", at.display());
    let Some(lower) = Lower::mount("overlay", |_| layers.clone()) else { return };
    let Some(mounted) = mount(|options| options.source = lower.path()) else { return };
    tour(&mounted);
    assert!(!mounted.observer.facts().handles);
    drop(mounted);
    drop(lower);
}

#[test]
fn privileged_changes_below_show_where_nothing_is_cached() {
    let Some(mounted) = mount(|options| options.cache = Cache::None) else { return };
    assert!(!mounted.top.join("f").exists());
    fs::write(mounted.lower.join("f"), b"one").unwrap();
    assert_eq!(fs::read(mounted.top.join("f")).unwrap(), b"one");
    fs::write(mounted.lower.join("f"), b"other").unwrap();
    assert_eq!(fs::read(mounted.top.join("f")).unwrap(), b"other");
    fs::remove_file(mounted.lower.join("f")).unwrap();
    assert!(!mounted.top.join("f").exists());
}

#[test]
fn privileged_locks_are_seen_below() {
    let Some(mounted) = mount(|options| options.locks = Locks::Lower) else { return };
    fs::write(mounted.lower.join("l"), [0; 100]).unwrap();
    let open = |at: &Path| OpenOptions::new().read(true).write(true).open(at.join("l")).unwrap();
    let (above, again, below) = (open(&mounted.top), open(&mounted.top), open(&mounted.lower));
    let range = LockSpec { kind: LockKind::Write, start: 10, len: 10 };
    ofd_lock(&above, range, false).unwrap();
    assert!(ofd_lock(&below, range, false).is_err());
    assert!(ofd_lock(&again, range, false).is_err());
    assert_eq!(ofd_test(&again, range).unwrap().map(|lock| lock.spec), Some(range));
    assert_eq!(ofd_lock(&below, LockSpec { start: 20, ..range }, false), Ok(()));
    assert_eq!(
        ofd_test(&above, LockSpec { start: 25, len: 1, ..range }).unwrap().map(|lock| lock.spec.start),
        Some(20)
    );
    // A lock goes with its close.
    drop(above);
    let limit = Instant::now() + Duration::from_secs(10);
    while ofd_lock(&below, range, false).is_err() {
        assert!(Instant::now() < limit, "RELEASE drops it");
        std::thread::sleep(Duration::from_millis(5));
    }
    flock(&again, FlockOp::Exclusive, false).unwrap();
    assert!(flock(&below, FlockOp::Shared, false).is_err());
    flock(&again, FlockOp::Unlock, false).unwrap();
    flock(&below, FlockOp::Shared, false).unwrap();
}

fn waiter(file: &Path) -> Child {
    Command::new("flock").arg(file).args(["true"]).spawn().unwrap()
}

#[test]
fn privileged_thirty_waiters_do_not_stop_the_mount() {
    for transport in [TransportKind::Device, TransportKind::Uring] {
        let transport = Transport::Only(transport);
        thirty_waiters(SessionOptions { transport, depth: 64, ..SessionOptions::default() });
    }
}

fn thirty_waiters(session: SessionOptions) {
    let Some(mounted) = mount_with(|options| options.locks = Locks::Lower, session) else { return };
    let path = mounted.top.join("l");
    fs::write(&path, b"").unwrap();
    let below = File::open(mounted.lower.join("l")).unwrap();
    flock(&below, FlockOp::Exclusive, false).unwrap();
    let mut waiters: Vec<_> = (0..30).map(|_| waiter(&path)).collect();
    std::thread::sleep(Duration::from_millis(300));
    for number in 0..20 {
        fs::write(mounted.top.join(format!("f{number}")), b"the mount answers").unwrap();
    }
    // One of them can be killed while it waits.
    let mut killed = waiters.pop().unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    flock(&below, FlockOp::Unlock, false).unwrap();
    for mut waiter in waiters {
        assert!(waiter.wait().unwrap().success());
    }
}

#[test]
fn privileged_a_mapping_and_an_executable_work() {
    let Some(mounted) = mount(|_| ()) else { return };
    fs::copy("/bin/true", mounted.top.join("run")).unwrap();
    assert!(Command::new(mounted.top.join("run")).status().unwrap().success());
    let busy = OpenOptions::new().write(true).truncate(true).open(mounted.top.join("run"));
    drop(busy);
    fs::copy("/bin/true", mounted.top.join("run")).unwrap();
    assert!(Command::new(mounted.top.join("run")).status().unwrap().success());
}

#[test]
fn privileged_what_forbids_writing_below_is_told_at_the_open() {
    // Without passthrough the wish for it becomes one for a relay.
    for flow in [FlowWish::Passthrough, FlowWish::Relay, FlowWish::Served] {
        let session = SessionOptions { passthrough: false, ..SessionOptions::default() };
        let Some(mounted) = mount_with(|options| options.flow = flow, session) else { return };
        let (above, below) = mounted.sides();
        // By another process: one that a parallel test starts meanwhile would inherit our descriptor for writing, and the
        // copy could not be run.
        assert!(Command::new("cp").arg("/bin/sleep").arg(below("run")).status().unwrap().success());
        let mut running = Command::new(below("run")).arg("60").spawn().unwrap();
        let refused = OpenOptions::new().write(true).open(above("run")).map(drop);
        let left = mounted.session.as_ref().unwrap().status().nodes_open;
        let read = fs::read(above("run")).map(|bytes| bytes.len());
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ExecutableFileBusy, "{flow:?}");
        assert!(read.unwrap() > 0, "{flow:?}");
        assert_eq!(left, 0, "{flow:?}: a failed open is undone");
        OpenOptions::new().write(true).open(above("run")).unwrap().write_all(b"now").unwrap();
    }
}

#[test]
fn privileged_the_mount_point_inside_the_source_is_no_trap() {
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().join("inside");
    fs::create_dir(&top).unwrap();
    fs::write(folder.path().join("f"), b"x").unwrap();
    let pool = Pool::open(&PoolOptions::new(folder.path())).unwrap();
    let session =
        match Session::mount(Arc::new(pool), &top, &MountOptions::default(), &SessionOptions::default()) {
            Ok(session) => session,
            Err(error) => {
                eprintln!("SKIPPED: cannot mount here: {error}");
                return;
            }
        };
    let supervisor = Supervisor::of(&top, LIMIT).unwrap();
    assert_eq!(fs::read(top.join("f")).unwrap(), b"x");
    let inner = fs::metadata(top.join("inside")).map(|_| ()).map_err(|error| error.raw_os_error());
    assert_eq!(inner, Err(Some(40)), "ELOOP");
    assert_eq!(fs::read_dir(&top).unwrap().count(), 2);
    session.unmount().unwrap();
    drop(session);
    drop(supervisor);
}

/// Several workers make, open, rename, link, list and remove the same few names. Only what the race allows may fail,
/// and in the end both sides tell the same.
fn storm(mounted: &Mounted) {
    let dir = mounted.top.join("storm");
    fs::create_dir(&dir).unwrap();
    let allowed = |error: std::io::Error| {
        let number = error.raw_os_error().unwrap();
        assert!([2, 17].contains(&number), "{error}");
    };
    // A name that is removed between its LOOKUP and its OPEN is looked up again by the kernel, but only once.
    let stale = AtomicU32::new(0);
    let missed = |error: std::io::Error| match error.raw_os_error() {
        Some(116) => _ = stale.fetch_add(1, Ordering::Relaxed),
        _ => allowed(error),
    };
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (dir, missed) = (&dir, &missed);
            scope.spawn(move || {
                let mut seed = worker + 1;
                for _ in 0..600 {
                    seed =
                        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (a, b) =
                        (dir.join(format!("n{}", seed >> 60)), dir.join(format!("n{}", seed >> 56 & 15)));
                    match seed >> 40 & 7 {
                        0 | 1 => {
                            let file = OpenOptions::new()
                                .read(true)
                                .write(true)
                                .create(true)
                                .truncate(true)
                                .open(&a);
                            let Ok(mut file) = file.map_err(missed) else { continue };
                            file.write_all(b"some bytes").unwrap();
                            file.seek(SeekFrom::Start(0)).unwrap();
                            file.read_to_end(&mut Vec::new()).unwrap();
                            assert!(file.metadata().unwrap().nlink() <= 16);
                        }
                        2 => fs::rename(&a, &b).unwrap_or_else(allowed),
                        3 => fs::hard_link(&a, &b).unwrap_or_else(allowed),
                        4 | 5 => fs::remove_file(&a).unwrap_or_else(allowed),
                        6 => {
                            let Ok(file) = File::open(&a).map_err(missed) else { continue };
                            fs::remove_file(&a).unwrap_or_else(allowed);
                            file.metadata().unwrap();
                            (&file).read_to_end(&mut Vec::new()).unwrap();
                        }
                        _ => assert!(fs::read_dir(dir).unwrap().map(Result::unwrap).count() <= 16),
                    }
                }
            });
        }
    });
    let stale = stale.into_inner();
    assert!(stale <= 4, "{stale} of some 900 opens missed their name twice");
    let tell = |at: &Path| {
        let entries = fs::read_dir(at).unwrap().map(Result::unwrap);
        let mut facts: Vec<_> = entries
            .map(|entry| (entry.file_name(), entry.metadata().unwrap()))
            .map(|(name, stat)| (name, stat.ino(), stat.nlink(), stat.size()))
            .collect();
        facts.sort();
        facts
    };
    assert_eq!(tell(&dir), tell(&mounted.lower.join("storm")));
    assert_eq!(mounted.observer.facts().overdrawn, 0);
}

#[test]
fn privileged_storm_on_each_transport_and_flow() {
    for transport in [TransportKind::Device, TransportKind::Cloned, TransportKind::Uring] {
        for flow in [FlowWish::Passthrough, FlowWish::Relay, FlowWish::Served] {
            let session =
                SessionOptions { transport: Transport::Only(transport), ..SessionOptions::default() };
            let change = |options: &mut PoolOptions| {
                options.flow = flow;
                options.descriptors = Some(8);
            };
            let Some(mounted) = mount_with(change, session) else { continue };
            eprintln!("{transport} {flow:?}");
            storm(&mounted);
        }
    }
}

/// A regression: a folder that was made through the mount and removed below in the same moment made the kernel look all names up
/// again, and whatever was mounted inside the mount was removed. Any user could do that.
#[test]
fn a_folder_that_is_removed_below_at_once_takes_no_mount_away() {
    let Some(mounted) = mount(|_| ()) else { return };
    let (above, below) = mounted.sides();
    for folder in ["inside", "folder"] {
        fs::create_dir(below(folder)).unwrap();
    }
    let status = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(above("inside")).status().unwrap();
    assert!(status.success());
    fs::write(above("inside/file"), "").unwrap();
    let ended = Instant::now() + Duration::from_secs(3);
    let (mut failed, path) = (0, below("folder/x"));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while Instant::now() < ended {
                let _gone = fs::remove_dir(&path);
            }
        });
        while Instant::now() < ended {
            failed += u32::from(fs::create_dir(above("folder/x")).is_err());
        }
    });
    let is_there = above("inside/file").exists();
    let _ended = Command::new("umount").arg("--lazy").arg(above("inside")).status();
    assert!(is_there, "after {failed} that failed");
    assert!(failed > 0, "nothing was removed in time");
}
