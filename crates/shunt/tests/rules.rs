//! Rules from the command line: checked, shown, mounted, asked about, and read again.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use common::{Ran, Room, can_mount, eventually, shunt, signal};

fn file(room: &Room, text: &str) -> PathBuf {
    let path = room.path().join("rules.toml");
    fs::write(&path, text).expect("writes");
    path
}

fn rules(what: &str, file: &std::path::Path) -> Ran {
    shunt(["rules".as_ref(), what.as_ref(), file.as_os_str()])
}

#[test]
fn every_mistake_is_said_with_file_line_and_column() {
    let room = Room::new();
    let path = file(
        &room,
        "match = \"first\"\n[[rule]]\nraed_only = true\nuid = \"no such user\"\n[[rule]]\nflow = \"pasthrough\"\n\
        [[rule]]\nwhen = 'uid = 5'\nplace = \"nowhere\"\n",
    );
    let name = path.display();
    let ran = rules("check", &path);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.starts_with("shunt: there are "), "{}", ran.err);
    for line in [
        format!("{name}:3:1: unknown key `raed_only`; did you mean `read_only`?"),
        format!("{name}:4:7: there is no user `no such user` on this machine"),
        format!("{name}:6:8: unknown flow `pasthrough`; did you mean `passthrough`?"),
        format!("{name}:8:"),
        format!("{name}:9:9: unknown policy `nowhere`"),
    ] {
        assert!(ran.err.lines().any(|said| said.starts_with(&line)), "{line}\n{}", ran.err);
    }
    let ran = rules("check", &file(&room, "[[rule]\n"));
    assert!(ran.code == Some(1) && ran.err.contains("rules.toml:1:"), "{ran:?}");
    rules("check", &room.path().join("gone")).fails(1, &["cannot read the rules", "gone", "No such file"]);
    rules("check", &room.path()).fails(1, &["cannot read the rules"]);
    fs::write(room.path().join("bytes"), [0xff, 0xfe]).expect("writes");
    rules("check", &room.path().join("bytes")).fails(1, &["cannot read the rules", "UTF-8"]);
}

#[test]
fn a_rule_that_needs_a_seal_is_noted() {
    let room = Room::new();
    for (text, notes) in [
        ("[[rule]]\npath = 'a'\nhide = true\n\n[[rule]]\npath = 'b'\nverify = 'required'\n", true),
        ("[[rule]]\npath = 'b'\nverify = 'mount'\n", false),
    ] {
        let ran = rules("check", &file(&room, text)).ok();
        assert_eq!(ran.err.contains("line 5: the rule `"), notes, "{ran:?}");
        assert_eq!(ran.err.contains("--verify=if-sealed"), notes, "{ran:?}");
        assert!(rules("show", &file(&room, text)).ok().err.is_empty());
    }
}

#[test]
fn every_example_of_the_documentation_is_right_and_shown_as_it_is_meant() {
    let room = Room::new();
    let text = include_str!("../../../docs/rules.md");
    let examples: Vec<&str> =
        text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 4, "{} examples", examples.len());
    for example in examples {
        let path = file(&room, example);
        let ran = rules("check", &path).ok();
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""), "{example}");
        let shown = rules("show", &path).ok().out;
        assert_eq!(rules("show", &file(&room, &shown)).ok().out, shown, "{example}");
    }
}

#[test]
fn privileged_a_bad_file_mounts_nothing() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let path = file(&room, "[[rule]]\nhide = true\nbase = 'x'\n[[rule]]\n");
    let ran = room.try_mount(&["--rules", path.to_str().expect("UTF-8")]);
    assert_eq!(ran.code, Some(1));
    for words in ["there are 2 mistakes in the rules", "rules.toml:3:1: ", "rules.toml:4:1: "] {
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    assert_eq!(ran.err.lines().count(), 3, "{}", ran.err);
    assert!(!room.is_mounted());
    room.try_mount(&["--rules", "/no/such/rules"]).fails(1, &["cannot read the rules"]);
    room.try_mount(&["--view", "web"]).fails(2, &["--rules"]);
}

const SOME: &str = "[[rule]]\nname = 'locked'\nbasename = 'hello'\nuid = 71001\ndeny = 'EBUSY'\n\
    [[rule]]\nname = 'logs'\nbasename = '*.log'\nappend_only = true\nplace = 'ff'\n\
    [[rule]]\nname = 'slow'\npath = 'served*'\nflow.write = 'served'\n\
    [[rule]]\nname = 'secret'\nbasename = '*.key'\nhide = true\n\
    [[rule]]\nname = 'program'\nbasename = 'tool'\nexe = '/bin/only'\ndeny = 'EPERM'\n";

