//! Before Linux 6.6 the kernel does not give away a node's number: `why` and `explain` then get it from the server. `strace` stands for
//! such a kernel.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ran, Room, SHUNT, can_mount, run};

fn shunt(folder: &Path, words: &str) -> Ran {
    run(Command::new(SHUNT).args(words.split(' ')).current_dir(folder))
}

/// The same on a kernel whose handles tell nothing.
fn on_an_old_kernel(folder: &Path, words: &str) -> Ran {
    let inject = "inject=name_to_handle_at:error=EOPNOTSUPP";
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", inject, SHUNT]);
    run(strace.args(words.split(' ')).current_dir(folder))
}

#[track_caller]
fn is_the_same(folder: &Path, words: &str) {
    let (new, old) = (shunt(folder, words).ok(), on_an_old_kernel(folder, words).ok());
    let told = |ran: &Ran| {
        let mut document: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
        // Where a new file would go depends on the space at that moment, and on chance.
        document.as_object_mut().expect("an object").remove("new");
        document
    };
    assert_eq!(told(&new), told(&old), "{words}");
}

#[test]
fn privileged_why_answers_where_the_kernel_does_not_tell_nodes() {
    if !can_mount() {
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        println!("SKIPPED: there is no strace to stand for an old kernel");
        return;
    }
    let room = Room::new();
    let at: PathBuf = room.path();
    fs::create_dir_all(at.join("src/folder/inner")).expect("makes");
    fs::create_dir(at.join("b")).expect("makes");
    fs::write(at.join("src/folder/inner/file"), "x").expect("writes");
    fs::write(at.join("rules"), "[[rule]]\npath = 'folder/inner/file'\ndeny = 'EACCES'\n").expect("writes");
    shunt(&at, "seal b").ok();
    shunt(&at, "seal src").ok();
    for mount in [
        "mount src mnt",
        "mount --rules rules src mnt",
        "mount src:b mnt --minfreespace 0",
        "mount --verify if-sealed src mnt",
        "mount --verify required src mnt",
    ] {
        shunt(&at, mount).ok();
        is_the_same(&at, "why --json mnt/hello");
        is_the_same(&at, "why --json mnt/folder/inner/file");
        if mount.contains("--rules") {
            is_the_same(&at, "why --json mnt");
            is_the_same(&at, "explain create --json mnt/folder/inner/new");
            is_the_same(&at, "explain write --json mnt/folder/inner/file");
        }
        // It is a number that is told, not an attribute that files have.
        let mnt = at.join("mnt/hello");
        let mut names = vec![0; 4096];
        let len = rustix::fs::listxattr(&mnt, &mut names[..]).expect("lists");
        let names = String::from_utf8_lossy(&names[..len]).into_owned();
        assert!(!names.contains("shuntfs.node"), "{mount}: {names:?}");
        room.umount(&[]).ok();
    }
    // Nobody is left to ask.
    shunt(&at, "mount --xattrs off src mnt").ok();
    on_an_old_kernel(&at, "why mnt/hello").fails(1, &["nobody tells the node of", "--xattrs off"]);
    room.umount(&[]).ok();
    fs::write(at.join("disk"), vec![0; 1 << 16]).expect("writes");
    shunt(&at, "export --log-file /dev/null disk shown").ok();
    is_the_same(&at, "why --json shown");
    shunt(&at, "umount shown").ok();
}
