//! A pool under rules, mounted for real and used by several users. Needs root and /dev/fuse.
//!
//! Every mount has a supervisor outside of this process that aborts it after a minute, so that nothing hangs for longer.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shuntfs::{MountOptions, Session, SessionOptions};
use shuntfs_pool::{Caller, Pool, PoolOptions, RuleControl};
use shuntfs_rules::{Access, OpenWord, Use};
use shuntfs_testkit::lower::{LowerKind, LowerSpec};
use shuntfs_testkit::supervisor::Supervisor;

use mounted::users::{self, ALICE, BOB, rules};

const LIMIT: Duration = Duration::from_secs(60);

struct Mounted {
    session: Option<Session>,
    control: Option<RuleControl>,
    lower: PathBuf,
    top: PathBuf,
    _supervisor: Supervisor,
    folders: Vec<tempfile::TempDir>,
}

/// Mounts a folder that `fill` has filled, under rules; `None` is without any.
fn mount(text: Option<&str>, fill: impl FnOnce(&Path)) -> Option<Mounted> {
    let lower = tempfile::tempdir().unwrap();
    let mut mounted = mount_at(lower.path(), text, fill)?;
    mounted.folders.push(lower);
    Some(mounted)
}

fn mount_at(lower: &Path, text: Option<&str>, fill: impl FnOnce(&Path)) -> Option<Mounted> {
    let folder = tempfile::tempdir().unwrap();
    let (lower, top) = (lower.to_owned(), folder.path().to_owned());
    fs::set_permissions(&lower, fs::Permissions::from_mode(0o777)).unwrap();
    fill(&lower);
    let options = PoolOptions::new(&lower);
    let pool = match text {
        Some(text) => Pool::open_with_rules(&options, rules(text)).unwrap(),
        None => Pool::open(&options).unwrap(),
    };
    let control = pool.rule_control();
    let how = MountOptions { allow_other: true, ..MountOptions::default() };
    let session = match Session::mount(Arc::new(pool), &top, &how, &SessionOptions::default()) {
        Ok(session) => session,
        Err(error) => {
            eprintln!("SKIPPED: cannot mount here: {error}");
            return None;
        }
    };
    let supervisor = Supervisor::of(&top, LIMIT).unwrap();
    let session = Some(session);
    Some(Mounted { session, control, lower, top, _supervisor: supervisor, folders: vec![folder] })
}

impl Mounted {
    fn at(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    fn below(&self, name: &str) -> PathBuf {
        self.lower.join(name)
    }

    /// What a script says that a user runs in the mount, with its errors.
    fn says(&self, uid: u32, script: &str) -> String {
        users::says(&self.top, uid, script)
    }

    /// Fails unless the script says `expected`, or ends with it.
    fn expect(&self, uid: u32, script: &str, expected: &str) {
        users::expect(&self.top, uid, script, expected);
    }

    fn control(&self) -> &RuleControl {
        self.control.as_ref().unwrap()
    }

    /// Requests so far, by operation.
    fn requests(&self) -> BTreeMap<String, u64> {
        let status = self.session.as_ref().unwrap().status();
        status.ops.into_iter().map(|(op, counts)| (op, counts.requests)).collect()
    }

    fn opens(&self, flow: &str) -> u64 {
        let status = self.session.as_ref().unwrap().status();
        status.flows.get(flow).copied().unwrap_or(0)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = session.unmount();
            drop(session);
        }
    }
}

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let mut parent = path.parent();
    while let Some(folder_on_the_way) = parent.filter(|parent| *parent != folder) {
        fs::set_permissions(folder_on_the_way, fs::Permissions::from_mode(0o777)).unwrap();
        parent = folder_on_the_way.parent();
    }
}