#[test]
fn privileged_why_and_explain_name_the_rule_the_flow_and_the_reason() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    for name in ["a.log", "served", "tool"] {
        fs::write(room.src().join(name), name).expect("writes");
    }
    room.mount(&["--rules", file(&room, SOME).to_str().expect("UTF-8")]).ok();
    let why = |name: &str, more: &[&str]| {
        let path = room.mnt().join(name);
        let words: Vec<&str> =
            ["why", path.to_str().expect("UTF-8")].into_iter().chain(more.iter().copied()).collect();
        shunt(words).ok().out
    };
    for (name, more, expected) in [
        (
            "hello",
            &["--as", "71001"][..],
            &["read: EBUSY", "decided by locked (line 1)", "a rule denies it"][..],
        ),
        ("hello", &["--as", "71002"], &["read: allowed, flows by", "no rule matches"]),
        (
            "a.log",
            &[],
            &["write: allowed, flows by served", "decided by logs (line 6)", "appends are served"],
        ),
        (
            "served",
            &[],
            &["write: allowed, flows by served", "a rule wishes for served", "read: allowed, flows by"],
        ),
        ("tool", &[], &["read: EACCES", "`program` cannot be evaluated", "none was named"]),
        ("tool", &["--exe", "/bin/only"], &["read: EPERM"]),
        ("tool", &["--exe", "/bin/other"], &["read: allowed"]),
    ] {
        let said = why(name, more);
        for words in expected {
            assert!(said.contains(words), "{name} {more:?}: `{words}` is not in\n{said}");
        }
    }
    let said: serde_json::Value =
        serde_json::from_str(&why("hello", &["--as", "71001", "--json"])).expect("JSON");
    assert_eq!(said["verdict"]["uses"][0]["answer"], "EBUSY", "{said}");

    let explain = |name: &str| {
        let path = room.mnt().join(name);
        shunt(["explain", "create", path.to_str().expect("UTF-8"), "--as", "71001"])
    };
    for (name, expected) in [
        ("new", &["create: allowed, flows by", "no rule matches", "placed on the one branch"][..]),
        ("new.log", &["create: allowed, flows by served", "decided by logs (line 6)", "placed by ff"]),
        ("new.key", &["create: EACCES", "secret", "hides the name"]),
        ("hello", &["is there already", "create: EBUSY"]),
    ] {
        let said = explain(name).ok().out;
        for words in expected {
            assert!(said.contains(words), "{name}: `{words}` is not in\n{said}");
        }
    }
    explain("no/such/folder").fails(1, &["cannot look up the folder"]);
    shunt(["why", room.mnt().join("hello").to_str().expect("UTF-8"), "--as", "no such user"])
        .fails(1, &["there is no user"]);
    assert!(!room.src().join("new").exists(), "explaining makes nothing");
}

#[test]
fn privileged_rules_are_read_again_on_sighup_and_a_bad_file_changes_nothing() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let path = file(&room, "[[rule]]\nbasename = 'hello'\nhide = true\n");
    room.mount(&["--rules", path.to_str().expect("UTF-8"), "--allow-other"]).ok();
    let status = || shunt(["status".as_ref(), room.mnt().as_os_str()]).ok().out;
    let is_there = || room.mnt().join("hello").exists();
    assert!(!is_there());
    assert!(status().contains("rules      1 of "), "{}", status());

    fs::write(&path, "[[rule]]\nhide = true\nbsename = 'x'\n").expect("writes");
    signal(room.pid(), "HUP");
    eventually("the mistake is shown", || status().contains("the earlier ones hold: there is a mistake"));
    assert!(status().contains("rules.toml:3:1: unknown key `bsename`"), "{}", status());
    assert!(!is_there());

    fs::write(&path, "[[rule]]\nbasename = 'other'\nhide = true\n").expect("writes");
    signal(room.pid(), "HUP");
    eventually("the name comes back", is_there);
    assert!(!status().contains("the earlier ones hold"), "{}", status());
    assert!(status().contains("read again 1 times"), "{}", status());
    assert_eq!(room.read("hello"), "hello there\n");

    fs::write(&path, "[[rule]]\nbasename = 'hello'\nwhen = 'uid / 0 == 1'\ndeny = 'EPERM'\n")
        .expect("writes");
    signal(room.pid(), "HUP");
    eventually("the rule refuses", || fs::read(room.mnt().join("hello")).is_err());
    assert!(status().contains("refused because a rule could not be evaluated"), "{}", status());

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("changes");
    fs::remove_file(&path).expect("removes");
    signal(room.pid(), "HUP");
    eventually("the missing file is shown", || status().contains("cannot read the rules"));
    assert!(room.is_mounted());
}
