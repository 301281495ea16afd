//! Branches that become full, as users see it: options, the log, and servers that are killed. What mounts needs root and /dev/fuse.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::{Ran, Room, SHUNT, can_mount, eventually, run, shunt, signal};

const MIB: usize = 1 << 20;

/// A file system in memory at a folder, which goes with this.
struct Disk(PathBuf);

impl Disk {
    fn new(room: &Room, name: &str, mib: usize) -> Self {
        let at = room.path().join(name);
        fs::create_dir(&at).expect("makes");
        let size = format!("size={mib}m");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "shuntfs-test"]).arg(&at)).ok();
        Self(at)
    }

    fn read_only(&self) {
        // A close is told after it.
        eventually("nothing is open for writing", || {
            run(Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0)).code == Some(0)
        });
        // What is known of a disk is at most a second old.
        std::thread::sleep(Duration::from_millis(1100));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let ended = Command::new("umount").arg("--lazy").arg(&self.0).status();
        if !ended.is_ok_and(|ended| ended.success()) {
            eprintln!("{} is left mounted", self.0.display());
        }
    }
}

fn mount(room: &Room, branches: &str, args: &[&str]) -> Ran {
    let branches = branches.replace('@', room.path().to_str().expect("is text"));
    run(Command::new(SHUNT).arg("mount").args(args).arg(branches).arg(room.mnt()))
}

#[test]
fn what_says_how_files_are_moved_is_checked() {
    let room = Room::new();
    for name in ["a", "b"] {
        fs::create_dir(room.path().join(name)).expect("makes");
    }
    for (args, words) in [
        (["-o", "moveonenospc=best"], &["moveonenospc", "true, false, or one of ff, all, mfs"][..]),
        (["-o", "move_on_full=best"], &["move_on_full", "true, false, or one of ff"]),
        (["-o", "passthrough_reserve=1X"], &["passthrough_reserve", "a number with K, M"]),
        (["--move-on-full", "best"], &["true, false, or one of ff"]),
        (["--passthrough-reserve", "1X"], &["a number with K, M"]),
    ] {
        let ran = mount(&room, "@/a:@/b", &args);
        assert!(ran.code == Some(2) && words.iter().all(|word| ran.err.contains(word)), "{ran:?}");
    }
    for args in [["--move-on-full", "mfs"], ["-o", "moveonenospc=true"], ["--passthrough-reserve", "1G"]] {
        mount(&room, "@/a", &args).fails(2, &["SRC is one folder"]);
    }
}

/// The same reasons that `shunt explain` gives, each once a minute.
#[test]
fn privileged_the_log_says_why_there_is_no_room_and_no_right() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let disks = [("a", 8), ("b", 8), ("c", 64)].map(|(name, mib)| Disk::new(&room, name, mib));
    let log = room.path().join("log");
    let args = [
        "--create",
        "epff",
        "--minfreespace",
        "1M",
        "--flow",
        "relay",
        "--log-file",
        log.to_str().expect("text"),
        "--move-on-full",
        "ff",
    ];
    fs::create_dir(room.path().join("a/d")).expect("makes");
    fs::create_dir(room.path().join("b/other")).expect("makes");
    mount(&room, "@/a:@/b:@/c=NC", &args).ok();
    let file = File::create(room.mnt().join("d/file")).expect("makes");
    for round in 0..3 {
        let refused = file.write_all_at(&vec![1; 10 * MIB], 0).expect_err("there is no room anywhere");
        assert_eq!(refused.raw_os_error(), Some(28), "{round}");
    }
    std::thread::sleep(Duration::from_millis(1100));
    for name in ["x", "y"] {
        let refused = File::create(room.mnt().join("d").join(name)).expect_err("it is full, or NC");
        assert_eq!(refused.raw_os_error(), Some(30), "{name}");
        let moved = fs::rename(room.mnt().join("d/file"), room.mnt().join("other").join(name));
        assert_eq!(moved.expect_err("the policy keeps paths").raw_os_error(), Some(18));
    }
    drop(file);
    disks[0].read_only();
    for _ in 0..2 {
        let refused = fs::remove_file(room.mnt().join("d/file")).expect_err("is read-only");
        assert_eq!(refused.raw_os_error(), Some(30));
    }
    let text = fs::read_to_string(&log).expect("reads");
    let lines = |words: &[&str]| -> usize {
        text.lines()
            .filter(|line| line.contains("refused: ") && words.iter().all(|word| line.contains(word)))
            .count()
    };
    let top = room.path().display().to_string();
    let (full, mode) = (format!("{top}/a"), format!("{top}/c: its mode is NC"));
    assert_eq!(lines(&["its branch is full", "/d/file", &full, &mode, "bytes are available"]), 1, "{text}");
    assert_eq!(lines(&["the policy epff picks none", "/d/x", &mode]), 1, "{text}");
    assert_eq!(lines(&["the create policy keeps paths", "/other"]), 1, "{text}");
    assert_eq!(lines(&["/d/file", "read-only"]), 1, "{text}");
    assert_eq!(lines(&[]), 4, "{text}");
    room.umount(&[]).ok();
}