#[test]
fn a_hidden_name_is_not_there_and_not_overwritten() {
    let text = "[[rule]]\nbasename = '*.key'\nhide = true\n";
    let Some(mounted) = mount(Some(text), |folder| {
        put(folder, "a.key", "secret");
        put(folder, "a.txt", "text");
    }) else {
        return;
    };
    for _ in 0..2 {
        mounted.expect(0, "cat a.key", "No such file or directory");
        mounted.expect(0, "ls -a", ".\n..\na.txt");
        mounted.expect(0, "ls -l | wc -l", "2");
        mounted.expect(0, "echo new > a.key", "Permission denied");
        mounted.expect(0, "echo new > b.key", "cannot create b.key: Permission denied");
        mounted.expect(0, "mkdir a.key", "Permission denied");
        mounted.expect(0, "mkdir b.key", "Permission denied");
        mounted.expect(0, "ln -s x a.key", "Permission denied");
        mounted.expect(0, "ln a.txt a.key", "Permission denied");
        mounted.expect(0, "mv a.txt a.key", "Permission denied");
        mounted.expect(0, "mv a.txt b.key", "Permission denied");
        mounted.expect(0, "rm a.key", "No such file or directory");
        mounted.expect(0, "mv a.key c.txt", "No such file or directory");
        mounted.expect(0, "cat a.txt", "text");
    }
    assert_eq!(fs::read_to_string(mounted.below("a.key")).unwrap(), "secret");
    assert!(!mounted.below("b.key").exists());
}

#[test]
fn a_name_hidden_from_one_is_there_for_another_at_any_time() {
    let text = "[[rule]]\npath = 'd/**'\nuid = BOB\nhide = true\n";
    let Some(mounted) = mount(Some(text), |folder| {
        put(folder, "d/f", "for alice");
        put(folder, "d/sub/g", "deep");
        put(folder, "e/f", "for all");
    }) else {
        return;
    };
    for _ in 0..3 {
        mounted.expect(ALICE, "cat d/f d/sub/g", "for alicedeep");
        mounted.expect(BOB, "cat d/f", "No such file or directory");
        mounted.expect(BOB, "cat d/sub/g", "No such file or directory");
        mounted.expect(ALICE, "ls d", "f\nsub");
        mounted.expect(BOB, "ls d", "");
        mounted.expect(BOB, "ls -l d", "total 0");
        mounted.expect(ALICE, "ls -l d | wc -l", "3");
        mounted.expect(BOB, "echo x > d/f", "Permission denied");
        mounted.expect(BOB, "cat e/f", "for all");
    }
    assert_eq!(fs::read_to_string(mounted.below("d/f")).unwrap(), "for alice");
    // A listing that one user began shows to another what is the other's to see.
    mounted.expect(ALICE, "mv d/f e/g && cat e/g", "for alice");
    mounted.expect(BOB, "cat e/g", "for alice");
    mounted.expect(ALICE, "mv e/g d/f", "");
    mounted.expect(BOB, "cat d/f e/g", "No such file or directory");
}

#[test]
fn a_denied_file_is_refused_with_the_error_of_choice() {
    let text = "[[rule]]\npath = 'p/**'\nuid = BOB\ndeny = 'EBUSY'\n\
        [[rule]]\nbasename = '*.sh'\nopen = 'exec'\ndeny = 'EACCES'\n\
        [[rule]]\nbasename = 'w*'\nopen = ['write', 'truncate']\ndeny = 'EPERM'\n\
        [[rule]]\nbasename = 'c*'\nopen = 'create'\ndeny = 'EDQUOT'\n";
    let Some(mounted) = mount(Some(text), |folder| {
        put(folder, "p/sub/f", "p");
        put(folder, "w", "w");
        put(folder, "run.sh", "#!/bin/sh\necho ran\n");
        fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    }) else {
        return;
    };
    mounted.expect(BOB, "cat p/sub/f", "Device or resource busy");
    mounted.expect(BOB, "ls p/sub", "Device or resource busy");
    mounted.expect(BOB, "ls p", "sub");
    mounted.expect(BOB, "stat -c %s p/sub/f", "1");
    mounted.expect(ALICE, "cat p/sub/f", "p");
    mounted.expect(BOB, "touch p/sub/new", "Device or resource busy");
    mounted.expect(BOB, "truncate -s 0 p/sub/f", "Device or resource busy");
    mounted.expect(0, "./run.sh", "Permission denied");
    mounted.expect(0, "sh run.sh", "ran");
    mounted.expect(0, "cat w", "w");
    mounted.expect(0, "echo x >> w", "Operation not permitted");
    mounted.expect(0, "echo x > w", "Operation not permitted");
    mounted.expect(0, "perl -e 'truncate(\"w\", 0) or print \"$!\"'", "Operation not permitted");
    mounted.expect(0, "echo x > c", "Disk quota exceeded");
    assert_eq!(fs::read_to_string(mounted.below("w")).unwrap(), "w");
}

