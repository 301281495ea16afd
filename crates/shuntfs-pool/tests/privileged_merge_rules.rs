//! Merges under rules, mounted for real and used by several users. Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{XattrFlags, lsetxattr};
use shuntfs_pool::{Cache, Pool, PoolOptions};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::{Lower, LowerKind};

use mounted::bound::Bound;
use mounted::users::{ALICE, BOB, rules};
use mounted::{Mounted, disks, merge};

/// Two disks in memory, filled by `fill`; `None` where it cannot be had, and then the reason was said.
fn start(text: &str, cache: Cache, fill: impl FnOnce([&Path; 2])) -> Option<Mounted> {
    let disks = disks(LowerKind::Tmpfs, &[256, 256])?;
    fill([disks[0].path(), disks[1].path()]);
    let open = |folder: &Path| fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    disks.iter().for_each(|disk| open(disk.path()));
    let options = PoolOptions { merge: Some(merge(&disks, "ff")), cache, ..PoolOptions::new("disks") };
    Mounted::new(Pool::open_with_rules(&options, rules(text)).unwrap(), disks)
}

fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    open(&path, 0o666);
    for around in path.ancestors().skip(1).take_while(|around| *around != folder) {
        open(around, 0o777);
    }
}

/// With each of the ways in which the kernel may keep what it is told.
const CACHES: [Cache; 3] = [Cache::Second, Cache::Default, Cache::None];

#[test]
fn rules_hold_on_whatever_branch_a_file_is() {
    let text = "[[rule]]\npath = 'd/**'\nuid = BOB\nhide = true\n[[rule]]\npath = 'p/**'\nuid = BOB\ndeny = 'EBUSY'\n\
        [[rule]]\npath = 'r/**'\nread_only = true\n[[rule]]\nbasename = '*.log'\nappend_only = true\n";
    for cache in CACHES {
        let fill = |[one, other]: [&Path; 2]| {
            for (disk, name) in [(one, "1"), (other, "2")] {
                for folder in ["d", "p", "r", "e"] {
                    put(disk, &format!("{folder}/{name}"), name);
                }
            }
            put(other, "r/sub/f", "f");
            put(other, "e/a.log", "one\n");
        };
        let Some(mounted) = start(text, cache, fill) else { return };
        for _ in 0..2 {
            mounted.expect(ALICE, "cat d/1 d/2; ls d", "121\n2");
            mounted.expect(BOB, "ls -a d", ".\n..");
            mounted.expect(BOB, "ls -l d", "total 0");
            for path in ["d/1", "d/2"] {
                mounted.expect(BOB, &format!("cat {path}"), "No such file or directory");
                mounted.expect(BOB, &format!("echo x > {path}"), "Permission denied");
                mounted.expect(BOB, &format!("mv e/1 {path}"), "Permission denied");
            }
            mounted.expect(BOB, "cat p/1", "Device or resource busy");
            mounted.expect(BOB, "cat p/2", "Device or resource busy");
            mounted.expect(ALICE, "cat p/1 p/2", "12");
            for script in
                ["echo x > r/2", "rm -f r/2", "mv r/2 e/r", "touch r/new", "chmod 600 r/sub/f", "mv e/2 r/3"]
            {
                mounted.expect(0, script, "Read-only file system");
            }
            mounted.expect(0, "echo x > e/a.log", "Operation not permitted");
            mounted.expect(0, "rm -f e/a.log", "Operation not permitted");
        }
        mounted.expect(0, "echo two >> e/a.log; cat e/a.log", "one\ntwo");
        // What comes to a folder gets it on its own branch, and is under the rules there.
        mounted.expect(ALICE, "mv e/2 d/moved && cat d/moved", "2");
        assert_eq!(mounted.on("d/moved"), [1]);
        mounted.expect(BOB, "cat d/moved", "No such file or directory");
        mounted.expect(ALICE, "mkdir -p d/deep/er && mv e/1 d/deep/er/f && echo x > d/deep/er/g", "");
        mounted.expect(BOB, "cat d/deep/er/f", "No such file or directory");
        mounted.expect(ALICE, "mv d/deep/er/f d/deep/er/g e", "");
        mounted.expect(BOB, "cat e/f e/g", "1x");
        mounted.expect(BOB, "mv e/f d/f", "Permission denied");
    }
}

#[test]
fn a_file_that_is_moved_between_branches_keeps_its_verdict() {
    let text = "[[rule]]\npath = 'p/**'\nuid = BOB\ndeny = 'EACCES'\n";
    for cache in [Cache::Second, Cache::None] {
        let Some(mounted) = start(text, cache, |[one, other]| {
            put(one, "p/f", "f");
            put(other, "p/g", "g");
            put(one, "q", "q");
        }) else {
            return;
        };
        mounted.expect(BOB, "cat p/f p/g", "Permission denied");
        // As tools do that level disks.
        fs::copy(mounted.below(0, "p/f"), mounted.below(1, "p/f")).unwrap();
        fs::remove_file(mounted.below(0, "p/f")).unwrap();
        mounted.expect(BOB, "cat p/f", "Permission denied");
        mounted.expect(ALICE, "cat p/f", "f");
        mounted.expect(ALICE, "mv p/f f", "");
        mounted.expect(BOB, "cat f", "f");
    }
}

