//! Mounts of several folders as one. What mounts needs root and /dev/fuse.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::{Ran, Room, SHUNT, can_mount, eventually, run, shunt, signal};

/// A room with the folders `a`, `b` and `c`.
fn room() -> Room {
    let room = Room::new();
    for name in ["a", "b", "c"] {
        fs::create_dir(room.path().join(name)).expect("makes");
    }
    room
}

fn at(room: &Room, path: &str) -> PathBuf {
    room.path().join(path)
}

/// A list of branches, of which `@` stands for the room.
fn list(room: &Room, text: &str) -> String {
    text.replace('@', room.path().to_str().expect("is text"))
}

fn mount(room: &Room, branches: &str, args: &[&str]) -> Ran {
    let branches = list(room, branches);
    run(Command::new(SHUNT).arg("mount").args(args).arg(branches).arg(room.mnt()))
}

#[test]
fn branches_that_cannot_be_are_refused_before_anything_happens() {
    let room = room();
    fs::create_dir(at(&room, "a/in")).expect("makes");
    fs::write(at(&room, "file"), "").expect("writes");
    for (branches, words) in [
        ("@/a:@/gone", &["gone", "No such file"][..]),
        ("@/a:@/file", &["file is not a folder"]),
        ("@/a:@/b:@/a", &["are the same folder", "once"]),
        ("@/a:@/a/in", &["/a/in is inside the branch", "twice"]),
        ("@/a/in:@/b:@/a", &["/a/in is inside the branch"]),
        ("@/a:@/mnt", &["SRC and MNT are the same folder"]),
        ("@/a:@", &["is inside SRC"]),
        ("@/nothing*", &["finds no folder"]),
    ] {
        mount(&room, branches, &[]).fails(1, words);
        assert!(!room.is_mounted(), "{branches}");
    }
    for (branches, args, words) in [
        ("@/a=ro:@/b", &[][..], &["no mode", "RW, RO or NC"][..]),
        ("@/a=RW,1X:@/b", &[], &["`1X` is not a size"]),
        ("@/a:@/b", &["-o", "category.create=best"], &["category.create", "one of ff, all, mfs"]),
        ("@/a:@/b", &["-o", "func.rmdir=epff"], &["func.rmdir", "on all branches"]),
        ("@/a=RW,id=x:@/b=RW,id=x", &[], &["two branches are called \"x\""]),
        ("@/a:@/b", &["-o", "inodecalc=devino"], &["inodecalc", "one of passthrough, path-hash"]),
        ("@/a", &["--create", "mfs"], &["SRC is one folder"]),
        ("@/a:@/b", &["--verify", "if-sealed"], &["--verify", "several branches", "A sealed branch"]),
        ("@/a", &["--handles", "--rules", "/rules"], &["rules go by names", "--handles"]),
    ] {
        mount(&room, branches, args).fails(2, words);
        assert!(!room.is_mounted(), "{branches} {args:?}");
    }
    for (args, words) in [
        (["--create", "best"], "one of ff, all, mfs"),
        (["--policy-for", "mkdir=best"], "one of ff, all, mfs"),
        (["--policy-for", "rmdir=ff"], "one of create, getattr, mkdir"),
        (["--inode-calc", "devino"], "one of passthrough, path-hash"),
    ] {
        let ran = mount(&room, "@/a:@/b", &args);
        assert!(ran.code == Some(2) && ran.err.contains(words), "{ran:?}");
    }
}

