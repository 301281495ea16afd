//! Mounts that cannot be: each ends in one clear line, before anything happens.

mod common;

use std::fs;
use std::process::Command;

use common::{Room, SHUNT, apart, as_nobody, can_mount, run, shunt};

fn mount(source: &std::path::Path, mountpoint: &std::path::Path) -> common::Ran {
    run(Command::new(SHUNT).arg("mount").arg(source).arg(mountpoint))
}

#[test]
fn missing_folders_and_files_are_named() {
    let room = Room::new();
    let (file, gone) = (room.src().join("hello"), room.path().join("gone"));
    mount(&gone, &room.mnt()).fails(1, &["SRC", "gone", "No such file", "(is it"]);
    mount(&file, &room.mnt()).fails(1, &["SRC", "hello is not a folder"]);
    mount(&room.src(), &gone).fails(1, &["MNT", "gone", "No such file", "mkdir -p"]);
    mount(&room.src(), &file).fails(1, &["MNT", "hello is not a folder"]);
    assert_eq!(mount("".as_ref(), &room.mnt()).code, Some(2));
    assert!(!room.is_mounted());
}

#[test]
fn equal_and_nested_folders_are_refused_whatever_they_are_called() {
    let room = Room::new();
    let inner = room.src().join("inner");
    fs::create_dir(&inner).expect("makes");
    let link = room.path().join("link");
    std::os::unix::fs::symlink(room.src(), &link).expect("links");
    mount(&room.src(), &room.src()).fails(1, &["SRC and MNT are the same folder"]);
    mount(&link, &room.src()).fails(1, &["SRC and MNT are the same folder"]);
    mount(&room.src(), &link.join("inner/../inner")).fails(1, &["is inside SRC", "outside"]);
    mount(&inner, &room.src()).fails(1, &["is inside MNT", "beside"]);
    // A neighbour whose name begins the same is no part of it.
    let neighbour = room.path().join("src2");
    fs::create_dir(&neighbour).expect("makes");
    let ran = run(Command::new(SHUNT).args(["mount"]).arg(room.src()).arg(neighbour.join("gone")));
    ran.fails(1, &["No such file"]);
}

#[test]
fn privileged_a_bind_mount_is_seen_through() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    fs::create_dir(room.src().join("inner")).expect("makes");
    fs::create_dir(room.path().join("alias")).expect("makes");
    let script = "mount --bind \"$2/src\" \"$2/alias\"; exec \"$1\" mount \"$2/$3\" \"$2/$4\"";
    let case =
        |source: &str, mountpoint: &str| run(apart(script).arg(room.path()).args([source, mountpoint]));
    case("src", "alias/inner").fails(1, &["is inside SRC"]);
    case("alias", "src").fails(1, &["SRC and MNT are the same folder"]);
    case("alias/inner", "src").fails(1, &["is inside MNT"]);
}

#[test]
fn privileged_a_mount_point_in_use_is_refused_and_by_what() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let script = "mount -t tmpfs gadget \"$2/mnt\"; exec \"$1\" mount \"$2/src\" \"$2/mnt\"";
    run(apart(script).arg(room.path())).fails(1, &["is in use", "gadget", "tmpfs"]);
}

#[test]
fn privileged_a_missing_device_is_said_with_what_to_do() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let script = "mount -t tmpfs none /dev; mknod /dev/null c 1 3; exec \"$1\" mount \"$2/src\" \"$2/mnt\"";
    run(apart(script).arg(room.path())).fails(1, &["there is no /dev/fuse", "modprobe fuse"]);
    let script = "mount -t tmpfs none /dev; mknod /dev/null c 1 3; \"$1\" doctor";
    let ran = run(&mut apart(script));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("bad   /dev/fuse"), "{ran:?}");
}

#[test]
fn privileged_users_without_permission_are_told_what_to_do() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let mount = |command: &mut Command| run(command.arg("mount").arg(room.src()).arg(room.mnt()));
    mount(as_nobody(&room).env("PATH", "/nonexistent"))
        .fails(1, &["no fusermount3", "apt-get install fuse3"]);
    // Debian opens /dev/fuse to everybody; here it is one that is not.
    let mut closed = apart(
        "mknod -m 600 \"$2/fuse\" c 10 229; mount --bind \"$2/fuse\" /dev/fuse
         exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$2/shunt\" mount \"$3\" \"$4\"",
    );
    closed.args([room.path(), room.src(), room.mnt()]).env_remove("XDG_RUNTIME_DIR").current_dir("/");
    run(&mut closed).fails(1, &["/dev/fuse cannot be opened", "Permission denied", "chmod 666"]);
    let secret = room.path().join("secret");
    fs::create_dir_all(secret.join("inner")).expect("makes");
    run(Command::new("chmod").arg("700").arg(&secret)).ok();
    run(as_nobody(&room).arg("mount").arg(secret.join("inner")).arg(room.mnt()))
        .fails(1, &["SRC", "Permission denied"]);
}

#[test]
fn questions_about_what_is_no_mount_are_answered_so() {
    let room = Room::new();
    let here = |command: &str, path: &std::path::Path| run(Command::new(SHUNT).arg(command).arg(path));
    here("umount", &room.mnt()).fails(1, &["is not a mount point", "shunt list"]);
    here("status", &room.mnt()).fails(1, &["is not a mount point"]);
    here("umount", "/proc".as_ref()).fails(1, &["/proc is a mount of type proc, not of shunt"]);
    here("umount", &room.path().join("gone")).fails(1, &["cannot find", "No such file"]);
    here("why", &room.src().join("hello")).fails(1, &["is not on a mount of shunt"]);
    here("why", &room.src().join("gone")).fails(1, &["cannot look up", "No such file"]);
    let list = shunt(["list", "--json"]).ok();
    assert!(serde_json::from_str::<serde_json::Value>(&list.out).expect("JSON")["mounts"].is_array());
}
