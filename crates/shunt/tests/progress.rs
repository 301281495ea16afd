//! Long work shows on a terminal how far it is, and says nothing of it elsewhere.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Ran, Room, SHUNT, can_mount, run, shunt};

/// Runs shunt on a terminal, which `script` makes; what it shows there is its output.
fn on_terminal(folder: &Path, words: &str) -> Option<Ran> {
    let has = Command::new("script").arg("--version").output().is_ok();
    if !has {
        println!("SKIPPED: script is not installed (apt-get install bsdutils)");
        return None;
    }
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &format!("{SHUNT} {words}"), "/dev/null"]);
    Some(run(script.current_dir(folder).env("TERM", "xterm")))
}

/// Does the same on a terminal and without one, `again` making the second time like the first.
#[track_caller]
fn seen_only_on_a_terminal(folder: &Path, words: &str, bar: &str, again: impl Fn()) {
    let Some(shown) = on_terminal(folder, words) else { return };
    assert!(shown.code == Some(0) && shown.out.contains(bar), "{words}: no `{bar}` in {shown:?}");
    // It is removed: the last thing but the result is to clear the line.
    assert!(shown.out.contains("\u{1b}[2K") || shown.out.contains("\u{1b}[K"), "{words}: {shown:?}");
    again();
    let plain = run(Command::new(SHUNT).args(words.split(' ')).current_dir(folder)).ok();
    for text in [&plain.out, &plain.err] {
        assert!(!text.contains(bar) && !text.contains('\u{1b}'), "{words}: {plain:?}");
    }
}

#[test]
fn hashing_is_seen_on_a_terminal_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::create_dir(at.join("tree")).expect("makes");
    for name in ["tree/large", "file"] {
        fs::File::create(at.join(name)).expect("makes").set_len(64 << 20).expect("grows");
    }
    shunt(["seal".as_ref(), "key".as_ref(), "new".as_ref(), at.join("key").as_os_str()]).ok();
    let no = || {};
    seen_only_on_a_terminal(at, "seal digest file", "hashing", no);
    seen_only_on_a_terminal(at, "seal sign file --key key", "hashing", no);
    let unsealed = || fs::remove_dir_all(at.join("tree/.shunt")).expect("removes");
    seen_only_on_a_terminal(at, "seal tree", "sealing", unsealed);
    // Its later phases, too.
    seen_only_on_a_terminal(at, "seal tree --rehash", "writing to the disk", no);
    seen_only_on_a_terminal(at, "seal verify tree", "verifying", no);
    seen_only_on_a_terminal(at, "seal file", "sealing", no);
    seen_only_on_a_terminal(at, "seal verify file", "verifying", no);
}

/// Programs get names as they are, as those of `fsverity digest` do.
#[test]
fn a_terminal_does_not_obey_the_name_of_a_file_that_is_hashed() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().expect("a folder");
    let name = b"e\x1bc\xff";
    fs::write(folder.path().join(std::ffi::OsStr::from_bytes(name)), "text").expect("writes");
    let Some(ran) = on_terminal(folder.path(), "seal digest e*") else { return };
    assert!(ran.out.contains(r" e\x1bc\xff"), "{ran:?}");
    let piped =
        Command::new("sh").args(["-c", &format!("{SHUNT} seal digest e*")]).current_dir(&folder).output();
    let out = piped.expect("starts").stdout;
    assert!(out.ends_with(&[b" ", &name[..], b"\n"].concat()), "{out:?}");
}

#[test]
fn privileged_servers_are_waited_for_visibly_on_a_terminal_alone() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let at = room.path();
    fs::write(at.join("rules"), "[[rule]]\npath = 'secret'\nhide = true\n").expect("writes");
    let again = || {
        room.umount(&[]).ok();
    };
    let mount = "mount --rules rules --log-file /dev/null src mnt";
    seen_only_on_a_terminal(&at, mount, "searching for hard links", again);
    again();
    let rules =
        format!("[[rule]]\npath = '**'\nmove = {{ to = '{}', after = '0s' }}\n", at.join("b").display());
    fs::write(at.join("rules"), rules).expect("writes");
    fs::create_dir(at.join("b")).expect("makes");
    run(Command::new(SHUNT)
        .args(["mount", "--rules", "rules", "--log-file", "/dev/null", "src:b", "mnt"])
        .current_dir(&at))
    .ok();
    seen_only_on_a_terminal(&at, "mover run mnt", "searching", || ());
    again();
    fs::write(at.join("disk"), vec![0; 1 << 16]).expect("writes");
    let export = || {
        run(Command::new(SHUNT)
            .args(["export", "-w", "--log-file", "/dev/null", "disk", "shown"])
            .current_dir(&at))
        .ok();
    };
    export();
    seen_only_on_a_terminal(&at, "umount shown", "writing to the disk", export);
}