#[test]
fn privileged_several_folders_are_shown_as_one() {
    if !can_mount() {
        return;
    }
    let room = room();
    fs::create_dir(at(&room, "c/only")).expect("makes");
    for (path, text) in [("a/both", "of a"), ("b/both", "of b"), ("b/one", "of b"), ("c/only/one", "of c")] {
        fs::write(at(&room, path), text).expect("writes");
    }
    let args = ["--create", "ff", "--minfreespace", "0", "-o", "fsname=pool"];
    mount(&room, "@/a=RO:@/[bc]=RW,1K", &args).ok();
    assert!(room.is_mounted());
    assert_eq!([room.read("both"), room.read("one"), room.read("only/one")], ["of a", "of b", "of c"]);
    let mut names: Vec<_> = fs::read_dir(room.mnt())
        .expect("lists")
        .map(|entry| entry.expect("reads").file_name().into_string().expect("is text"))
        .collect();
    names.sort();
    assert_eq!(names, ["both", "one", "only"]);
    fs::write(room.mnt().join("only/new"), "new").expect("writes");
    assert_eq!(fs::read_to_string(at(&room, "b/only/new")).expect("was made there"), "new");
    assert_eq!(fs::write(room.mnt().join("both"), "").expect_err("is read-only").raw_os_error(), Some(30));
    // What changes on a branch is seen at once.
    fs::write(at(&room, "c/late"), "late").expect("writes");
    assert_eq!(room.read("late"), "late");
    let status = shunt(["status".as_ref(), room.mnt().as_os_str()]).ok().out;
    for words in ["/a RO, ", "/b RW, ", "/c RW, ", "MiB available", "  branches "] {
        assert!(status.contains(words), "{words}: {status}");
    }
    room.umount(&[]).ok();
}

#[test]
fn privileged_programs_work_on_several_folders() {
    if !can_mount() {
        return;
    }
    let room = room();
    mount(&room, "@/a:@/b:@/c", &["--create", "rand", "--minfreespace", "0"]).ok();
    let script = "set -e; cd \"$1\"; mkdir -p tree/deep/er; for i in $(seq 50); do echo $i > tree/$i; echo $i > tree/deep/er/$i; done; \
         cp -a tree copy; diff -r tree copy; tar cf all.tar tree; mkdir out; tar xf all.tar -C out; diff -r tree out/tree; \
         mv copy/deep copy/moved; mv copy/moved/er out/; test $(ls out/er | wc -l) = 50; ln tree/1 tree/linked; \
         test $(stat -c %h tree/1) = 2; test $(find tree -type f | wc -l) = 101; rm -r tree copy out all.tar; test -z \"$(ls -A)\"";
    let ran = run(Command::new("sh").arg("-c").arg(script).arg("sh").arg(room.mnt()));
    ran.ok();
    for name in ["a", "b", "c"] {
        let left: Vec<_> = fs::read_dir(at(&room, name)).expect("lists").collect();
        assert!(left.is_empty(), "{name}: {left:?}");
    }
    room.umount(&[]).ok();
}

/// `shunt branches`; in its words `%` stands for the mount, and `@` for the room.
fn change(room: &Room, words: &[&str]) -> Ran {
    let mnt = room.mnt();
    let words = words.iter().map(|word| word.replace('%', mnt.to_str().expect("is text")));
    shunt(["branches".to_owned()].into_iter().chain(words.map(|word| list(room, &word))))
}

