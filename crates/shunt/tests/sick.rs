//! Pools with a disk that hangs, as users see them. What mounts needs root and /dev/fuse.
//!
//! The disk is a mount of its own whose server is stopped.

mod common;
mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{Ran, Room, SHUNT, can_mount, eventually, run, shunt, signal, wait};
use programs::{copy, upgrading};

/// A mount below a room that is a disk. Whatever happens, nobody waits for it in the end.
struct Disk {
    server: Child,
    at: PathBuf,
}

impl Disk {
    /// Shows `from` at `at`, and remembers nothing.
    fn mount(from: &Path, at: &Path) -> Self {
        let mut command = Command::new(SHUNT);
        // A stopped server of a ring keeps even umount(8) waiting.
        command.args(["mount", "--foreground", "--cache", "none", "--transport", "device"]).arg(from).arg(at);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let disk = Self { server: command.spawn().expect("starts"), at: at.to_owned() };
        eventually("the disk is mounted", || {
            let table = fs::read_to_string("/proc/self/mountinfo").expect("readable");
            table.lines().any(|line| line.split(' ').nth(4) == disk.at.to_str())
                && shunt(["status".as_ref(), disk.at.as_os_str()]).code == Some(0)
        });
        disk
    }

    fn hangs(&self) {
        signal(self.server.id(), "STOP");
    }

    fn goes_on(&self) {
        signal(self.server.id(), "CONT");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // With its server the connection ends, and whoever waits gets an error.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
    }
}

/// Folders `a`, `disk` and `b`, which is where the disk is mounted.
fn room() -> (Room, Disk) {
    let room = Room::new();
    for name in ["a", "b", "disk", "a/folder", "disk/folder"] {
        fs::create_dir(room.path().join(name)).expect("makes");
    }
    fs::write(room.path().join("a/one"), "one").expect("writes");
    fs::write(room.path().join("disk/two"), "two").expect("writes");
    let disk = Disk::mount(&room.path().join("disk"), &room.path().join("b"));
    (room, disk)
}

fn mount(room: &Room, cache: &str, args: &[&str]) -> Ran {
    let top = room.path();
    let branches = format!("{0}/a:{0}/b", top.display());
    let always = ["mount", "--create", "ff", "--minfreespace", "0", "--flow", "served", "--cache", cache];
    run(Command::new(SHUNT).args(always).args(args).arg(branches).arg(room.mnt())).ok()
}

fn status(room: &Room) -> String {
    shunt(["status".as_ref(), room.mnt().as_os_str()]).ok().out
}

/// A program on a path of the mount that may hang.
fn spawn(room: &Room, program: &str, path: &str) -> Child {
    let mut command = Command::new(program);
    command.arg(room.mnt().join(path)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("starts")
}

#[test]
fn privileged_status_and_removal_do_not_wait_for_a_disk_that_hangs() {
    if !can_mount() {
        return;
    }
    let (room, disk) = room();
    mount(&room, "none", &[]);
    let ok = status(&room);
    assert!(ok.lines().filter(|line| line.trim() == "ok").count() == 2, "{ok}");
    disk.hangs();
    // Whoever needs the disk waits, as nobody has said for how long.
    let mut waiting = spawn(&room, "stat", "two");
    eventually("status says that it does not answer", || status(&room).contains("NOT ANSWERING for"));
    let json =
        shunt(["branches".as_ref(), "list".as_ref(), room.mnt().as_os_str(), "--json".as_ref()]).ok().out;
    let document: serde_json::Value = serde_json::from_str(&json).expect("is JSON");
    let branches = &document["branches"];
    assert_eq!((&branches[0]["health"], &branches[1]["health"]), (&"ok".into(), &"silent".into()), "{json}");
    assert!(branches[1]["total"].as_u64().is_some(), "as it was known before: {json}");
    run(Command::new("stat").arg("-f").arg(room.mnt())).ok();
    assert_eq!(room.read("one"), "one");
    let branch = room.path().join("b");
    shunt(["branches".as_ref(), "remove".as_ref(), room.mnt().as_os_str(), branch.as_os_str()]).ok();
    let ls = run(Command::new("ls").arg(room.mnt())).ok().out;
    assert_eq!(ls, "folder\none\n");
    disk.goes_on();
    wait(&mut waiting);
    room.umount(&[]).ok();
}

#[test]
fn privileged_a_branch_is_set_aside_and_taken_back() {
    if !can_mount() {
        return;
    }
    for transport in ["auto", "device", "uring"] {
        if transport == "uring" && !shuntfs_testkit::mounted::enable_uring() {
            continue;
        }
        let (room, disk) = room();
        let said = mount(&room, "none", &["--branch-timeout", "1s", "--transport", transport]).err;
        assert_eq!(said.contains("cloned descriptors"), transport == "auto", "{said}");
        let mut open = fs::File::open(room.mnt().join("two")).expect("opens");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut open, &mut text).expect("reads");
        assert_eq!(text, "two");
        let used = status(&room);
        assert!(used.contains("1 open, 3 bytes read"), "{used}");
        disk.hangs();
        // The kernel lets nobody else make or remove something in a folder while a name is looked up there.
        let mut waiting = [spawn(&room, "stat", "two"), spawn(&room, "ls", "folder")];
        eventually("it is set aside", || status(&room).contains("SET ASIDE for"));
        for child in &mut waiting {
            assert!(wait(child).is_some(), "whoever waited goes on");
        }
        let script = "set -e; cd \"$1\"; for i in $(seq 250); do echo $i > f$i; read x < f$i; test $x = $i; rm f$i; done; \
             mkdir g; mv g h; rmdir h; ls; stat -f . > /dev/null; stat two 2>/dev/null || echo gone";
        let ran = run(Command::new("sh").arg("-c").arg(script).arg("sh").arg(room.mnt())).ok();
        assert_eq!(ran.out, "folder\none\ngone\n", "{transport}");
        let new = room.mnt().join("new");
        let why = shunt(["explain".as_ref(), "create".as_ref(), new.as_os_str()]).ok().out;
        assert!(why.contains("it is set aside: it does not answer"), "{why}");
        disk.goes_on();
        eventually("it is taken back", || !status(&room).contains("SET ASIDE"));
        let ls = run(Command::new("ls").arg(room.mnt())).ok().out;
        assert_eq!((ls.as_str(), room.read("two").as_str()), ("folder\none\ntwo\n", "two"), "{transport}");
        drop(open);
        room.umount(&[]).ok();
    }
}

