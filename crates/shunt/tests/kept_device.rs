//! Mounts that somebody else has made, who hands the device over as `/dev/fd/N` (mount.fuse3 with `drop_privileges`, containers), while servers are
//! killed. Needs root and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
mod programs;

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callers::{Callers, is_caller};
use common::{
    Ran, Room, SHUNT, as_nobody, can_mount, eventually, is_alive, room_of_nobody, run, servers_of, signal,
};
use kept::{Kept, call, status};
use programs::{copy, program_of, upgrading};
use rustix::io::FdFlags;
use shuntfs_sys::FuseDevice;
use shuntfs_sys::mount::mount_fuse;

const CALLERS: usize = 3;
/// A fifth server that dies within a minute is the last.
const KILLS: u64 = 4;
const ENOTCONN: i32 = 107;
const NOBODY: u32 = 65534;

/// What is handed over must go to one program only.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Mounts on the room's mount point for a user, and hands the device to a program, which keeps no other descriptor of it.
fn hand_over(room: &Room, user: u32, command: &mut Command) -> Ran {
    let device = FuseDevice::open().expect("opens");
    let target = File::open(room.mnt()).expect("opens");
    let mut request = shuntfs_sys::MountRequest::new("handed over".as_ref(), target.as_fd(), &device);
    (request.subtype, request.uid, request.gid) = (Some("shunt"), user, user);
    (request.options.allow_other, request.options.default_permissions) = (true, true);
    mount_fuse(&request).expect("mounts");
    drop(target);
    // Over an exec. No other program is started meanwhile: the tests here take turns.
    rustix::io::fcntl_setfd(&device, FdFlags::empty()).expect("is open");
    let ran = run(command.arg(room.src()).arg(format!("/dev/fd/{}", device.as_raw_fd())));
    drop(device);
    ran
}

fn log_of(room: &Room) -> String {
    format!("log_file={}", room.path().join("log").display())
}

fn start(flags: &[&str]) -> Kept {
    let room = Room::new();
    let log = log_of(&room);
    let mut command = Command::new(SHUNT);
    command.args(["mount", "--takeover", "crash", "-o", &log]).args(flags);
    hand_over(&room, 0, &mut command).ok();
    Kept::of(room)
}

/// By whoever had mounted, who sees that nothing is left.
fn unmount(kept: &Kept) {
    run(Command::new("umount").arg(kept.room.mnt())).ok();
    kept.is_gone();
}

#[test]
fn privileged_a_device_that_was_handed_over_survives_its_servers() {
    if let Some(folder) = is_caller() {
        return call(&folder).say();
    }
    if !can_mount() {
        return;
    }
    let _alone = alone();
    for transport in ["device", "cloned"] {
        let kept = start(&["--transport", transport]);
        let test = "privileged_a_device_that_was_handed_over_survives_its_servers";
        let callers = Callers::start(CALLERS, test, &kept.room.mnt());
        for replaced in 1..=KILLS {
            std::thread::sleep(Duration::from_millis(250));
            kept.kill();
            let status = status(&kept.room);
            assert_eq!(status["takeover"]["replaced"].as_u64(), Some(replaced), "{}", kept.log());
            assert_eq!(status["session"]["transport"]["kind"], transport);
        }
        let program = copy(Path::new(SHUNT), &kept.room.path().join("program"));
        run(&mut upgrading(&kept.room.mnt(), &program)).ok();
        assert_eq!(program_of(kept.keeper), program);
        // As many as are too many, of a program that has not served for a minute.
        for _ in 0..=KILLS {
            assert_eq!(program_of(kept.keeper), program, "{}", kept.log());
            std::thread::sleep(Duration::from_millis(250));
            kept.kill();
            status(&kept.room);
        }
        assert_eq!(program_of(kept.keeper), Path::new(SHUNT), "{}", kept.log());
        std::thread::sleep(Duration::from_millis(250));
        let seen = callers.stop();
        println!("{transport}: {seen:?}");
        assert!(seen.calls > 100 && (seen.failed, seen.wrong) == (0, 0), "{seen:?}\n{}", kept.log());
        unmount(&kept);
    }
}