#[test]
fn a_read_only_file_is_as_on_a_read_only_mount() {
    let text = "[[rule]]\npath = 'r/**'\nread_only = true\n";
    let Some(mounted) = mount(Some(text), |folder| {
        put(folder, "r/f", "f");
        put(folder, "x", "x");
    }) else {
        return;
    };
    mounted.expect(0, "cat r/f", "f");
    for script in [
        "echo x > r/f",
        "echo x >> r/f",
        "perl -e 'truncate(\"r/f\", 0) or print \"$!\"'",
        "chmod 600 r/f",
        "touch r/f",
        "setfattr -n user.a -v b r/f",
        "rm -f r/f",
        "mv r/f y",
        "mv x r/f",
        "ln r/f y",
        "echo x > r/new",
        "mkdir r/new",
        "mv x r/x",
    ] {
        mounted.expect(0, script, "Read-only file system");
    }
    assert_eq!(fs::read_to_string(mounted.below("r/f")).unwrap(), "f");
    assert!(mounted.below("x").exists() && !mounted.below("y").exists());
}

#[test]
fn an_append_only_file_grows_and_does_nothing_else() {
    let text = "[[rule]]\nbasename = '*.log'\nappend_only = true\n";
    let Some(mounted) = mount(Some(text), |folder| {
        put(folder, "a.log", "one\n");
        put(folder, "x", "x");
    }) else {
        return;
    };
    mounted.expect(0, "echo two >> a.log; cat a.log", "one\ntwo");
    for script in [
        "echo x > a.log",
        "echo x 1<> a.log >&1",
        "perl -e 'truncate(\"a.log\", 0) or print \"$!\"'",
        "perl -e 'open(F, \"+>>\", \"a.log\") or print \"$!\"'",
        "chmod 600 a.log",
        "rm -f a.log",
        "mv a.log b",
        "mv x a.log",
        "ln a.log b",
    ] {
        mounted.expect(0, script, "Operation not permitted");
    }
    let file = OpenOptions::new().append(true).open(mounted.at("a.log")).unwrap();
    (&file).write_all(b"three\n").unwrap();
    assert_eq!(file.set_len(0).unwrap_err().raw_os_error(), Some(1));
    // What the kernel would let pass: the flag is taken from the open file.
    take_append_from(&file);
    let refused = file.write_at(b"new", 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(1));
    let end = file.metadata().unwrap().len();
    assert_eq!(file.write_at(b"far", end + 100).unwrap_err().raw_os_error(), Some(1));
    assert_eq!(file.write_at(b"four\n", end).unwrap(), 5);
    assert_eq!(fs::read_to_string(mounted.below("a.log")).unwrap(), "one\ntwo\nthree\nfour\n");
    assert_eq!(fs::read_to_string(mounted.at("a.log")).unwrap(), "one\ntwo\nthree\nfour\n");
    // A new one is made by whoever appends to it.
    mounted.expect(0, "echo x > new.log", "Operation not permitted");
    mounted.expect(0, "echo x >> new.log; cat new.log", "x");
}