/// While a disk hangs the program stays: threads of its server wait for the disk and would not end. Before and after that it is replaced.
#[test]
fn privileged_no_program_is_replaced_on_io_uring_while_a_branch_hangs() {
    if !can_mount() || !shuntfs_testkit::mounted::enable_uring() {
        return;
    }
    let (room, disk) = room();
    let said = mount(&room, "none", &["--branch-timeout", "1s", "--takeover", "upgrade"]).err;
    assert!(said.contains("takes another thread"), "{said}");
    let programs = ["one", "other"].map(|name| copy(Path::new(SHUNT), &room.path().join(name)));
    let upgrade = |at: usize| run(&mut upgrading(&room.mnt(), &programs[at]));
    upgrade(0).ok();
    let server = room.pid();
    assert_eq!([room.read("one"), room.read("two")], ["one", "two"]);
    disk.hangs();
    let mut waiting = spawn(&room, "stat", "two");
    eventually("it is set aside", || status(&room).contains("SET ASIDE for"));
    assert!(wait(&mut waiting).is_some(), "whoever waited goes on");
    upgrade(1).fails(1, &["was not upgraded", "does not answer"]);
    assert_eq!((room.pid(), room.read("one").as_str()), (server, "one"));
    disk.goes_on();
    eventually("it is taken back", || !status(&room).contains("SET ASIDE"));
    upgrade(1).ok();
    assert_ne!(room.pid(), server);
    assert_eq!([room.read("one"), room.read("two")], ["one", "two"]);
    room.umount(&[]).ok();
}

#[test]
fn privileged_a_rename_that_hangs_is_left_behind() {
    if !can_mount() {
        return;
    }
    let (room, disk) = room();
    mount(&room, "default", &["-o", "branch_timeout=1s"]);
    // The kernel knows both names, so that nothing is asked before the rename.
    run(Command::new("sh")
        .arg("-c")
        .arg("stat \"$1/folder\"; ! stat \"$1/moved\"")
        .arg("sh")
        .arg(room.mnt()))
    .ok();
    disk.hangs();
    let mut moving = Command::new("mv");
    moving.arg("-T").args([room.mnt().join("folder"), room.mnt().join("moved")]);
    let mut moving = moving.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    eventually("it is set aside", || status(&room).contains("SET ASIDE for"));
    assert!(wait(&mut moving).is_some_and(|code| code != 0), "it failed");
    let script = "set -e; cd \"$1\"; mkdir -p p q; mv p q/r; rmdir q/r q";
    run(Command::new("sh").arg("-c").arg(script).arg("sh").arg(room.mnt())).ok();
    disk.goes_on();
    eventually("it is taken back", || !status(&room).contains("SET ASIDE"));
    room.umount(&[]).ok();
}

#[test]
fn a_time_that_is_none_is_refused() {
    let room = Room::new();
    for name in ["a", "b"] {
        fs::create_dir(room.path().join(name)).expect("makes");
    }
    let branches = format!("{0}/a:{0}/b", room.path().display());
    for time in ["0", "2h", "soon"] {
        let ran = run(Command::new(SHUNT)
            .args(["mount", "-o", &format!("branch_timeout={time}"), &branches])
            .arg(room.mnt()));
        ran.fails(2, &["branch_timeout", "500ms to 60m"]);
    }
    let ran =
        run(Command::new(SHUNT).args(["mount", "--branch-timeout", "5s"]).arg(room.src()).arg(room.mnt()));
    ran.fails(2, &["SRC is one folder"]);
}
