//! A disk that hangs, on a real kernel. Needs root and /dev/fuse.
//!
//! The disk is a mount of `shunt` whose server is stopped. Whoever asks it waits until the server goes on. Nothing here touches the mounts but by
//! programs that are given a limit.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::fmt::Display;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

use rustix::process::Signal;
use shuntfs::{MountOptions, SessionOptions, TransportKind};
use shuntfs_pool::policy::Policy;
use shuntfs_pool::{BranchChange, BranchOptions, Cache, Calls, Health, MergeOptions, Pool, PoolOptions};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted as Disk, Transport};
use shuntfs_testkit::program::{run, wait_for};

use mounted::Mounted;
use mounted::bound::Bound;
use mounted::hanging::Hanging;

const STEP: Duration = Duration::from_secs(20);

/// A merge of a folder and of a mount that can be made to hang.
struct Sick {
    pool: Mounted,
    // Before the disk that it shows.
    _below: Option<Bound>,
    disk: Disk,
    _folders: [tempfile::TempDir; 2],
}

impl Sick {
    /// `None` where it cannot be had, and then the reason was said.
    fn start(kind: TransportKind, calls: Calls) -> Option<Self> {
        Self::with(kind, calls, false)
    }

    /// The same, where the mount may be in the folder `below` of the first branch, and what it shows is the second one.
    fn with(kind: TransportKind, calls: Calls, is_below: bool) -> Option<Self> {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for (folder, name) in folders.iter().zip(["one", "two"]) {
            std::fs::write(folder.path().join(name), name).unwrap();
            std::fs::create_dir(folder.path().join("both")).unwrap();
        }
        let spec = MountSpec::new(folders[1].path(), Transport::Device, Flow::Served);
        let disk = Disk::start(&spec.args(&["--cache", "none"])).unwrap()?;
        let below = is_below.then(|| {
            let at = folders[0].path().join("below");
            std::fs::create_dir(&at).unwrap();
            Bound::new(disk.path(), at)
        });
        let second = if is_below { folders[1].path() } else { disk.path() };
        let mut merge =
            MergeOptions::new(vec![BranchOptions::new(folders[0].path()), BranchOptions::new(second)]);
        merge.create = Policy::of("ff").unwrap();
        merge.min_free = 0;
        merge.timeout = Some(Duration::from_secs(1));
        let options =
            PoolOptions { merge: Some(merge), cache: Cache::None, calls, ..PoolOptions::new("disks") };
        let how = MountOptions { allow_other: true, ..MountOptions::default() };
        let session_options = SessionOptions {
            transport: shuntfs::Transport::Only(kind),
            queues: (kind != TransportKind::Uring).then_some(4),
            ..SessionOptions::default()
        };
        let pool = Mounted::with(Pool::open(&options).unwrap(), Vec::new(), &how, &session_options)?;
        Some(Self { pool, _below: below, disk, _folders: folders })
    }

    fn health(&self) -> Health {
        self.pool.observer.facts().branches[1].health
    }

    /// Waits until the disk is set aside, or is not any more.
    #[track_caller]
    fn until_aside(&self, is_aside: bool, what: impl Display) {
        let is_so = wait_until(STEP, || (self.health() == Health::Aside) == is_aside);
        assert!(is_so, "{what}: {:?}", self.pool.observer.facts());
    }

