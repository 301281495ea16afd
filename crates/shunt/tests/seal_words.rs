//! What seal, verify and show say of hostile names, of several paths at once, and of what cannot be read.

mod common;

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use common::{Ran, SHUNT, run};
use serde_json::Value;
use tempfile::TempDir;

struct Room(TempDir);

impl Room {
    fn new() -> Self {
        let room = Self(tempfile::tempdir().expect("a folder"));
        for tree in ["t", "u", "plain"] {
            fs::create_dir(room.at(tree)).expect("makes");
            fs::write(room.at(tree).join("file"), tree).expect("writes");
        }
        for tree in ["t", "u"] {
            room.shunt(&["seal", tree]).ok();
        }
        room
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn shunt(&self, words: &[&str]) -> Ran {
        run(Command::new(SHUNT).args(words).current_dir(self.0.path()))
    }

    fn documents(&self, words: &[&str]) -> (Vec<Value>, Ran) {
        let ran = self.shunt(words);
        (ran.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect(), ran)
    }
}

#[test]
fn one_path_that_cannot_be_verified_does_not_hide_the_others() {
    let room = Room::new();
    let ran = room.shunt(&["seal", "verify", "t", "plain", "gone", "u"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("/t: 1 file of 1 bytes: as sealed\n"), "{ran:?}");
    assert!(ran.out.contains("/u: 1 file of 1 bytes: as sealed\n"), "{ran:?}");
    assert!(ran.err.contains("plain is not sealed") && ran.err.contains("gone: No such file"), "{ran:?}");
    room.shunt(&["seal", "verify", "gone"]).fails(1, &["cannot verify gone: No such file or directory"]);
    let (all, ran) = room.documents(&["seal", "verify", "--json", "t", "plain", "gone", "u", "t/file"]);
    assert_eq!((all.len(), ran.code), (5, Some(1)), "{ran:?}");
    for document in &all {
        assert_eq!(document["format"], 1, "{document}");
        assert!(document["path"].is_string(), "{document}");
    }
    let errors: Vec<bool> = all.iter().map(|document| document["error"].is_string()).collect();
    assert_eq!(errors, [false, true, true, false, false]);
    assert_eq!(all[4]["path"], "t/file");
    assert_eq!(
        (&all[4]["files"], &all[4]["bytes"], &all[4]["is_trusted"]),
        (&1.into(), &1.into(), &false.into())
    );
}

#[test]
fn documents_of_single_files_have_the_same_fields() {
    let room = Room::new();
    room.shunt(&["seal", "plain/file"]).ok();
    fs::write(room.at("plain/file"), "PLAIN").expect("writes");
    let (all, _) = room.documents(&["seal", "verify", "--json", "plain/file"]);
    let document = &all[0];
    assert_eq!((&document["files"], &document["bytes"]), (&1.into(), &5.into()), "{document}");
    assert_eq!(document["findings"][0]["fault"], "data", "{document}");
    assert_eq!(document["findings"][0]["path"], "", "{document}");
}

#[test]
fn privileged_a_store_that_cannot_be_read_is_not_a_tree_that_is_not_sealed() {
    let room = Room::new();
    fs::set_permissions(room.0.path(), Permissions::from_mode(0o755)).expect("is ours");
    let program = room.at("shunt");
    run(Command::new("cp").arg(SHUNT).arg(&program)).ok();
    let as_nobody = |words: &[&str]| {
        run(Command::new(&program).args(words).current_dir(room.0.path()).uid(65534).gid(65534))
    };
    if !run(Command::new("id").arg("-u")).out.starts_with("0\n") {
        return println!("SKIPPED: being somebody else needs root");
    }
    for words in [&["verify", "t"][..], &["verify", "t/file"], &["show", "t"]] {
        as_nobody(words).fails(1, &["t/.shunt", "Permission denied"]);
    }
}

#[test]
fn hostile_names_are_printed_as_what_they_are() {
    let room = Room::new();
    let names: [(&[u8], &str); 5] = [
        (b"zz: 1 file of 2 bytes: as sealed\n", r"zz: 1 file of 2 bytes: as sealed\n"),
        (b"red\x1b[31m", r"red\x1b[31m"),
        (b"back\\slash", r"back\\slash"),
        (b"\xff\xfe", r"\xff\xfe"),
        ("txt\u{202e}exe".as_bytes(), r"txt\u{202e}exe"),
    ];
    for (name, _) in names {
        fs::write(room.at("t").join(OsStr::from_bytes(name)), "x").expect("writes");
    }
    symlink("\u{1b}]0;owned\u{7}", room.at("t/link")).expect("links");
    room.shunt(&["seal", "t"]).ok();
    let shown = room.shunt(&["seal", "show", "--list", "t"]).ok().out;
    for (_, wanted) in names {
        assert!(shown.lines().any(|line| line.ends_with(&format!(" {wanted}"))), "{wanted}: {shown}");
    }
    for (name, _) in names {
        fs::write(room.at("t").join(OsStr::from_bytes(name)), "y").expect("writes");
    }
    fs::remove_file(room.at("t/link")).expect("removes");
    symlink("\u{1b}]0;mine\u{7}", room.at("t/link")).expect("links");
    let said = room.shunt(&["seal", "verify", "t"]).out;
    for (_, wanted) in names {
        assert!(said.contains(&format!("/t/{wanted}: ")), "{wanted}: {said}");
    }
    assert!(said.contains(r"target \x1b]0;mine\x07 in place of \x1b]0;owned\x07"), "{said}");
    let is_plain = |text: &str| text.chars().all(|one| one == '\n' || !one.is_control());
    assert!(is_plain(&shown) && is_plain(&said), "{shown}{said}");
    // Names that differ in what is no text are told apart by programs, too.
    for name in [&b"\xf0"[..], b"\xf1"] {
        fs::write(room.at("u").join(OsStr::from_bytes(name)), "x").expect("writes");
    }
    let (all, _) = room.documents(&["seal", "verify", "u", "--json"]);
    let found = all[0]["findings"].as_array().expect("a list").clone();
    let hex: Vec<&str> = found.iter().filter_map(|one| one["path_hex"].as_str()).collect();
    assert_eq!(hex, ["f0", "f1"], "{found:?}");
    // What failed names them in the same way.
    let odd = room.at("odd\u{1b}[2J");
    fs::create_dir(&odd).expect("makes");
    let ran = room.shunt(&["seal", "verify", "odd\u{1b}[2J"]);
    assert!(is_plain(&ran.err) && ran.err.contains(r"odd\x1b[2J is not sealed"), "{ran:?}");
}

#[test]
fn attributes_that_a_copy_loses_can_be_left_out() {
    let room = Room::new();
    let file = fs::File::options().write(true).open(room.at("t/file")).expect("opens");
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("sets");
    fs::set_permissions(room.at("t/file"), Permissions::from_mode(0o600)).expect("is ours");
    room.shunt(&["seal", "verify", "t"]).fails(1, &["--ignore mode,mtime"]);
    room.shunt(&["seal", "verify", "t", "--ignore", "mtime"]).fails(1, &["not as sealed"]);
    room.shunt(&["seal", "verify", "t", "--ignore", "mtime,mode"]).ok();
    fs::write(room.at("t/file"), "T").expect("writes");
    room.shunt(&["seal", "verify", "t", "--ignore", "mtime,mode,owner,xattrs"]).fails(1, &["not as sealed"]);
    assert_eq!(room.shunt(&["seal", "verify", "t", "--ignore", "data"]).code, Some(2));
}

#[test]
fn hostile_names_in_refusals_are_printed_as_what_they_are() {
    let room = Room::new();
    let name = "a\\b\u{202e}c\x1b[2Jd";
    let shown = r"a\\b\u{202e}c\x1b[2Jd";
    fs::rename(room.at("t"), room.at(name)).expect("renames");
    let digest = format!("sha256:{}", "0".repeat(64));
    for words in [
        &["verify", name, "--digest", &digest][..],
        &["verify", "u", "--trust", name],
        &["verify", "u", "--trust-store", name],
        &["verify", "u", "--trust-store", &format!("{name}/none")],
        &["key", "show", name],
    ] {
        let ran = room.shunt(words);
        assert_eq!(ran.code, Some(1), "{words:?}: {ran:?}");
        assert!(ran.err.contains(shown), "{words:?}: {ran:?}");
        assert!(!ran.err.contains(name) && !ran.err.contains('\u{202e}'), "{words:?}: {ran:?}");
    }
}