fn take_append_from(file: &File) {
    let flags = rustix::fs::fcntl_getfl(file).unwrap();
    rustix::fs::fcntl_setfl(file, flags - rustix::fs::OFlags::APPEND).unwrap();
}

#[test]
fn flows_are_chosen_by_rule_and_by_what_an_open_is_for() {
    let text = "[[rule]]\npath = 's/*'\nflow = 'served'\n[[rule]]\npath = 'w/*'\nflow.write = 'served'\n";
    let Some(mounted) = mount(Some(text), |folder| {
        for name in ["s/f", "w/f", "f"] {
            put(folder, name, name);
        }
    }) else {
        return;
    };
    assert_eq!(fs::read_to_string(mounted.at("s/f")).unwrap(), "s/f");
    assert_eq!((mounted.opens("served"), mounted.opens("passthrough")), (1, 0));
    assert_eq!(fs::read_to_string(mounted.at("f")).unwrap(), "f");
    assert_eq!(fs::read_to_string(mounted.at("w/f")).unwrap(), "w/f");
    assert_eq!((mounted.opens("served"), mounted.opens("passthrough")), (1, 2));
    fs::write(mounted.at("w/f"), "new").unwrap();
    fs::write(mounted.at("f"), "new").unwrap();
    assert_eq!((mounted.opens("served"), mounted.opens("passthrough")), (2, 3));
    assert_eq!(fs::read_to_string(mounted.below("w/f")).unwrap(), "new");
    let both = OpenOptions::new().read(true).write(true).open(mounted.at("w/f")).unwrap();
    both.write_all_at(b"N", 0).unwrap();
    let mut seen = [0; 3];
    both.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!((&seen, fs::read(mounted.below("w/f")).unwrap()), (b"New", b"New".to_vec()));
    let status = mounted.session.as_ref().unwrap().status();
    assert_eq!(status.write_flows.get("served"), Some(&1), "{status:?}");
    assert_eq!(status.flows["splice"] + status.flows["relay"], 1, "{status:?}");
}

#[test]
fn nobody_moves_or_links_a_file_away_from_its_rule() {
    let text = "[[rule]]\npath = 'private/**'\nuid = BOB\ndeny = 'EACCES'\n";
    let Some(mounted) = mount(Some(text), |folder| {
        put(folder, "private/sub/f", "f");
        put(folder, "private/twice", "t");
        put(folder, "public/x", "x");
        put(folder, "up/y", "y");
        fs::hard_link(folder.join("private/twice"), folder.join("public/twice")).unwrap();
    }) else {
        return;
    };
    for script in [
        "mv -T private/sub/f public/f",
        "ln private/sub/f public/f",
        "mv -T private public/private",
        "mv -T private/sub public/sub",
    ] {
        mounted.expect(BOB, script, "Permission denied");
    }
    // renameat2 with RENAME_EXCHANGE.
    if cfg!(target_arch = "x86_64") {
        let exchange = |from, to| {
            let names = format!("($a, $b) = (\"{from}\", \"{to}\")");
            format!("perl -e '{names}; syscall(316, -100, $a, -100, $b, 2) and print \"$!\"'")
        };
        mounted.expect(BOB, &exchange("private/sub/f", "public/x"), "Permission denied");
        mounted.expect(BOB, &exchange("public/x", "private/sub/f"), "Permission denied");
    }
    // Who may do everything with it may move it, and it is judged by where it is.
    mounted.expect(ALICE, "mv public/x private/x", "");
    mounted.expect(BOB, "cat private/x", "Permission denied");
    mounted.expect(ALICE, "mv up private/up && mv private/sub public/sub", "");
    mounted.expect(BOB, "cat private/up/y", "Permission denied");
    mounted.expect(BOB, "cat public/sub/f", "f");
    // A second name gives no more than the first, and the first cannot be removed to be rid of it.
    mounted.expect(BOB, "cat private/twice", "Permission denied");
    mounted.expect(BOB, "cat public/twice", "Permission denied");
    mounted.expect(BOB, "rm -f private/twice", "Permission denied");
    mounted.expect(ALICE, "cat public/twice", "t");
}