#[test]
fn privileged_branches_come_and_go_while_files_are_open() {
    if !can_mount() {
        return;
    }
    for (cache, transport) in [("none", "device"), ("default", "cloned"), ("default", "auto")] {
        let room = room();
        for (path, text) in [("a/one", "of a"), ("b/one", "of b"), ("b/two", "of b"), ("c/three", "of c")] {
            fs::write(at(&room, path), text).expect("writes");
        }
        let args = ["--create", "ff", "--minfreespace", "0", "--cache", cache, "--transport", transport];
        mount(&room, "@/a:@/b", &args).ok();
        let change = |words: &[&str]| change(&room, words);
        let names = || {
            let names =
                fs::read_dir(room.mnt()).expect("lists").map(|entry| entry.expect("reads").file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().expect("is text")).collect();
            names.sort();
            names.concat()
        };
        let what = format!("{cache} {transport}");
        assert_eq!((room.read("one"), names()), ("of a".into(), "onetwo".into()), "{what}");
        assert!(!room.mnt().join("three").exists(), "{what}");
        let out = change(&["add", "%", "@/c=NC,1K"]).ok().out;
        assert!(out.contains("/c NC, ") && out.contains("/a RW, "), "{what}: {out}");
        assert_eq!((room.read("three"), names()), ("of c".into(), "onethreetwo".into()), "{what}");
        let (mut open, mut open_too) = (
            fs::File::options().read(true).write(true).open(room.mnt().join("two")).expect("opens"),
            fs::File::open(room.mnt().join("two")).expect("opens"),
        );
        change(&["remove", "%", "@/b"]).ok();
        assert_eq!((names(), room.mnt().join("two").exists()), ("onethree".into(), false), "{what}");
        std::io::Write::write_all(&mut open, b"OF").expect("goes on");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut open_too, &mut text).expect("goes on");
        assert_eq!((text.as_str(), open.metadata().expect("goes on").len()), ("OF b", 4), "{what}");
        drop((open, open_too));
        change(&["add", "%", "@/b", "--first"]).ok();
        assert_eq!((room.read("one"), room.read("two")), ("of b".into(), "OF b".into()), "{what}");
        let json = change(&["set", "%", "@/c:@/a=RO", "--json"]).ok().out;
        let document: serde_json::Value = serde_json::from_str(&json).expect("is JSON");
        assert_eq!((&document["branches"][1]["mode"], names()), (&"RO".into(), "onethree".into()), "{what}");
        let new = room.mnt().join("new");
        let said = shunt(["explain".as_ref(), "create".as_ref(), new.as_os_str()]).ok().out;
        assert!(said.contains("chosen") && said.contains("not: its mode is RO"), "{what}: {said}");
        fs::write(&new, "").expect("writes");
        assert!(at(&room, "c/new").exists(), "{what}");
        let json =
            shunt(["explain".as_ref(), "remove".as_ref(), new.as_os_str(), "--json".as_ref()]).ok().out;
        let said: serde_json::Value = serde_json::from_str(&json).expect("is JSON");
        assert_eq!(
            (&said["policy"], &said["branches"][0]["chosen"]),
            (&"epall".into(), &true.into()),
            "{what}"
        );
        assert_eq!(said["branches"][1]["why_not"], "its mode is RO", "{what}");
        room.umount(&[]).ok();
    }
}

#[test]
fn privileged_changes_of_branches_that_cannot_be_are_refused() {
    if !can_mount() {
        return;
    }
    let room = room();
    mount(&room, "@/c:@/a=RO", &["--minfreespace", "0"]).ok();
    for (words, said) in [
        (&["add", "%", "@/a"][..], "are the same folder"),
        (&["add", "%", "@/gone"], "gone"),
        (&["add", "%", "@/mnt"], "are the same folder"),
        (&["remove", "%", "@/b"], "is no branch"),
        (&["remove", "%", "@/a", "@/c"], "needs a branch"),
        (&["list", "@/a"], "is not a mount point"),
    ] {
        change(&room, words).fails(1, &[said]);
    }
    room.umount(&[]).ok();
}

#[test]
fn privileged_the_disk_of_a_removed_branch_can_be_unmounted() {
    if !can_mount() {
        return;
    }
    let room = room();
    for name in ["a", "b"] {
        run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(at(&room, name))).ok();
    }
    let text = {
        fs::create_dir(at(&room, "b/folder")).expect("makes");
        fs::write(at(&room, "b/folder/file"), "text").expect("writes");
        mount(&room, "@/a:@/b", &["--minfreespace", "0"]).ok();
        let mut open = fs::File::open(room.mnt().join("folder/file")).expect("opens");
        let remove =
            ["branches".as_ref(), "remove".as_ref(), room.mnt().as_os_str(), at(&room, "b").as_os_str()]
                .map(std::ffi::OsStr::to_owned);
        shunt(remove).ok();
        let busy = run(Command::new("umount").arg(at(&room, "b")));
        assert!(busy.code == Some(32), "a file there is open: {busy:?}");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut open, &mut text).expect("goes on");
        text
    };
    assert_eq!(text, "text");
    // The last close is told to the server when the caller has long gone on.
    let is_free = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        run(Command::new("umount").arg(at(&room, "b"))).code == Some(0)
    });
    fs::write(room.mnt().join("new"), "").expect("writes");
    room.umount(&[]).ok();
    // The server ends after the mount.
    eventually("the server lets go", || run(Command::new("umount").arg(at(&room, "a"))).code == Some(0));
    assert!(is_free, "nothing there is open");
}

