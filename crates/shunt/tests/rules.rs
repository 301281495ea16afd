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

/// Once such a command waited forever: for somebody at the other end of a FIFO, or for the end of `/dev/zero`.
#[test]
fn what_is_no_regular_file_is_not_opened() {
    let room = Room::new();
    let fifo = room.path().join("fifo");
    make_fifo(&fifo);
    std::os::unix::fs::symlink("fifo", room.path().join("link")).expect("links");
    for (path, what) in [
        (fifo, "it is a FIFO, not a regular file"),
        (room.path().join("link"), "it is a FIFO, not a regular file"),
        ("/dev/zero".into(), "it is a device, not a regular file"),
        (room.path().to_owned(), "it is a folder, not a regular file"),
    ] {
        for what_to_do in ["check", "show"] {
            rules(what_to_do, &path).fails(1, &["cannot read the rules in", what]);
        }
        if can_mount() {
            room.try_mount(&["--rules", path.to_str().expect("UTF-8")])
                .fails(1, &["cannot read the rules in", what]);
        }
    }
    let long = file(&room, &"#".repeat(9 << 20));
    rules("check", &long).fails(1, &["it has more than 8388608 bytes"]);
}

fn make_fifo(path: &std::path::Path) {
    common::run(std::process::Command::new("mkfifo").arg(path)).ok();
}

#[test]
fn several_files_are_checked_at_once_and_in_json() {
    let room = Room::new();
    let good = file(&room, "[[rule]]\nhide = true\n").display().to_string();
    let write = |name: &str, text: &str| {
        let path = room.path().join(name);
        fs::write(&path, text).expect("writes");
        path.display().to_string()
    };
    let bad = write("bad.toml", "[[rule]]\nhide = true\nwhen = 'uid == \"no such user\"'\n");
    let late = write(
        "late.toml",
        "[[rule]]\npath = '**'\nallow = true\n[[rule]]\nname = 'late'\npath = 'a'\nhide = true\n",
    );
    let gone = room.path().join("gone.toml").display().to_string();
    let check = |words: &[&str]| shunt(["rules", "check"].iter().chain(words));

    let ran = check(&[&good, &late]).ok();
    let warning = format!(
        "{late}:4:1: the rule `late` never decides: the rule `line 1` (line 1) decides before it on everything that it matches"
    );
    assert_eq!(ran.err.trim_end(), format!("shunt: warning: {warning}"));
    let ran = check(&["--strict", &late]);
    assert_eq!(
        (ran.code, ran.err.trim_end()),
        (Some(1), &*format!("shunt: there is a mistake in the rules\n{warning}"))
    );

    let ran = check(&[&good, &bad, &gone]);
    assert_eq!(ran.code, Some(1));
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines[0], "shunt: 2 of 3 files of rules cannot be taken");
    assert_eq!(lines[1], format!("{bad}:3:16: there is no user `no such user` on this machine"));
    assert_eq!(lines[2], format!("{gone}: No such file or directory"));

    let ran = check(&["--json", &good, &bad, &late, &gone]);
    assert_eq!(ran.code, Some(1));
    let document: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
    let said = &document["files"];
    let ok: Vec<_> = said.as_array().expect("a list").iter().map(|file| file["ok"].as_bool()).collect();
    assert_eq!(ok, [Some(true), Some(false), Some(true), Some(false)]);
    assert_eq!((&said[0]["rules"], &said[1]["rules"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!(said[1]["mistakes"][0]["line"], 3);
    assert_eq!(said[1]["mistakes"][0]["column"], 16);
    assert_eq!(said[2]["warnings"][0]["line"], 4);
    assert_eq!(said[3]["error"], "No such file or directory");
    check(&[]).fails_with_usage();
}

/// A FUSE server says of its files and folders whose they are, so root cannot tell from that who decides what a path leads to.
#[test]
fn privileged_rules_that_a_fuse_server_shows_are_not_taken() {
    if !can_mount() {
        return;
    }
    let (shown, room) = (Room::new(), Room::new());
    fs::write(shown.src().join("r.toml"), "[[rule]]\nbasename = 'hello'\nhide = true\n").expect("writes");
    shown.mount(&[]);
    let path = shown.mnt().join("r.toml");
    room.try_mount(&["--rules", path.to_str().expect("UTF-8")]).fails(1, &["are not trusted", "FUSE"]);
    assert!(!room.is_mounted());
}

/// Whoever can change the file decides who sees what.
#[test]
fn privileged_rules_that_others_can_change_are_not_taken() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let path = file(&room, "[[rule]]\nbasename = 'hello'\nhide = true\n");
    let try_mount = || room.try_mount(&["--rules", path.to_str().expect("UTF-8")]);
    let mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changes");
    };
    let owner = |path: &std::path::Path, uid| {
        std::os::unix::fs::chown(path, Some(uid), None).expect("gives away");
    };
    let refused = |words: &str| {
        try_mount().fails(1, &["are not trusted", words, "only root and the server's user may"]);
        assert!(!room.is_mounted());
        // To be looked at they are good enough, and it is said.
        let ran = rules("check", &path).ok();
        assert!(ran.err.contains("note: no mount of this user takes these rules") && ran.err.contains(words));
    };
    mode(&path, 0o664);
    refused("(mode 0664)");
    mode(&path, 0o644);
    owner(&path, 71001);
    refused("belongs to user 71001");
    owner(&path, 0);
    let before = fs::metadata(room.path()).expect("is there").permissions();
    mode(&room.path(), 0o777);
    refused("(mode 0777)");
    fs::set_permissions(room.path(), before).expect("changes");
    try_mount().ok();
    assert!(!room.mnt().join("hello").exists());
}

