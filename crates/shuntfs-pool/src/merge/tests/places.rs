//! Folders that come to branches and leave them below, while somebody works in them or has them open.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Name, NodeId, OpenFlags};
use shuntfs_sys::Stat;

use super::{FILE, FOLDER, Three, name, policy, read_on};
use crate::branch::MountIndex;
use crate::dir;
use crate::merge::{BranchChange, BranchOptions};
use crate::mode;
use crate::node::{Identity, Node, Parts, Place};
use crate::op::{attr, create, lookup, make};
use crate::policy::{BranchMode, Function};
use crate::rules::Caller;
use crate::who::Who;

/// The names that an open folder lists from its start on, without the dots.
fn listed(three: &Three, opened: &dir::PoolDir) -> Vec<String> {
    let all = read_on(three, opened, 0, 1000).into_iter().map(|(name, _)| name);
    let mut names: Vec<String> = all.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// Whether the server has something open below a branch.
fn is_held(three: &Three, branch: &str) -> bool {
    let open =
        fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let branch = three.at(branch);
    open.into_iter().any(|path| path.starts_with(&branch))
}

/// It was not looked up again, and everything in it failed: with ESTALE, or with ENOENT where a descriptor of what was removed was open still.
#[test]
fn a_working_folder_goes_on_where_it_was_not_removed() {
    for has_descriptors in [true, false] {
        let three = Three::new(&["a/x/one", "b/x/two", "b/x/f/in"], |_| ());
        let (shared, who) = (&three.shared, Who::root());
        let id = three.id("x");
        let before = attr::getattr(shared, id).unwrap().attr;
        if !has_descriptors {
            shared.descriptors.shed();
        }
        fs::remove_dir_all(three.at("a/x")).unwrap();
        let what = format!("with descriptors: {has_descriptors}");
        let look =
            |text: &str| lookup::lookup(shared, who, id, &name(text)).map(|entry| entry.node.is_some());
        assert_eq!((look("two"), look("one")), (Ok(true), Ok(false)), "{what}");
        let after = attr::getattr(shared, id).unwrap().attr;
        assert_eq!((after.ino, after.nlink > 0), (before.ino, true), "{what}");
        assert_eq!(listed(&three, &dir::open(shared, who, id).unwrap()), ["f", "two"], "{what}");
        // Its path is made again where the policy wants it.
        make::mkdir(shared, who, id, &name("folder"), FOLDER).unwrap();
        assert_eq!(three.on("x/folder"), "a", "{what}");
    }
}

/// Makes something in a folder.
type Make<'m> = &'m dyn Fn(&Three, NodeId) -> shuntfs::Result<()>;

#[test]
fn things_are_made_in_a_working_folder_where_it_was_not_removed() {
    let nameless = |three: &Three, id| {
        create::tmpfile(&three.shared, Who::root(), id, FILE, OpenFlags(mode::O_RDWR)).map(drop)
    };
    let file = |three: &Three, id| {
        create::create(&three.shared, Who::root(), id, &name("new"), FILE, OpenFlags(mode::O_RDWR)).map(drop)
    };
    let link = |three: &Three, id| {
        make::link(&three.shared, Who::root(), three.id("top"), id, &name("new")).map(drop)
    };
    let makes: [(&str, Make<'_>); 3] = [("a nameless file", &nameless), ("a file", &file), ("a link", &link)];
    for (what, make) in makes {
        for has_descriptors in [true, false] {
            // A policy that keeps to folders that are there makes no path.
            for create in ["ff", "epff"] {
                let three = Three::new(&["a/p/x/", "b/p/x/", "b/top"], |merge| merge.create = policy(create));
                let id = three.id("p/x");
                if !has_descriptors {
                    three.shared.descriptors.shed();
                }
                fs::remove_dir_all(three.at("a/p")).unwrap();
                assert_eq!(make(&three, id), Ok(()), "{what}, {create}, {has_descriptors}");
                let made_on = if create == "ff" && what == "a file" { "a" } else { "b" };
                assert!(what == "a nameless file" || three.on("p/x/new") == made_on, "{what}, {create}");
            }
        }
    }
}

/// It has nowhere else to go.
#[test]
fn a_working_folder_that_was_removed_everywhere_is_stale() {
    let three = Three::new(&["a/x/", "b/x/"], |_| ());
    let id = three.id("x");
    three.shared.descriptors.shed();
    for branch in ["a", "b"] {
        fs::remove_dir(three.at(branch).join("x")).unwrap();
    }
    assert_eq!(attr::getattr(&three.shared, id).err(), Some(Errno::STALE));
    assert_eq!(lookup::lookup(&three.shared, Who::root(), id, &name("one")).map(drop), Err(Errno::STALE));
    let three = Three::new(&["a/"], |_| ());
    // The root is on every branch, whatever becomes of that.
    fs::remove_dir(three.at("a")).unwrap();
    assert_eq!(three.shared.root.parts().unwrap().all().len(), 3);
    assert!(!three.shared.leaves_any(&three.shared.root));
}

/// What was made through the mount on a further branch was not listed by who had the folder open.
#[test]
fn a_listing_from_its_start_on_has_the_branches_that_have_joined() {
    let three = Three::new(&["c/x/old", "d/x/added"], |_| ());
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    assert_eq!(listed(&three, &opened), ["old"]);
    drop(three.create("x/new").unwrap());
    assert_eq!((three.on("x/new"), listed(&three, &opened)), ("a".into(), vec!["new".into(), "old".into()]));
    let merge = three.shared.merge.as_ref().unwrap();
    let change = |change: BranchChange| super::super::change(&three.shared, merge, &change).unwrap();
    change(BranchChange::Prepend(vec![BranchOptions::new(three.at("d"))]));
    assert_eq!(listed(&three, &opened), ["added", "new", "old"]);
    let all = read_on(&three, &opened, 0, 1000).into_iter().map(|(name, _)| name);
    let in_order: Vec<String> = all.filter(|name| !name.starts_with('.')).collect();
    assert_eq!(in_order, ["added", "new", "old"], "d, a and c");
}

/// A folder that others made below is listed by who opens it from now on: the kernel asks who may.
#[test]
fn a_folder_that_lets_fewer_people_in_does_not_join_what_is_open() {
    let three = Three::new(&["b/x/two"], |_| ());
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    fs::create_dir(three.at("a/x")).unwrap();
    fs::write(three.at("a/x/secret"), "").unwrap();
    fs::set_permissions(three.at("a/x"), fs::Permissions::from_mode(0o700)).unwrap();
    three.look("x").unwrap();
    assert_eq!(listed(&three, &opened), ["two"]);
    assert_eq!(
        listed(&three, &dir::open(&three.shared, Who::root(), three.id("x")).unwrap()),
        ["secret", "two"]
    );
}

/// The listing went on with what was removed, which has no names.
#[test]
fn a_folder_that_was_removed_and_made_again_is_listed_from_the_start_on() {
    let three = Three::new(&["a/x/one", "b/x/two"], |_| ());
    let opened = dir::open(&three.shared, Who::root(), three.id("x")).unwrap();
    fs::remove_dir_all(three.at("a/x")).unwrap();
    drop(three.create("x/new").unwrap());
    assert_eq!((three.on("x/new"), listed(&three, &opened)), ("a".into(), vec!["new".into(), "two".into()]));
}

/// The disk of a removed branch was busy until the last open folder was closed.
#[test]
fn open_folders_let_go_of_a_branch_that_is_removed() {
    let three = Three::new(&["a/x/one", "b/x/one", "b/x/two", "c/x/three", "b/only/in"], |_| ());
    let merge = three.shared.merge.as_ref().unwrap();
    let open = |path: &str| dir::open(&three.shared, Who::root(), three.id(path)).unwrap();
    let (started, untouched, only) = (open("x"), open("x"), open("only"));
    // As far as into the branch that goes.
    let all = read_on(&three, &started, 0, 1000);
    let border = all.iter().position(|(name, _)| name == "two").unwrap();
    assert_eq!(read_on(&three, &only, 0, 1).len(), 1);
    read_on(&three, &started, all[border - 1].1, 1);
    assert!(is_held(&three, "b"));
    super::super::change(&three.shared, merge, &BranchChange::Remove(vec![three.at("b")])).unwrap();
    assert!(!is_held(&three, "b"));
    // They go on with the others, and what was listed is not listed again.
    let rest: Vec<String> =
        read_on(&three, &started, all[border].1, 1000).into_iter().map(|(name, _)| name).collect();
    assert_eq!(rest, ["three"]);
    assert_eq!(
        (listed(&three, &started), listed(&three, &untouched)),
        (vec!["one".into(), "three".into()], vec!["one".into(), "three".into()])
    );
    assert!(read_on(&three, &only, 0, 1000).is_empty());
    assert!(!is_held(&three, "b"));
    drop((started, untouched, only));
}

/// Folders that were closed are not kept in mind.
#[test]
fn closed_folders_are_forgotten() {
    let three = Three::new(&["a/x/"], |_| ());
    let id = three.id("x");
    let merge = three.shared.merge.as_ref().unwrap();
    for _ in 0..1000 {
        drop(dir::open(&three.shared, Who::root(), id).unwrap());
        assert!(merge.walks.len() <= 17, "{}", merge.walks.len());
    }
    let open: Vec<_> = (0..100).map(|_| dir::open(&three.shared, Who::root(), id).unwrap()).collect();
    assert_eq!(merge.walks.all().len(), 100);
    drop(open);
    assert!(merge.walks.all().is_empty());
}

/// On a branch without handles a descriptor is the only way to a folder and always open. The others were kept with it, as many as there are folders.
#[test]
fn descriptors_are_given_up_beside_one_that_must_stay() {
    let three = Three::new(&["b/x/"], |_| ());
    let real = three.shared.node(three.id("x")).unwrap().parts().unwrap().shown();
    if real.handle().is_none() {
        shuntfs_testkit::skipped("no file handles here");
        return;
    }
    let fd = shuntfs_sys::open_folder(&three.at("a")).unwrap();
    let stays = Place::new(Identity::new(&Stat { ino: 7, ..Stat::default() }, MountIndex::own(0), None));
    drop(stays.keep(Arc::new(LowerFile::new(fd))));
    let given = Place::new(real.inode().clone());
    let id = NodeId::new(4711).unwrap();
    let parts = Parts::new(1, vec![stays, given], 0, None);
    let node = Arc::new(Node::folder(id, Identity::of_folder(4711), 0, parts));
    let places = node.parts().unwrap().all();
    three.shared.descriptors.shed();
    three.shared.descriptor_at(&node, &places[1]).unwrap();
    assert_eq!((places[0].is_held(), places[1].is_held()), (true, true));
    assert_eq!(three.shared.descriptors.shed(), 1);
    assert_eq!((places[0].is_held(), places[1].is_held()), (true, false));
}

/// Which branches a name goes from or moves on, by the word for it, and why not on the others.
#[test]
fn explanations_of_names_that_go_and_move_are_what_happens() {
    let three = Three::new(
        &["a/d/", "b/d/in", "a/f", "b/f", "c/f", "b/k", "c/k", "a/m", "b/m/", "c/g/", "b/g/"],
        |merge| {
            merge.action = policy("newest");
            merge.branches[0].mode = BranchMode::ReadOnly;
        },
    );
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    fs::File::options().write(true).open(three.at("c/k")).unwrap().set_modified(later).unwrap();
    let merge = three.shared.merge.as_ref().unwrap();
    let explain = |text: &str, function| {
        let text = std::ffi::CString::new(text).unwrap();
        let at = (NodeId::ROOT, Name::new(&text).unwrap());
        let said = super::super::explain(&three.shared, merge, at, (function, &Caller::default())).unwrap();
        let chosen: String = said
            .branches
            .iter()
            .zip("abc".chars())
            .filter(|(row, _)| row.chosen)
            .map(|(_, one)| one)
            .collect();
        let why = said.branches.iter().map(|row| row.why_not.clone().unwrap_or_default()).collect::<Vec<_>>();
        (said.policy, chosen, said.error, why)
    };
    // A folder goes on all its branches or on none, by no policy.
    let (policy, chosen, error, why) = explain("d", Function::Unlink);
    assert_eq!((policy, chosen.as_str(), error), ("epall", "", Some(Errno::ROFS.to_string())));
    assert_eq!(why, ["its mode is RO", "a folder goes on all branches or on none", "the path is not there"]);
    let (policy, chosen, error, _) = explain("g", Function::Rename);
    assert_eq!((policy, chosen.as_str(), error), ("epall", "bc", None));
    three.rename("g", "h", 0).unwrap();
    assert_eq!(three.on("h"), "bc");
    // What is shown is on a branch that is not changed.
    let (policy, chosen, error, why) = explain("f", Function::Unlink);
    assert_eq!((policy, chosen.as_str(), error), ("newest", "", Some(Errno::ROFS.to_string())));
    assert_eq!(why[0], "its mode is RO");
    assert!(why.contains(&"what is shown is on a branch where nothing may be changed".to_owned()), "{why:?}");
    assert_eq!(three.unlink("f"), Err(Errno::ROFS));
    // The newest is one that nobody sees: it can go, and cannot move.
    let (_, chosen, error, _) = explain("k", Function::Unlink);
    assert_eq!((chosen.as_str(), error), ("c", None));
    let (_, chosen, error, why) = explain("k", Function::Rename);
    assert_eq!((chosen.as_str(), error), ("", Some(Errno::XDEV.to_string())));
    assert_eq!(why[1..], ["another one was chosen", "nobody sees what is there, and what is seen stays"]);
    assert_eq!(three.rename("k", "l", 0), Err(Errno::XDEV));
    let (.., why) = explain("m", Function::Unlink);
    assert_eq!(why[1], "something of another kind has the name there");
    let (.., error, why) = explain("nothing", Function::Unlink);
    assert_eq!((error.is_some(), why[1].as_str()), (true, "the path is not there"));
}