    /// Runs a script in the mount, to its end.
    fn sh(&self, script: &str) -> (bool, String) {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).current_dir("/").env("MNT", self.pool.top.path());
        let ran = run(&mut command, STEP).unwrap();
        (ran.status.success(), ran.stdout)
    }

    /// Starts a program on a path of the mount, whose words are not of interest.
    fn spawn(&self, program: &str, path: &str) -> Child {
        let mut command = Command::new(program);
        command.arg(self.pool.at(path)).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

impl Drop for Sick {
    fn drop(&mut self) {
        // Whoever hangs goes on.
        drop(self.disk.signal(Signal::CONT));
    }
}

fn lives_through_a_disk_that_hangs(kind: TransportKind, calls: Calls) {
    let what = format!("{kind} {calls:?}");
    let Some(sick) = Sick::start(kind, calls) else { return };
    assert_eq!(sick.sh("cat $MNT/one $MNT/two; ls $MNT"), (true, "onetwoboth\none\ntwo\n".into()), "{what}");
    sick.disk.signal(Signal::STOP).unwrap();
    // A lookup and a listing hang, and a caller on each CPU.
    let mut waiting = vec![sick.spawn("stat", "two"), sick.spawn("ls", ""), sick.spawn("stat", "nothing")];
    sick.until_aside(true, &what);
    for child in &mut waiting {
        let status = wait_for(child, STEP).unwrap();
        assert!(status.is_some(), "{what}: who waited goes on");
    }
    let script = "set -e; cd $MNT; for i in $(seq 125); do echo $i > f$i; mkdir both/d$i; read x < f$i; test $x = $i; \
        ln f$i both/d$i/g; rm f$i; rm both/d$i/g; rmdir both/d$i; done; mkdir n; mv n m; rmdir m; ls; stat -f . > /dev/null";
    assert_eq!(sick.sh(script), (true, "both\none\n".into()), "{what}: 1000 operations beside it");
    assert_eq!(sick.sh("cat $MNT/two 2>/dev/null || echo no"), (true, "no\n".into()), "{what}");
    assert_eq!(sick.health(), Health::Aside, "{what}");
    sick.disk.signal(Signal::CONT).unwrap();
    sick.until_aside(false, &what);
    assert_eq!(sick.sh("cat $MNT/two; ls $MNT"), (true, "twoboth\none\ntwo\n".into()), "{what}");
}

#[test]
fn a_disk_that_hangs_keeps_nobody_who_goes_elsewhere() {
    for kind in [TransportKind::Device, TransportKind::Cloned] {
        lives_through_a_disk_that_hangs(kind, Calls::Inline);
    }
}

#[test]
fn the_same_where_calls_leave_their_queues() {
    for kind in [TransportKind::Device, TransportKind::Cloned] {
        lives_through_a_disk_that_hangs(kind, Calls::Auto);
    }
    if Transport::Uring.is_available() {
        lives_through_a_disk_that_hangs(TransportKind::Uring, Calls::Offload);
    }
}

/// Somebody removed a file of which the disk that hung had a copy, got EIO, and saved it anew. When the disk answered, the new one was removed.
#[test]
fn what_its_caller_gave_up_is_not_done_later() {
    for kind in [TransportKind::Device, TransportKind::Cloned] {
        let Some(sick) = Sick::start(kind, Calls::Auto) else { return };
        let script = "echo old > $MNT/both/f; cat $MNT/both/f $MNT/two";
        assert_eq!(sick.sh(script), (true, "old\ntwo".into()));
        std::fs::write(sick.disk.path().join("both/f"), "copy").unwrap();
        // It is in the folder already, so that it looks up nothing but the name, which is on the first disk.
        let mut shell = Command::new("sh");
        let script = "cd $MNT/both && echo there && read x; unlink f";
        shell.arg("-c").arg(script).env("MNT", sick.pool.top.path());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut removing = shell.spawn().unwrap();
        let mut there = [0; 6];
        removing.stdout.as_mut().unwrap().read_exact(&mut there).unwrap();
        sick.disk.signal(Signal::STOP).unwrap();
        removing.stdin.take().unwrap().write_all(b"\n").unwrap();
        sick.until_aside(true, kind);
        assert!(wait_for(&mut removing, STEP).unwrap().is_some_and(|status| !status.success()), "{kind}");
        let script = "echo new > $MNT/both/n && mv $MNT/both/n $MNT/both/f && cat $MNT/both/f";
        assert_eq!(sick.sh(script), (true, "new\n".into()), "{kind}");
        sick.disk.signal(Signal::CONT).unwrap();
        sick.until_aside(false, kind);
        assert_eq!(sick.sh("cat $MNT/both/f $MNT/two"), (true, "new\ntwo".into()), "{kind}");
        assert_eq!(std::fs::read(sick.disk.path().join("both/f")).unwrap(), b"copy", "{kind}");
    }
}

/// Whoever may mount something below a branch could have the whole branch set aside.
#[test]
fn a_mount_below_a_branch_that_hangs_keeps_the_branch() {
    for kind in [TransportKind::Device, TransportKind::Cloned] {
        let Some(sick) = Sick::with(kind, Calls::Auto, true) else { return };
        assert_eq!(sick.sh("cat $MNT/below/two $MNT/one"), (true, "twoone".into()), "{kind}");
        sick.disk.signal(Signal::STOP).unwrap();
        // By its name, by a name in it, by its records, and where it is about to go.
        let hanging = [("stat", "below"), ("cat", "below/two"), ("ls", "below"), ("rmdir", "below")];
        let mut waiting = hanging.map(|(program, path)| sick.spawn(program, path));
        for child in &mut waiting {
            let status = wait_for(child, STEP).unwrap();
            assert!(status.is_some_and(|status| !status.success()), "{kind}: who waited goes on");
        }
        let facts = sick.pool.observer.facts();
        assert!(facts.branches.iter().all(|branch| branch.health != Health::Aside), "{kind}: {facts:?}");
        let script = "cat $MNT/one; echo new > $MNT/both/new && cat $MNT/both/new && rm $MNT/both/new";
        assert_eq!(sick.sh(script), (true, "onenew\n".into()), "{kind}");
        sick.disk.signal(Signal::CONT).unwrap();
        assert_eq!(sick.sh("cat $MNT/below/two"), (true, "two".into()), "{kind}");
    }
}

/// As of a disk that was pulled: everything there fails at once.
#[test]
fn a_disk_that_is_gone_is_set_aside() {
    let Some(sick) = Sick::start(TransportKind::Cloned, Calls::Auto) else { return };
    sick.disk.signal(Signal::KILL).unwrap();
    assert!(wait_for(&mut sick.spawn("stat", "nothing"), STEP).unwrap().is_some());
    sick.until_aside(true, "gone");
    let why = sick.pool.observer.facts().branches[1].why.clone().unwrap();
    assert!(why.contains("answers with"), "{why}");
    assert_eq!(sick.sh("cat $MNT/one; ls $MNT; stat -f $MNT >/dev/null"), (true, "oneboth\none\n".into()));
    assert_eq!(sick.sh("echo new > $MNT/new; cat $MNT/new"), (true, "new\n".into()));
}

/// Whoever moved something waited for a new disk that hung while its folders were looked for, and nobody could take it out.
#[test]
fn a_disk_that_hangs_as_it_is_added_keeps_nobody_waiting() {
    let Some(sick) = Sick::start(TransportKind::Cloned, Calls::Auto) else { return };
    // The kernel knows these folders, so that each is looked for on the new disk.
    assert_eq!(sick.sh("cd $MNT/both && mkdir first hangs last"), (true, String::new()));
    let Some(third) = Hanging::start() else { return };
    let change = |change: BranchChange| {
        let (observer, (told, tells)) = (sick.pool.observer.clone(), channel());
        std::thread::spawn(move || told.send(observer.change_branches(&change).map(|left| left.len())));
        tells
    };
    let adding = change(BranchChange::Append(vec![BranchOptions::new(third.path())]));
    let does_hang = wait_until(STEP, || third.gate.is_held());
    assert!(does_hang, "it was looked for: {:?}", adding.try_recv());
    assert!(wait_until(STEP, || sick.pool.observer.facts().branches[2].health == Health::Aside));
    assert_eq!(adding.try_recv(), Err(TryRecvError::Empty), "it hangs still");
    assert_eq!(sick.sh("cd $MNT && mkdir n && mv n o && rmdir o && cat one"), (true, "one".into()));
    let removing = change(BranchChange::Remove(vec![third.path().to_owned()]));
    assert_eq!(removing.recv_timeout(STEP), Ok(Ok(2)));
    assert_eq!(adding.try_recv(), Err(TryRecvError::Empty), "it hangs still");
    third.gate.open();
    assert!(adding.recv_timeout(STEP).is_ok_and(|added| added.is_ok()));
    assert_eq!(sick.sh("ls $MNT/both"), (true, "first\nhangs\nlast\n".into()));
}

/// Nobody asks for the time of a disk: it is waited for, and what is known of it is told at once.
#[test]
fn what_is_known_of_a_disk_that_hangs_is_told() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let spec = MountSpec::new(folders[1].path(), Transport::Device, Flow::Served);
    let Some(disk) = Disk::start(&spec.args(&["--cache", "none"])).unwrap() else { return };
    let merge =
        MergeOptions::new(vec![BranchOptions::new(folders[0].path()), BranchOptions::new(disk.path())]);
    let pool = Pool::open(&PoolOptions { merge: Some(merge), ..PoolOptions::new("disks") }).unwrap();
    let observer = pool.observer();
    let before = observer.facts();
    assert_eq!(before.branches.iter().map(|branch| branch.health).collect::<Vec<_>>(), [Health::Ok; 2]);
    disk.signal(Signal::STOP).unwrap();
    let is_silent = wait_until(STEP, || observer.facts().branches[1].health == Health::Silent);
    let now = observer.facts();
    disk.signal(Signal::CONT).unwrap();
    assert!(is_silent, "{now:?}");
    assert_eq!((now.branches[0].health, now.branches[1].total), (Health::Ok, before.branches[1].total));
    assert!(now.branches[1].since_s.is_some());
    assert!(wait_until(STEP, || observer.facts().branches[1].health == Health::Ok), "it answers again");
}