/// While it is mounted, somebody puts something else instead of the file, and it is read again.
#[test]
fn privileged_a_file_that_was_swapped_is_not_read_again() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let path = file(&room, "[[rule]]\nbasename = 'hello'\nhide = true\n");
    room.mount(&["--rules", path.to_str().expect("UTF-8"), "--allow-other"]).ok();
    let open = "[[rule]]\nallow = true\n";
    let theirs = room.path().join("theirs.toml");
    fs::write(&theirs, open).expect("writes");
    std::os::unix::fs::chown(&theirs, Some(71001), None).expect("gives away");
    let swaps: [(&dyn Fn(), &str); 5] = [
        (&|| make_fifo(&path), "it is a FIFO"),
        (&|| std::os::unix::fs::symlink("/dev/zero", &path).expect("links"), "it is a device"),
        (&|| std::os::unix::fs::symlink(&theirs, &path).expect("links"), "belongs to user 71001"),
        (&|| fs::write(&path, "").expect("writes"), "there is no rule"),
        (
            &|| fs::write(&path, "[[rule]]\nview = 'web'\nhide = true\nwhen = 'size'\n").expect("writes"),
            "a condition is true",
        ),
    ];
    for (swap, said) in swaps {
        fs::remove_file(&path).expect("removes");
        swap();
        signal(room.pid(), "HUP");
        let status = || shunt(["status".as_ref(), room.mnt().as_os_str()]).ok().out;
        eventually(said, || status().contains(said));
        assert!(status().contains("the earlier ones hold"), "{}", status());
        assert!(!room.mnt().join("hello").exists(), "{said}");
    }
    fs::remove_file(&path).expect("removes");
    fs::write(&path, open).expect("writes");
    signal(room.pid(), "HUP");
    eventually("what nobody else wrote is taken", || room.mnt().join("hello").exists());
}

/// A view with a mistake in its name showed what it was to leave out.
#[test]
fn privileged_a_view_that_no_rule_names_mounts_nothing() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let path = file(&room, "[[rule]]\nview = 'web'\nbasename = 'hello'\nhide = true\n");
    let path = path.to_str().expect("UTF-8");
    let ran = room.try_mount(&["--rules", path, "--view", "wbe"]);
    assert!(ran.code == Some(1) && ran.err.contains("unknown view `wbe`; did you mean `web`?"), "{ran:?}");
    assert!(!room.is_mounted());
    room.mount(&["--rules", path, "--view", "web"]).ok();
    assert!(!room.mnt().join("hello").exists());
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
    let texts = [include_str!("../../../docs/rules.md"), include_str!("../../../docs/tiers.md")];
    let of = |text: &'static str| text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples: Vec<&str> = texts.into_iter().flat_map(of).collect();
    assert!(examples.len() >= 6, "{} examples", examples.len());
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
    fs::set_permissions(room.src(), fs::Permissions::from_mode(0o777)).expect("changes");
    room.mount(&["--rules", file(&room, SOME).to_str().expect("UTF-8"), "--allow-other"]).ok();
    open_the_way(&room);
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
        ("tool", &[], &["read: depends on the program", "none was named", "add --exe PROGRAM"]),
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

const USER: u32 = 71001;

const MANY: &str = "[[rule]]\nname = 'hidden folder'\npath = 'photos/private'\nuid = 71001\nhide = true\n\
    [[rule]]\nname = 'fixed'\npath = 'ro/**'\nread_only = true\n\
    [[rule]]\nname = 'grows'\npath = 'log/**'\nappend_only = true\n\
    [[rule]]\nname = 'denied'\npath = 'denied/**'\nuid = 71001\ndeny = 'EPERM'\n\
    [[rule]]\nname = 'keys'\nbasename = '*.key'\nuid = 71001\nhide = true\n\
    [[rule]]\nname = 'not listed'\npath = 'unlisted'\nuid = 71001\ndeny = 'EACCES'\n";