/// What `shunt explain` and `why` say of it.
#[test]
fn privileged_why_tells_that_a_disk_is_nearly_full() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let _disks = [("a", 8), ("b", 64)].map(|(name, mib)| Disk::new(&room, name, mib));
    let args = ["--create", "ff", "--minfreespace", "0", "--passthrough-reserve", "16M"];
    mount(&room, "@/a:@/b", &args).ok();
    let mut file = OpenOptions::new().append(true).create(true).open(room.mnt().join("file")).expect("makes");
    let why = shunt(["why".as_ref(), room.mnt().join("file").as_os_str()]).ok().out;
    if why.contains("near_full") {
        assert!(why.contains("its disk may become full") && why.contains("--passthrough-reserve"), "{why}");
    } else {
        assert!(!why.contains("passthrough\n"), "{why}");
    }
    file.write_all(&vec![1; 12 * MIB]).expect("is moved");
    assert!(!room.path().join("a/file").exists() && room.path().join("b/file").exists());
    let status = shunt(["status".as_ref(), "--json".as_ref(), room.mnt().as_os_str()]).ok().out;
    assert!(status.contains("\"files_moved\":1") || status.contains("\"files_moved\": 1"), "{status}");
    drop(file);
    room.umount(&[]).ok();
}

/// Whenever the server dies, the file is whole on one branch or the other, and nothing else is left.
#[test]
fn privileged_a_server_that_is_killed_while_it_moves_leaves_nothing_half() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let _disks = [("a", 96), ("b", 512)].map(|(name, mib)| Disk::new(&room, name, mib));
    let bytes: Vec<u8> = (0..64 * MIB).map(|at| u8::try_from(at / 4096 % 253).expect("fits")).collect();
    for round in 0..8 {
        let args = ["--create", "ff", "--minfreespace", "0", "--flow", "relay"];
        mount(&room, "@/a:@/b", &args).ok();
        let path = room.mnt().join("file");
        let file = File::create(&path).expect("makes");
        file.write_all_at(&bytes, 0).expect("fits");
        fs::write(room.path().join("a/filler"), vec![1; 30 * MIB]).expect("fits");
        let server = room.pid();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| file.write_all_at(&bytes[..8 * MIB], bytes.len() as u64));
            std::thread::sleep(Duration::from_millis(5 * round));
            signal(server, "KILL");
            drop(writer.join().expect("ends"));
        });
        drop(file);
        run(Command::new("umount").arg("--lazy").arg(room.mnt())).ok();
        eventually("the mount is gone", || !room.is_mounted());
        let copies =
            ["a/file", "b/file"].map(|name| room.path().join(name)).into_iter().filter(|path| path.exists());
        let copies: Vec<PathBuf> = copies.collect();
        assert!(!copies.is_empty(), "{round}");
        for copy in &copies {
            let found = fs::read(copy).expect("reads");
            assert!(
                found.len() >= bytes.len() && found[..bytes.len()] == bytes[..],
                "{round}: {}",
                copy.display()
            );
        }
        for branch in ["a", "b"] {
            for entry in fs::read_dir(room.path().join(branch)).expect("lists") {
                let name = entry.expect("reads").file_name();
                assert!(["file", "filler"].contains(&name.to_str().expect("text")), "{round}: {name:?}");
                fs::remove_file(room.path().join(branch).join(name)).expect("goes");
            }
        }
    }
}