#[test]
fn rules_change_while_mounted_and_open_files_stay_open() {
    let Some(mounted) = mount(Some("[[rule]]\nbasename = 'b'\nhide = true\n"), |folder| {
        put(folder, "a", "a");
        put(folder, "b", "b");
    }) else {
        return;
    };
    mounted.expect(0, "ls; cat a; cat b", "No such file or directory");
    let open = File::open(mounted.at("a")).unwrap();
    mounted.control().replace(rules("[[rule]]\nbasename = 'a'\nhide = true\n")).unwrap();
    mounted.expect(0, "ls", "b");
    mounted.expect(0, "cat b", "b");
    mounted.expect(0, "cat a", "No such file or directory");
    assert_eq!(std::io::read_to_string(&open).unwrap(), "a");
    mounted.control().failed("rules:1:1: wrong".into());
    let facts = mounted.control().facts();
    assert_eq!((facts.rules, facts.reloads, facts.failures), (1, 1, 0));
    assert_eq!(facts.error.as_deref(), Some("rules:1:1: wrong"));
    mounted.control().replace(rules("[[rule]]\nbasename = 'a'\ndeny = 'EIO'\n")).unwrap();
    mounted.expect(0, "cat a", "Input/output error");
    assert_eq!(mounted.control().facts().error, None);
}

#[test]
fn a_rule_that_fails_refuses_and_is_counted() {
    let text = "[[rule]]\nbasename = 'f'\nwhen = 'uid / 0 == 1'\nallow = true\n\
        [[rule]]\nbasename = 'g'\nwhen = 'size / (uid - uid) == 1'\nhide = true\n";
    let Some(mounted) = mount(Some(text), |folder| {
        for name in ["f", "g", "h"] {
            put(folder, name, name);
        }
    }) else {
        return;
    };
    mounted.expect(0, "cat f", "Permission denied");
    mounted.expect(0, "cat g", "Permission denied");
    mounted.expect(0, "cat h", "h");
    mounted.expect(0, "ls", "f\nh");
    assert!(mounted.control().facts().failures >= 3);
}

#[test]
fn callers_are_told_by_groups_program_and_attributes() {
    let text = "[[rule]]\nbasename = 'e'\nexe = '**/cat'\ndeny = 'EPERM'\n\
        [[rule]]\nbasename = 'g'\ngroups = 71009\ndeny = 'EPERM'\n\
        [[rule]]\nbasename = 's'\nsize = { min = 3 }\ndeny = 'EPERM'\n\
        [[rule]]\nbasename = 't*'\ntype = 'image/png'\ndeny = 'EPERM'\n\
        [[rule]]\nbasename = 'w'\nwhen = '\"write\" in open && uid == ALICE'\ndeny = 'EPERM'\n";
    let Some(mounted) = mount(Some(text), |folder| {
        for name in ["e", "g", "s", "t1", "w"] {
            put(folder, name, name);
        }
        fs::write(folder.join("t2"), b"\x89PNG\r\n\x1a\n....").unwrap();
    }) else {
        return;
    };
    mounted.expect(0, "cat e", "Operation not permitted");
    mounted.expect(0, "head e", "e");
    mounted.expect(0, "cat g", "g");
    let script = "setpriv --groups=5,71009 cat g";
    mounted.expect(0, script, "Operation not permitted");
    mounted.expect(0, "cat s; echo 34 >> s; head s", "Operation not permitted");
    mounted.expect(0, "head t1", "t1");
    mounted.expect(0, "head t2", "Operation not permitted");
    mounted.expect(ALICE, "echo x >> w", "Operation not permitted");
    mounted.expect(BOB, "echo x >> w; head w", "wx");
}