/// What is asked, the two names, and what the user does then.
const ASKED: &[(&str, &str, &str, &str)] = &[
    ("read", "photos/private/a", "", "cat A"),
    ("list", "photos/private", "", "ls A"),
    ("remove", "photos/private", "", "rmdir A"),
    ("create", "photos/private/new", "", ": > A"),
    ("rename", "open/a", "photos/private/b", "mv -T A B"),
    ("rename", "photos/private", "photos/public", "mv -T A B"),
    ("mkdir", "photos/new", "", "mkdir A"),
    ("read", "ro/a", "", "cat A"),
    ("write", "ro/a", "", "dd if=/dev/null of=A conv=notrunc,nocreat"),
    ("truncate", "ro/a", "", "truncate -c -s 0 A"),
    ("remove", "ro/a", "", "rm A"),
    ("attributes", "ro/own", "", "chmod 600 A"),
    ("create", "ro/new", "", ": > A"),
    ("mkdir", "ro/folder", "", "mkdir A"),
    ("rename", "open/a", "ro/b", "mv -T A B"),
    ("rename", "ro/a", "open/b", "mv -T A B"),
    ("link", "ro/a", "open/c", "ln A B"),
    ("append", "log/a", "", ": >> A"),
    ("truncate", "log/a", "", "truncate -c -s 0 A"),
    ("remove", "log/a", "", "rm A"),
    ("rename", "log/a", "open/d", "mv -T A B"),
    ("attributes", "log/own", "", "chmod 600 A"),
    ("create", "log/new", "", ": >> A"),
    ("read", "denied/a", "", "cat A"),
    ("create", "denied/new", "", ": > A"),
    ("rename", "denied/a", "open/e", "mv -T A B"),
    ("link", "denied/a", "open/f", "ln A B"),
    ("read", "open/x.key", "", "cat A"),
    ("create", "open/y.key", "", ": > A"),
    ("create", "open/x.key", "", ": > A"),
    ("remove", "open/x.key", "", "rm A"),
    ("rename", "open/a", "open/z.key", "mv -T A B"),
    ("link", "open/a", "open/w.key", "ln A B"),
    ("list", "unlisted", "", "ls A"),
    ("list", "open", "", "ls A"),
    ("read", "closed/a", "", "cat A"),
    ("remove", "closed/a", "", "rm A"),
    ("read", "open/mine", "", "cat A"),
    ("write", "open/mine", "", "dd if=/dev/null of=A conv=notrunc,nocreat"),
    ("create", "fixed/new", "", ": > A"),
    ("remove", "sticky/a", "", "rm A"),
    ("attributes", "open/a", "", "chmod 600 A"),
    ("attributes", "open/own", "", "chmod 600 A"),
    ("exec", "open/a", "", "exec A"),
    ("exec", "open/run", "", "exec A"),
    ("write", "open/a", "", "dd if=/dev/null of=A conv=notrunc,nocreat"),
    ("link", "open/a", "open/g", "ln A B"),
    ("rename", "open/a", "open/h", "mv -T A B"),
    ("remove", "open/h", "", "rm A"),
];

/// Whoever does something on the mount has to come there.
fn open_the_way(room: &Room) {
    let top = room.path();
    let own = top.ancestors().take_while(|folder| *folder != std::env::temp_dir());
    own.for_each(|folder| fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("changes"));
}

fn fill_for_many(src: &std::path::Path) {
    let chmod = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changes");
    };
    chmod(src, 0o777);
    for folder in
        ["photos", "photos/private", "ro", "log", "denied", "open", "unlisted", "closed", "fixed", "sticky"]
    {
        fs::create_dir(src.join(folder)).expect("makes");
        chmod(&src.join(folder), 0o777);
    }
    for file in ["photos/private/a", "ro/a", "ro/own", "log/a", "log/own", "denied/a", "open/a", "open/x.key"]
        .iter()
        .chain(&["closed/a", "open/mine", "sticky/a", "open/own", "open/run"])
    {
        fs::write(src.join(file), "#!/bin/true\n").expect("writes");
        chmod(&src.join(file), 0o666);
    }
    for own in ["ro/own", "log/own", "open/own"] {
        std::os::unix::fs::chown(src.join(own), Some(USER), None).expect("gives away");
    }
    for (path, mode) in
        [("closed", 0o700), ("open/mine", 0o600), ("fixed", 0o755), ("sticky", 0o1777), ("open/run", 0o755)]
    {
        chmod(&src.join(path), mode);
    }
}

