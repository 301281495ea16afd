//! Handles of files on `shunt mount --handles`, which another server finds again. Needs root and /dev/fuse.
//!
//! What each lower file system gives, and what nobody may reach by a handle, is tested with the pool itself (`privileged_handles.rs`).

mod common;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;

use common::{Room, SHUNT, can_mount, run};
use shuntfs_sys::{FileHandle, OsError, handle_of, open_by_handle};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::Transport;

fn handle(path: &Path) -> FileHandle {
    handle_of(File::open(path).expect("opens")).expect("has a handle").0
}

fn text(mnt: &Path, handle: &FileHandle) -> shuntfs_sys::Result<String> {
    let root = File::open(mnt).expect("opens");
    let mut text = String::new();
    File::from(open_by_handle(&root, handle, 0)?).read_to_string(&mut text).expect("is read");
    Ok(text)
}

#[test]
fn privileged_handles_hold_from_one_server_to_the_next() {
    if !can_mount() {
        return;
    }
    let Some(lower) = Lower::make(LowerKind::Ext4).expect("a file system or none") else { return };
    for transport in Transport::ALL.into_iter().filter(|transport| transport.is_available()) {
        let transport = transport.name();
        let room = Room::new();
        let mnt = room.mnt();
        let mount = || {
            let words = ["mount", "--handles", "--transport", transport];
            run(Command::new(SHUNT).args(words).arg(lower.path()).arg(&mnt))
        };
        mount().ok();
        fs::create_dir_all(mnt.join("folder")).expect("makes");
        for name in ["kept", "folder/below", "linked", "removed", "replaced", "new"] {
            fs::write(mnt.join(name), name).expect("writes");
        }
        fs::hard_link(mnt.join("linked"), mnt.join("folder/second")).expect("links");
        let handles =
            ["kept", "folder/below", "linked", "removed", "replaced"].map(|name| handle(&mnt.join(name)));
        let holds = || {
            let seen = handles.each_ref().map(|handle| text(&mnt, handle));
            let stale = || Err(OsError::STALE);
            let expected = ["kept", "folder/below", "linked"].map(|text| Ok(text.to_owned()));
            let expected: Vec<_> = expected.into_iter().chain([stale(), stale()]).collect();
            assert_eq!(seen.as_slice(), expected, "{transport}");
        };
        fs::rename(mnt.join("folder"), mnt.join("moved")).expect("renames");
        fs::rename(mnt.join("new"), mnt.join("replaced")).expect("renames");
        for name in ["linked", "removed"] {
            fs::remove_file(mnt.join(name)).expect("removes");
        }
        holds();
        let before = room.pid();
        room.umount(&[]).ok();
        mount().ok();
        assert_ne!(room.pid(), before, "another server");
        holds();
        assert_eq!(handle(&mnt.join("moved/below")), handles[1], "looked up by its name it has the same one");
        fs::remove_file(mnt.join("moved/second")).expect("removes");
        assert_eq!(text(&mnt, &handles[2]), Err(OsError::STALE), "its last name is gone");
        fs::remove_dir_all(mnt.join("moved")).expect("removes");
        room.umount(&[]).ok();
    }
}

/// Two disks, which another server finds in another order.
#[test]
fn privileged_handles_on_several_folders_hold_from_one_server_to_the_next() {
    if !can_mount() {
        return;
    }
    let disk = || Lower::make(LowerKind::Ext4).expect("a file system or none");
    let (Some(one), Some(two)) = (disk(), disk()) else { return };
    let room = Room::new();
    let mnt = room.mnt();
    let mount = |order: [(&Lower, &str); 2], words: &[&str]| {
        let branches = order.map(|(lower, id)| format!("{}=RW,id={id}", lower.path().display())).join(":");
        run(Command::new(SHUNT)
            .args(["mount", "--handles", "--minfreespace", "0"])
            .args(words)
            .arg(branches)
            .arg(&mnt))
    };
    for path in [one.path().join("folder"), two.path().join("folder")] {
        fs::create_dir(&path).expect("makes");
        fs::write(path.join(if path.starts_with(one.path()) { "first" } else { "second" }), "text")
            .expect("writes");
    }
    let renumbered = mount([(&one, "x"), (&two, "y")], &["--inode-calc", "path-hash"]);
    renumbered.fails(1, &["no lasting file handles", "inode numbers that go by paths"]);
    mount([(&one, "x"), (&two, "y")], &[]).ok();
    let handles = ["folder/first", "folder/second", "folder"].map(|name| handle(&mnt.join(name)));
    let before = room.pid();
    room.umount(&[]).ok();
    mount([(&two, "y"), (&one, "x")], &[]).ok();
    assert_ne!(room.pid(), before, "another server");
    for handle in &handles[..2] {
        assert_eq!(text(&mnt, handle).as_deref(), Ok("text"));
    }
    assert_eq!(["folder/first", "folder/second", "folder"].map(|name| handle(&mnt.join(name))), handles);
    room.umount(&[]).ok();
    let folder = one.path().join("folder");
    let branches = format!("{}=RW:{}=RW", folder.display(), two.path().display());
    let part = run(Command::new(SHUNT).args(["mount", "--handles"]).arg(branches).arg(&mnt));
    part.fails(1, &["no lasting file handles", "folder of a larger file system"]);
}