/// Their paths together are longer than what the kernel takes for the source of a mount: it was refused, with EINVAL.
#[test]
fn privileged_many_branches_with_long_paths_are_mounted() {
    if !can_mount() {
        return;
    }
    let room = room();
    let names: Vec<String> = (0..12).map(|number| format!("{number}{}", "\u{e4}".repeat(60))).collect();
    for name in &names {
        fs::create_dir(at(&room, name)).expect("makes");
        fs::write(at(&room, name).join(name), "").expect("writes");
    }
    let list = names.iter().map(|name| format!("@/{name}")).collect::<Vec<_>>().join(":");
    mount(&room, &list, &["--minfreespace", "0"]).ok();
    let seen = fs::read_dir(room.mnt()).expect("lists").count();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("is there");
    let own = mounts.lines().find(|line| line.contains(room.mnt().to_str().expect("is text")));
    let is_cut = own.is_some_and(|line| line.contains("... rw"));
    room.umount(&[]).ok();
    assert_eq!((seen, is_cut), (12, true), "{own:?}");
}

#[test]
fn privileged_a_hundred_branches_are_one_pool() {
    const COUNT: usize = 100;
    if !can_mount() {
        return;
    }
    let room = room();
    for number in 0..COUNT {
        let branch = at(&room, &format!("disk{number}"));
        fs::create_dir_all(branch.join("all")).expect("makes");
        fs::write(branch.join(format!("all/{number}")), number.to_string()).expect("writes");
        fs::write(branch.join("copy"), number.to_string()).expect("writes");
    }
    mount(&room, "@/disk*=RW", &["--minfreespace", "0", "--create", "ff"]).ok();
    let top = room.mnt();
    let names = fs::read_dir(top.join("all")).expect("lists").count();
    let texts =
        (0..COUNT).map(|number| fs::read_to_string(top.join(format!("all/{number}"))).expect("reads"));
    let are_whole = texts.enumerate().all(|(number, text)| text == number.to_string());
    let shown = fs::read_to_string(top.join("copy")).expect("reads");
    // On each of them, or on none.
    fs::rename(top.join("all"), top.join("moved")).expect("moves");
    let moved =
        (0..COUNT).filter(|number| at(&room, &format!("disk{number}/moved/{number}")).exists()).count();
    fs::remove_file(top.join("copy")).expect("goes");
    let copies = (0..COUNT).filter(|number| at(&room, &format!("disk{number}/copy")).exists()).count();
    fs::write(top.join("moved/new"), "new").expect("writes");
    let listed = change(&room, &["list", "%"]).ok().out.lines().filter(|line| line.contains("/disk")).count();
    room.umount(&[]).ok();
    assert_eq!((names, are_whole, shown.as_str()), (COUNT, true, "0"));
    assert_eq!((moved, copies, listed), (COUNT, 0, COUNT));
    assert!(at(&room, "disk0/moved/new").exists());
}