/// Once `explain` told only of making files, and `why` nothing of hidden parents, permissions and folders: a file that a
/// user could not reach was "allowed".
#[test]
fn privileged_what_is_said_is_what_happens() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    fill_for_many(&room.src());
    room.mount(&["--rules", file(&room, MANY).to_str().expect("UTF-8"), "--allow-other"]).ok();
    open_the_way(&room);
    let (mut wrong, mut told) = (Vec::new(), Vec::new());
    for (what, name, to, command) in ASKED {
        let at = |name: &str| room.mnt().join(name).display().to_string();
        let mut words = vec!["explain".to_owned(), (*what).to_owned(), at(name)];
        words.extend((!to.is_empty()).then(|| at(to)));
        words.extend(["--as".to_owned(), USER.to_string(), "--json".to_owned()]);
        let ran = shunt(&words);
        assert_eq!(ran.code, Some(0), "{ran:?} after {told:?}");
        let said: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
        let said = said["uses"][0]["answer"].as_str().expect("an answer").to_owned();
        let done = done_by_user(command, &at(name), &at(to));
        told.push(format!("{what} {name} {to}: {said}"));
        if said != done {
            wrong.push(format!("{what} {name} {to}: said {said}, and it is {done}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What happens to a command of the user at the paths A and B: `allowed`, or the name of the error.
fn done_by_user(command: &str, a: &str, b: &str) -> String {
    use std::os::unix::process::CommandExt;
    let mut shell = std::process::Command::new("sh");
    let command = command.replace('A', "\"$1\"").replace('B', "\"$2\"");
    shell.args(["-c", &command, "sh", a, b]).env("LC_ALL", "C").current_dir("/").uid(USER).gid(USER);
    let ran = common::run(&mut shell);
    if ran.code == Some(0) {
        return "allowed".to_owned();
    }
    let words = [
        ("Permission denied", "EACCES"),
        ("Operation not permitted", "EPERM"),
        ("Read-only file system", "EROFS"),
        ("No such file or directory", "ENOENT"),
        ("Directory nonexistent", "ENOENT"),
        ("not found", "ENOENT"),
    ];
    let found = words.iter().find(|(words, _)| ran.err.contains(words));
    found.map_or_else(|| format!("{ran:?}"), |(_, name)| (*name).to_owned())
}

#[test]
fn privileged_why_tells_of_folders_parents_and_permissions() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    fill_for_many(&room.src());
    room.mount(&["--rules", file(&room, MANY).to_str().expect("UTF-8"), "--allow-other"]).ok();
    open_the_way(&room);
    let why = |name: &str, user: &str| {
        shunt(["why", room.mnt().join(name).to_str().expect("UTF-8"), "--as", user]).ok().out
    };
    for (name, user, expected) in [
        (
            "photos/private/a",
            "71001",
            &[
                "read: ENOENT",
                "decided by hidden folder (line 1)",
                "the folder photos/private on the way is hidden",
            ][..],
        ),
        ("photos/private/a", "71002", &["read: allowed, flows by", "write: allowed", "remove: allowed"]),
        ("photos/private", "71001", &["is a folder", "list: ENOENT", "a rule hides the name"]),
        ("photos/private", "71002", &["is a folder", "list: allowed", "remove: allowed"]),
        ("open/mine", "71001", &["read: EACCES", "user 71001 may not read", "(mode 0600, owner 0, group 0)"]),
        ("closed/a", "71001", &["read: EACCES", "may not go through", "closed (mode 0700"]),
        ("closed/a", "0", &["read: allowed", "exec: EACCES"]),
        (
            "log/a",
            "71001",
            &["append: allowed, flows by served", "truncate: EPERM", "remove: EPERM", "append-only"],
        ),
        (
            "ro/a",
            "71001",
            &["write: EROFS", "a rule makes it read-only", "attributes: EPERM", "does not own it"],
        ),
        ("open", "71001", &["list: allowed", "no rule matches", "not considered: capabilities"]),
        ("", "71001", &["is a folder", "list: allowed", "remove: E"]),
    ] {
        let said = why(name, user);
        for words in expected {
            assert!(said.contains(words), "{name} {user}: `{words}` is not in\n{said}");
        }
    }
    // What is hidden from everybody cannot be looked up by whoever asks, and that is said.
    let path = room.mnt().join("gone");
    shunt(["why".as_ref(), path.as_os_str()])
        .fails(1, &["cannot look up", "No such file", "or a rule hides it from you"]);
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
    assert!(status().contains("read again once"), "{}", status());
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