#[test]
fn each_sees_what_is_left_of_a_file_on_whatever_branch() {
    let text = "[[rule]]\npath = 'm/**'\nuid = BOB\nredact = { ranges = [[0, 4]] }\n\
        [[rule]]\npath = 'w/**'\nuid = BOB\nredact = { regex = 'key=(.*)', within = 4096, group = 1 }\n";
    for cache in CACHES {
        let Some(mounted) = start(text, cache, |[one, other]| {
            put(one, "m/1", "seen by alice");
            put(other, "m/2", "seen by alice");
            put(other, "w/f", "key=hush");
            put(one, "w/g", "key=hush");
        }) else {
            return;
        };
        for path in ["m/1", "m/2"] {
            mounted.expect(ALICE, &format!("cat {path}"), "seen by alice");
            mounted.expect(BOB, &format!("tr '\\0' . < {path}"), ".... by alice");
            mounted.expect(BOB, &format!("echo x >> {path}"), "Permission denied");
        }
        for path in ["w/f", "w/g"] {
            mounted.expect(BOB, &format!("tr '\\0' . < {path}"), "key=....");
            mounted.expect(ALICE, &format!("cat {path}"), "key=hush");
        }
        mounted.expect(BOB, "mv w/f f", "Permission denied");
        mounted.expect(BOB, "ln w/f f", "Permission denied");
    }
}

#[test]
fn links_on_any_branch_are_judged_by_all_names() {
    let text = "[[rule]]\npath = 'p/**'\nuid = BOB\ndeny = 'EACCES'\n";
    for cache in CACHES {
        let Some(mounted) = start(text, cache, |[_, other]| {
            put(other, "p/f", "f");
            put(other, "q/x", "x");
            fs::hard_link(other.join("p/f"), other.join("q/free")).unwrap();
        }) else {
            return;
        };
        mounted.expect(BOB, "cat q/free", "Permission denied");
        mounted.expect(BOB, "rm -f p/f", "Permission denied");
        mounted.expect(BOB, "mv -T q/x p/f", "Permission denied");
        mounted.expect(ALICE, "mv p out", "");
        mounted.expect(BOB, "cat q/free", "f");
        mounted.expect(ALICE, "mv out p && ln q/x p/y", "");
        mounted.expect(BOB, "cat q/x", "Permission denied");
        mounted.expect(BOB, "cat q/free", "Permission denied");
        mounted.expect(ALICE, "rm p/y p/f", "");
        mounted.expect(BOB, "cat q/x q/free", "xf");
    }
}

#[test]
fn other_rules_take_the_place_of_the_old_ones() {
    let first = "[[rule]]\nbasename = 'f'\nuid = BOB\nhide = true\n";
    let Some(mounted) = start(first, Cache::Second, |[one, other]| {
        put(one, "f", "f");
        put(other, "g", "g");
    }) else {
        return;
    };
    mounted.expect(BOB, "ls; cat g", "g\ng");
    mounted.control().replace(rules("[[rule]]\nbasename = 'g'\nuid = BOB\nhide = true\n")).unwrap();
    mounted.expect(BOB, "ls; cat f", "f\nf");
    mounted.expect(BOB, "cat g", "No such file or directory");
    assert_eq!(mounted.control().facts().reloads, 1);
}

/// Names on a branch that comes count from then on, though nobody has met them. Until it was searched, what has several is refused.
#[test]
fn a_branch_that_comes_is_searched() {
    let text = "[[rule]]\npath = 'p/**'\nuid = BOB\ndeny = 'EACCES'\n";
    let Some(third) = Lower::make(LowerKind::Tmpfs).unwrap() else { return };
    for (name, link) in [("p/f", "q/f"), ("q/g", "q/h")] {
        put(third.path(), name, name);
        put(third.path(), link, "");
        fs::remove_file(third.path().join(link)).unwrap();
        fs::hard_link(third.path().join(name), third.path().join(link)).unwrap();
    }
    let Some(mounted) = start(text, Cache::Second, |[one, _]| put(one, "q/1", "1")) else { return };
    let list = format!("+{}=RW", third.path().display());
    let control = mounted.top.path().join(".mergerfs");
    lsetxattr(control, "user.mergerfs.branches", list.as_bytes(), XattrFlags::empty()).unwrap();
    mounted.expect(BOB, "cat q/f", "Permission denied");
    mounted.expect(ALICE, "cat q/f q/g", "p/fq/g");
    assert!(
        wait_until(Duration::from_secs(20), || mounted.says(BOB, "cat q/g") == "q/g"),
        "no rule is about it"
    );
    mounted.expect(BOB, "cat q/f", "Permission denied");
    mounted.expect(ALICE, "rm p/f", "");
    mounted.expect(BOB, "cat q/f q/1", "p/f1");
}

/// What one branch shows of another one has two paths, and the one that rules are about was passed by the other.
#[test]
fn what_two_branches_show_is_judged_by_both_paths() {
    let text = "[[rule]]\npath = 'closed/**'\nuid = BOB\ndeny = 'EACCES'\n\
        [[rule]]\npath = 'gone/**'\nuid = BOB\nhide = true\n";
    let Some(mounted) = start(text, Cache::Second, |[one, other]| {
        put(one, "closed/f", "f");
        put(one, "gone/g", "g");
        for name in ["blank/x", "dim/x"] {
            put(other, name, "x");
        }
    }) else {
        return;
    };
    let _bound = [("closed", "blank"), ("gone", "dim")]
        .map(|(folder, at)| Bound::new(&mounted.below(0, folder), mounted.below(1, at)));
    for _ in 0..2 {
        mounted.expect(ALICE, "cat blank/f dim/g", "fg");
        mounted.expect(BOB, "cat blank/f", "Permission denied");
        mounted.expect(BOB, "cat dim/g", "No such file or directory");
        mounted.expect(BOB, "ls dim", "");
        mounted.expect(BOB, "echo x > blank/new", "Permission denied");
    }
}