#[test]
fn a_name_that_nobody_has_met_protects_too() {
    let text = "[[rule]]\npath = 'private/**'\nuid = BOB\ndeny = 'EACCES'\n\
        [[rule]]\npath = 'masked/**'\nuid = BOB\nredact = 'whole'\n";
    let Some(mounted) = mount(Some(text), |folder| {
        for (name, other) in [("private/a", "public/a"), ("masked/b", "public/b"), ("up/sub/c", "public/c")] {
            put(folder, name, "text");
            fs::create_dir_all(folder.join("public")).unwrap();
            fs::hard_link(folder.join(name), folder.join(other)).unwrap();
        }
        fs::set_permissions(folder.join("public"), fs::Permissions::from_mode(0o777)).unwrap();
    }) else {
        return;
    };
    mounted.expect(BOB, "cat public/a", "Permission denied");
    mounted.expect(BOB, "cat public/b | tr '\\000' 0", "0000");
    mounted.expect(BOB, "cat public/c", "text");
    mounted.expect(ALICE, "cat public/a public/b", "texttext");
    // The folder with the other name comes under a rule, and out of it again.
    mounted.expect(ALICE, "mv up private/up", "");
    let waits = |script: &str, expected: &str| {
        let end = Instant::now() + Duration::from_secs(10);
        while !mounted.says(BOB, script).ends_with(expected) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        mounted.expect(BOB, script, expected);
    };
    waits("cat public/c", "Permission denied");
    mounted.expect(ALICE, "mv private/up up && rm private/a", "");
    waits("cat public/c", "text");
    mounted.expect(BOB, "cat public/a", "text");
}

/// What the kernel makes of a folder that not everybody sees: names are common to all callers. `docs/rules.md` says so.
#[test]
fn a_folder_hidden_from_some_loses_its_path_when_they_look_for_it() {
    let text = "[[rule]]\npath = 'd'\nuid = BOB\nhide = true\n";
    let Some(mounted) = mount(Some(text), |folder| {
        put(folder, "d/f", "f");
        fs::create_dir(folder.join("d/sub")).unwrap();
    }) else {
        return;
    };
    let inside = mounted.at("d/sub");
    assert!(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inside).status().unwrap().success());
    let script = "cd d && readlink /proc/self/cwd; setpriv --reuid=BOB --clear-groups stat ../d 2>&1; cat f; \
        echo; readlink /proc/self/cwd; cd ../d && readlink /proc/self/cwd";
    let said = mounted.says(0, &script.replace("BOB", &BOB.to_string()));
    let is_mounted = fs::read_to_string("/proc/self/mounts").unwrap().contains(inside.to_str().unwrap());
    let _ = Command::new("umount").arg(&inside).status();
    assert!(said.contains("No such file or directory") && said.contains("/d (deleted)\n"), "{said}");
    assert!(said.ends_with("/d"), "who works in it goes on, and finds it again: {said}");
    assert!(!is_mounted, "{said}");
}

/// A thousand rules of every kind that match nothing here.
fn thousand() -> String {
    let kinds = [
        "path = 'no/N/**/*.jpg'\nuid = BOB\nredact = 'exif-gps'\n",
        "path = ['other/N/*', 'x/{a,b}/N?']\nhide = true\n",
        "basename = 'never-N-*.tmp'\ngroups = 7\ndeny = 'EPERM'\n",
        "path = 'deep/**/N/*.log'\nappend_only = true\n",
        "path = 'cel/N-*'\nwhen = 'uid == 5 && size > 7'\nread_only = true\n",
    ];
    let rule = |number: usize| format!("[[rule]]\n{}", kinds[number % 5].replace('N', &number.to_string()));
    (0..1000).map(rule).collect()
}

