//! What users choose: policies of single functions, inode numbers, what branches are called, and rules that place.

use shuntfs::{Errno, Name, NodeId};
use shuntfs_rules::Rules;

use super::{FILE, Policies, Three, name, policy};
use crate::Pool;
use crate::error::PoolError;
use crate::merge::{BranchChange, BranchOptions, InodeCalc, MergeOptions};
use crate::op::{attr, make};
use crate::options::PoolOptions;
use crate::policy::{BranchMode, Function};
use crate::rules::Caller;
use crate::who::Who;

#[test]
fn each_function_goes_by_its_own_policy() {
    let three = Three::new(&["b/f/", "c/f/"], |merge| {
        let policies = [("create", "ff"), ("mkdir", "epall"), ("mknod", "all"), ("symlink", "epff")];
        merge.create = policy("lfs");
        merge.functions =
            policies.map(|(function, name)| (Function::of(function).unwrap(), policy(name))).into();
    });
    let (id, who) = (three.id("f"), Who::root());
    three.mkdir("f/folder").unwrap();
    make::symlink(&three.shared, who, id, &name("link"), c"target").unwrap();
    assert_eq!(
        (three.on("f"), three.on("f/folder"), three.on("f/link")),
        ("bc".into(), "bc".into(), "b".into())
    );
    make::mknod(&three.shared, who, id, &name("node"), FILE, 0).unwrap();
    drop(three.create("f/file").unwrap());
    assert_eq!((three.on("f/node"), three.on("f/file")), ("abc".into(), "a".into()));
}

#[test]
fn names_go_and_move_by_policies_of_their_own() {
    let three = Three::new(&["a/x", "b/x", "a/y", "b/y"], |merge| {
        merge.action = policy("newest");
        merge.functions = vec![(Function::Unlink, policy("epff")), (Function::Rename, policy("epall"))];
    });
    three.unlink("x").unwrap();
    three.rename("y", "z", 0).unwrap();
    assert_eq!((three.on("x"), three.on("y"), three.on("z")), ("b".into(), String::new(), "ab".into()));
}

/// As in mergerfs: what moves keeps to folders that are there if new files do, whatever the policy of new folders.
#[test]
fn the_policy_of_new_files_says_whether_moves_make_folders() {
    for (function, moved) in [(Function::Mkdir, Ok(())), (Function::Create, Err(Errno::XDEV))] {
        let three = Three::new(&["a/x", "b/f/"], |merge| merge.functions = vec![(function, policy("epff"))]);
        assert_eq!(three.rename("x", "f/x", 0), moved, "{function:?}");
    }
}

#[test]
fn what_is_looked_up_is_what_its_policy_picks() {
    let three = Three::new(&["a/x", "b/x"], |merge| {
        merge.search = policy("ff");
        merge.functions = vec![(Function::GetAttr, policy("newest"))];
    });
    for (branch, secs) in [("a", 10), ("b", 30)] {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs);
        let file = std::fs::File::options().write(true).open(three.at(branch).join("x")).unwrap();
        file.set_modified(time).unwrap();
    }
    assert_eq!(three.read("x"), "b/x");
}

/// Without that the kernel looks anything up again.
#[test]
fn numbers_of_paths_follow_what_moves() {
    for (calc, files) in [(InodeCalc::PathHash, true), (InodeCalc::HybridHash32, false)] {
        let three = Three::new(&["a/f/x", "b/f/y", "c/z"], |merge| merge.inode_calc = calc);
        let ids = ["f", "f/x", "z"].map(|path| three.id(path));
        let asked = || ids.map(|id| attr::getattr(&three.shared, id).unwrap().attr.ino);
        let before = asked();
        three.rename("f", "g", 0).unwrap();
        three.rename("z", "g/z", 0).unwrap();
        let after = asked();
        assert_eq!(after, ["g", "g/x", "g/z"].map(|path| three.look(path).unwrap().attr.ino), "{calc:?}");
        let stayed: Vec<bool> = before.iter().zip(after).map(|(before, after)| *before == after).collect();
        assert_eq!(stayed, [false, !files, !files], "{calc:?}");
        three.mkdir("f").unwrap();
        drop(three.create("z").unwrap());
        let again = ["f", "z"].map(|path| three.look(path).unwrap().attr.ino);
        assert_eq!((again[0] == before[0], again[1] == before[2]), (true, files), "{calc:?}");
    }
}