#[test]
fn privileged_a_mount_waits_for_the_disks_of_its_branches() {
    if !can_mount() {
        return;
    }
    let room = room();
    for args in [&["--branches-wait", "1"][..], &["-o", "branches_wait=1"]] {
        mount(&room, "@/a:@/b", args).fails(1, &["after 1 seconds", "nothing is mounted at", "/a"]);
    }
    let late = ["a", "b"].map(|name| at(&room, name));
    let waiting = std::thread::scope(|scope| {
        let mounting = scope.spawn(|| mount(&room, "@/a:@/b", &["--branches-wait", "30"]));
        for disk in &late {
            std::thread::sleep(std::time::Duration::from_millis(300));
            run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(disk)).ok();
        }
        mounting.join().expect("ends")
    });
    let is_mounted = room.is_mounted();
    room.umount(&[]);
    for disk in &late {
        // The server ends after the mount.
        eventually("the server lets go", || run(Command::new("umount").arg(disk)).code == Some(0));
    }
    waiting.ok();
    assert!(is_mounted);
}

#[test]
fn privileged_rules_say_where_files_are_made() {
    if !can_mount() {
        return;
    }
    let room = room();
    fs::create_dir(at(&room, "a/photos")).expect("makes");
    let rules = at(&room, "rules.toml");
    let place = |place: &str| format!("[[rule]]\nname = 'photos'\npath = 'photos/**'\nplace = '{place}'\n");
    fs::write(&rules, place("id=last")).expect("writes");
    let rules_at = rules.to_str().expect("is text");
    let args = ["--create", "ff", "--minfreespace", "0", "--rules", rules_at];
    mount(&room, "@/a=RW:@/b=RW,id=last", &args).ok();
    let (new, other) = (room.mnt().join("photos/new"), room.mnt().join("other"));
    let said = shunt(["explain".as_ref(), "create".as_ref(), new.as_os_str()]).ok().out;
    assert!(said.contains("the rule `photos` places it: id=last"), "{said}");
    for path in [&new, &other] {
        fs::write(path, "").expect("writes");
    }
    assert!(at(&room, "b/photos/new").exists() && at(&room, "a/other").exists());
    let why = |path: &PathBuf| shunt(["why".as_ref(), path.as_os_str()]).ok().out;
    assert!(why(&new).contains("/b, as the rule `photos` says: id=last"), "{}", why(&new));
    assert!(why(&other).contains("/a, by the policy ff"), "{}", why(&other));

    let status = || shunt(["status".as_ref(), room.mnt().as_os_str()]).ok().out;
    for (text, said) in [
        (place("id=gone"), "which is no branch"),
        (place("ff") + "hide = true\n", "says `hide`, and the pool was mounted with rules that only place"),
    ] {
        fs::write(&rules, text).expect("writes");
        signal(room.pid(), "HUP");
        eventually(said, || status().contains(said));
        assert!(status().contains("the earlier ones hold"), "{}", status());
    }
    fs::write(&rules, place("ff")).expect("writes");
    signal(room.pid(), "HUP");
    eventually("they are taken", || !status().contains("the earlier ones hold"));
    fs::write(room.mnt().join("photos/newer"), "").expect("writes");
    assert!(at(&room, "a/photos/newer").exists());
    room.umount(&[]).ok();
    fs::write(&rules, place("/nowhere")).expect("writes");
    mount(&room, "@/a=RW:@/b=RW,id=last", &args).fails(1, &["which is no branch"]);

    // Rules that judge, too: what they say stands beside where it would go.
    fs::write(at(&room, "b/secret"), "").expect("writes");
    fs::write(&rules, place("id=last") + "[[rule]]\nname = 'gone'\nbasename = 'secret'\nhide = true\n")
        .expect("writes");
    mount(&room, "@/a=RW:@/b=RW,id=last", &args).ok();
    assert!(!room.mnt().join("secret").exists());
    assert!(fs::write(room.mnt().join("secret"), "").is_err() && !at(&room, "a/secret").exists());
    let said = |name: &str| {
        let ran = shunt(["explain".as_ref(), "create".as_ref(), room.mnt().join(name).as_os_str()]).ok();
        (ran.out.contains("the rule `photos` places it"), ran.out.contains("create: EACCES"))
    };
    assert_eq!((said("photos/more"), said("secret")), ((true, false), (false, true)));
    assert!(why(&room.mnt().join("photos/new")).contains("read: allowed"));
    room.umount(&[]).ok();
}