/// What must not change for files that no rule touches: the requests, and that they are in passthrough. (Folders are asked
/// about at each open, because rules that are read later may restrict them.)
#[test]
fn a_thousand_rules_that_do_not_match_cost_no_request() {
    let text = thousand();
    let fill = |folder: &Path| {
        for number in 0..20 {
            put(folder, &format!("d/f{number}"), "text");
        }
    };
    let work = |mounted: &Mounted| {
        for _ in 0..3 {
            for number in 0..20 {
                let path = mounted.at(&format!("d/f{number}"));
                assert_eq!(fs::read_to_string(&path).unwrap(), "text");
                fs::symlink_metadata(&path).unwrap();
            }
            assert_eq!(fs::read_dir(mounted.at("d")).unwrap().count(), 20);
        }
        fs::write(mounted.at("d/new"), "new").unwrap();
        fs::rename(mounted.at("d/new"), mounted.at("d/newer")).unwrap();
        fs::remove_file(mounted.at("d/newer")).unwrap();
    };
    let (Some(without), Some(with)) = (mount(None, fill), mount(Some(&text), fill)) else { return };
    work(&without);
    work(&with);
    // FORGETs come when the kernel likes.
    let counts = |mounted: &Mounted| {
        let mut counts = mounted.requests();
        counts.retain(|op, _| !op.contains("FORGET") && op != "OPENDIR" && op != "RELEASEDIR");
        counts
    };
    // RELEASE comes some time after the close.
    let end = Instant::now() + Duration::from_secs(5);
    while counts(&with) != counts(&without) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(counts(&with), counts(&without));
    assert_eq!(with.opens("passthrough"), without.opens("passthrough"));
    assert_eq!(with.opens("served"), 0);
    let last = "[[rule]]\npath = 'd/*'\nwhen = 'uid == BOB && size > 3'\ndeny = 'EACCES'\n";
    let Some(touched) = mount(Some(&(text + last)), fill) else { return };
    touched.expect(BOB, "cat d/f1", "Permission denied");
    println!(
        "one open and close of a cached file: {:?} without rules, {:?} with 1,000 that do not match, {:?} where one more \
        asks a condition",
        cost_of_open(&without),
        cost_of_open(&with),
        cost_of_open(&touched)
    );
}

/// The median of many, for people to read.
fn cost_of_open(mounted: &Mounted) -> Duration {
    let path = mounted.at("d/f1");
    let mut times: Vec<Duration> = (0..2000)
        .map(|_| {
            let start = Instant::now();
            drop(File::open(&path).unwrap());
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// A lower file system may be mounted so that what is made has the group of its folder, not of its maker. Rules were asked about
/// the maker's, and `explain` was so where the folder hands its group on by its mode.
#[test]
fn what_is_made_is_judged_by_the_group_that_it_will_have() {
    for (options, mode, expected) in
        [("", 0o777, ""), ("grpid", 0o777, "Permission denied"), ("", 0o2777, "Permission denied")]
    {
        let spec = LowerSpec { options: options.into(), ..LowerSpec::new(LowerKind::Ext4) };
        let Some(below) = spec.make().unwrap() else { return };
        let text = "[[rule]]\npath = 'shared/**'\ngroup = BOB\nopen = 'create'\ndeny = 'EACCES'\n";
        let Some(mounted) = mount_at(below.path(), Some(text), |lower| {
            let shared = lower.join("shared");
            fs::create_dir(&shared).unwrap();
            chown(&shared, None, Some(BOB)).unwrap();
            fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
        }) else {
            return;
        };
        let control = mounted.control();
        let caller = Caller { uid: ALICE, gid: ALICE, groups: vec![ALICE], exe: None };
        let report = control.of_new(Path::new("shared/new"), 0o644, &caller, Use::of(OpenWord::Create));
        let is_denied = report.decision.unwrap().access != Access::Allow;
        assert_eq!(is_denied, !expected.is_empty(), "`{options}`, {mode:o}: explained");
        mounted.expect(ALICE, "echo x > shared/new", expected);
        assert_eq!(mounted.below("shared/new").exists(), expected.is_empty());
    }
}