#[test]
fn branches_keep_what_they_are_called() {
    let three = Three::new(&["a/x", "d/y"], |merge| merge.branches[0].id = Some("first".into()));
    let merge = three.shared.merge.as_ref().unwrap();
    let branch = |name: &str, id: Option<&str>| BranchOptions {
        id: id.map(str::to_owned),
        ..BranchOptions::new(three.at(name))
    };
    let set = |branches: Vec<BranchOptions>| {
        super::super::change(&three.shared, merge, &BranchChange::Set(branches))
            .map(|branches| branches.into_iter().map(|branch| branch.id).collect::<Vec<_>>())
    };
    let before = three.look("x").unwrap().attr.ino;
    let refused = set(vec![branch("a", Some("second")), branch("b", None)]);
    assert!(matches!(refused, Err(PoolError::KeepsIdentity { .. })), "{refused:?}");
    let refused = set(vec![branch("a", None), branch("d", Some("first"))]);
    assert!(matches!(refused, Err(PoolError::SameIdentity { .. })), "{refused:?}");
    let called = set(vec![branch("d", Some("last")), branch("a", None)]);
    assert_eq!(called, Ok(vec![Some("last".into()), Some("first".into())]));
    assert_eq!(three.look("x").unwrap().attr.ino, before);
}

/// Under rules, on branches of which the last is called `last`.
fn under(text: &str, tree: &[&str], mode: BranchMode) -> Result<Three, PoolError> {
    let rules = Rules::parse(text, "rules", None, &Policies).unwrap();
    Three::under(tree, Some(rules), |merge| {
        merge.branches[2] = BranchOptions { id: Some("last".into()), mode, ..merge.branches[2].clone() };
    })
}

const PLACES: &str = "[[rule]]\nname = 'photos'\npath = 'photos/**'\nplace = 'id=last'\n\
    [[rule]]\nname = 'everywhere'\nbasename = '*.all'\nuid = 0\nplace = 'all'\n\
    [[rule]]\nname = 'nobody'\nuid = 4000\nplace = 'id=last'\n\
    [[rule]]\nname = 'usual'\npath = 'usual/*'\nplace = 'mount'\n";

#[test]
fn rules_say_where_something_is_made() {
    let three = under(PLACES, &["a/photos/", "b/usual/"], BranchMode::ReadWrite).unwrap();
    let (photos, who) = (three.id("photos"), Who::root());
    drop(three.create("photos/file").unwrap());
    three.mkdir("photos/folder").unwrap();
    drop(three.create("photos/folder/in.all").unwrap());
    make::symlink(&three.shared, who, photos, &name("link"), c"target").unwrap();
    make::mknod(&three.shared, who, photos, &name("node"), FILE, 0).unwrap();
    for path in ["file", "folder", "folder/in.all", "link", "node"] {
        assert_eq!(three.on(&format!("photos/{path}")), "c", "{path}");
    }
    three.mkdir("usual/x.all").unwrap();
    drop(three.create("usual/other").unwrap());
    assert_eq!((three.on("usual/x.all"), three.on("usual/other")), ("abc".into(), "a".into()));
    // A move stays on its branch.
    three.rename("usual/other", "photos/other", 0).unwrap();
    assert_eq!(three.on("photos/other"), "a");
}