/// The keeper unmounts where it may, as a server without one does.
#[test]
fn privileged_a_signal_unmounts_a_device_that_was_handed_over() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let kept = start(&[]);
    assert_eq!(kept.room.read("hello"), "hello there\n");
    kept.kill();
    assert_eq!(kept.room.read("hello"), "hello there\n");
    signal(kept.keeper, "TERM");
    kept.is_gone();
    // And when its servers die too often, callers get errors, and nobody waits.
    let kept = start(&[]);
    for _ in 0..5 {
        let before = kept.room.pid();
        signal(before, "KILL");
        eventually("another one, or none", || {
            let now = servers_of(&kept.room.path());
            !is_alive(kept.keeper)
                || now.iter().any(|pid| *pid != kept.keeper && *pid != before && is_alive(*pid))
        });
        if !is_alive(kept.keeper) || !kept.room.is_mounted() {
            break;
        }
        let _the_last_may_be_gone = fs::metadata(kept.room.mnt());
    }
    kept.is_gone();
}

/// An ordinary user's server, which may neither mount nor unmount.
#[test]
fn privileged_a_device_goes_on_without_the_right_to_mount() {
    let _alone = alone();
    let Some(room) = room_of_nobody() else { return };
    let log = log_of(&room);
    let mut command = as_nobody(&room);
    // Without the set-uid program that unmounts.
    command.args(["mount", "--takeover", "crash", "-o", &log]).env("PATH", "/nonexistent");
    hand_over(&room, NOBODY, &mut command).ok();
    let kept = Kept::of(room);
    let mnt = kept.room.mnt();
    let work = r#"
        exec 9<> "$1/open"; rm "$1/open"
        for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            mkdir "$1/d$round"; echo $round > "$1/a"; mv "$1/a" "$1/d$round/b"
            head -c 1000000 /dev/zero > "$1/big"; test $(stat -c %s "$1/big") = 1000000
            echo $round >&9; test "$(cat "$1/d$round/b")" = $round
            rm -r "$1/d$round"; sleep 0.05
        done
        stat -L -c '%h %s' /proc/self/fd/9"#;
    let mut setpriv = Command::new("setpriv");
    setpriv
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-ec", work, "sh"])
        .arg(&mnt);
    let worker = setpriv.stdout(Stdio::piped()).spawn().expect("starts");
    for replaced in 1..=KILLS {
        std::thread::sleep(Duration::from_millis(300));
        kept.kill();
        assert_eq!(status(&kept.room)["takeover"]["replaced"].as_u64(), Some(replaced), "{}", kept.log());
    }
    let worked = worker.wait_with_output().expect("ends");
    assert!(worked.status.success(), "{}", kept.log());
    assert_eq!(String::from_utf8_lossy(&worked.stdout), "0 51\n");
    // It cannot unmount: the connection ends with the device, and who has mounted removes the dead mount.
    signal(kept.keeper, "TERM");
    eventually("no process is left", || servers_of(&kept.room.path()).is_empty());
    let seen = fs::metadata(&mnt).expect_err("nobody serves it").raw_os_error();
    assert_eq!(seen, Some(ENOTCONN), "{}", kept.log());
    run(Command::new("umount").arg(&mnt)).ok();
    kept.is_gone();
}

/// What is no device, or none that is mounted, is no mount, and leaves no process.
#[test]
fn privileged_what_is_no_mounted_device_is_refused() {
    if !can_mount() {
        return;
    }
    let _alone = alone();
    let room = Room::new();
    let mount = |path: &str| {
        let mut command = Command::new(SHUNT);
        run(command.args(["mount", "--takeover", "crash"]).arg(room.src()).arg(path))
    };
    mount("/dev/fd/97").fails(1, &["/dev/fd/97 is not an open descriptor"]);
    let file = File::open(room.src().join("hello")).expect("opens");
    let device = FuseDevice::open().expect("opens");
    for number in [file.as_raw_fd(), device.as_raw_fd()] {
        let both = [file.as_fd(), device.as_fd()];
        both.iter().for_each(|fd| rustix::io::fcntl_setfd(fd, FdFlags::empty()).expect("is open"));
        let ran = mount(&format!("/dev/fd/{number}"));
        both.iter().for_each(|fd| rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC).expect("is open"));
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(servers_of(&room.path()).is_empty(), "{ran:?}");
    }
}