#[test]
fn what_a_rule_names_is_the_only_branch() {
    let three = under(PLACES, &["a/photos/", "c/photos/old"], BranchMode::NoCreate).unwrap();
    assert_eq!(three.create("photos/new").err(), Some(Errno::ROFS), "its mode is NC");
    drop(three.create("new").unwrap());
    let three = under(PLACES, &["a/photos/"], BranchMode::ReadWrite).unwrap();
    let merge = three.shared.merge.as_ref().unwrap();
    super::super::change(&three.shared, merge, &BranchChange::Remove(vec![three.at("c")])).unwrap();
    assert_eq!(three.create("photos/new").err(), Some(Errno::NODEV));
    assert_eq!(three.on("photos/new"), "");
}

#[test]
fn explanations_name_the_rule() {
    let three = under(PLACES, &["a/photos/"], BranchMode::ReadWrite).unwrap();
    let merge = three.shared.merge.as_ref().unwrap();
    let explain = |folder: NodeId, name: &str, uid: u32| {
        let name = std::ffi::CString::new(name).unwrap();
        let (name, caller) = (Name::new(&name).unwrap(), Caller { uid, ..Caller::default() });
        let said =
            super::super::explain(&three.shared, merge, (folder, name), (Function::Create, &caller)).unwrap();
        let chosen = said.branches.iter().map(|row| row.chosen).collect::<Vec<_>>();
        (said.policy, said.rule, said.place, chosen, said.branches[0].why_not.clone())
    };
    let by = |rule: &str, place: &str| (Some(rule.to_owned()), Some(place.to_owned()));
    let (policy, rule, place, chosen, why_not) = explain(three.id("photos"), "x", 1);
    assert_eq!((policy, (rule, place), chosen), ("ff", by("photos", "id=last"), vec![false, false, true]));
    assert_eq!(why_not.as_deref(), Some("a rule names another one"));
    let (policy, rule, place, ..) = explain(NodeId::ROOT, "x.all", 0);
    assert_eq!((policy, (rule, place)), ("all", by("everywhere", "all")));
    let (_, rule, _, chosen, _) = explain(NodeId::ROOT, "x.all", 1);
    assert_eq!((rule, chosen), (None, vec![true, false, false]));
    assert_eq!(explain(NodeId::ROOT, "x", 4000).1.as_deref(), Some("nobody"));
}

#[test]
fn rules_that_name_no_branch_are_refused() {
    let refused = |text: &str| under(text, &[], BranchMode::ReadWrite).map(drop).unwrap_err();
    for place in ["id=other", "/nowhere"] {
        let text = format!("[[rule]]\nname = 'x'\nplace = '{place}'\n");
        let expected = PoolError::NoSuchPlace { rule: "x".into(), place: place.into() };
        assert_eq!(refused(&text), expected);
    }
}

/// What other rules need, the kernel is asked for when the pool is mounted.
#[test]
fn a_merge_under_rules_that_only_place_takes_no_others_while_it_is_mounted() {
    let top = tempfile::tempdir().unwrap();
    let text = "[[rule]]\nname = 'x'\nbasename = 'y'\nplace = 'all'\n";
    let parse = |text: &str| Rules::parse(text, "rules", None, &Policies).unwrap();
    let open = |text: &str| {
        let merge = MergeOptions::new(vec![BranchOptions::new(top.path())]);
        let options = PoolOptions { merge: Some(merge), ..PoolOptions::new("a") };
        Pool::open_with_rules(&options, parse(text)).unwrap().rule_control().unwrap()
    };
    let denies = format!("{text}deny = 'EPERM'\n");
    let placing = open(text);
    assert_eq!(
        placing.replace(parse(&denies)),
        Err(PoolError::RuleOfMerges { rule: "x".into(), key: "deny" })
    );
    assert_eq!(placing.replace(parse(text)), Ok(()));
    let judging = open(&denies);
    assert_eq!((judging.replace(parse(text)), judging.replace(parse(&denies))), (Ok(()), Ok(())));
}
