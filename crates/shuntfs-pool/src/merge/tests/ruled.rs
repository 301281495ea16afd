//! Merges under rules: what somebody tries to whom rules leave less than to root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use shuntfs::{Entry, Errno, OpenFlags, Result, SetAttr};
use shuntfs_rules::Rules;

use super::{Batch, FILE, FOLDER, Policies, Three, name, policy};
use crate::dir;
use crate::merge::{BranchChange, MergeOptions};
use crate::mode;
use crate::op::rename::Named;
use crate::op::{attr, create, lookup, make, remove, rename, xattr};
use crate::policy::Function;
use crate::who::Who;

/// Who is kept from something.
pub(super) const KEPT: Who = Who::new(4002, 4002, None);

fn parse(text: &str) -> Rules {
    Rules::parse(text, "rules", None, &Policies).unwrap()
}

/// Under rules, with links from the second path to the first. Everybody may do everything below.
pub(super) fn under(
    text: &str,
    tree: &[&str],
    links: &[(&str, &str)],
    change: impl FnOnce(&mut MergeOptions),
) -> Three {
    // Under none at first, so that there are links before they are searched for.
    let three = Three::new(tree, |_| ());
    for (old, new) in links {
        fs::create_dir_all(three.at(new).parent().unwrap()).unwrap();
        fs::hard_link(three.at(old), three.at(new)).unwrap();
    }
    let mut ahead = ["a", "b", "c", "d"].map(|name| three.at(name)).to_vec();
    while let Some(folder) = ahead.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        ahead.extend(entries.filter(|path| path.is_dir()));
    }
    let mut merge = three.shared.merge.as_ref().unwrap().options.clone();
    change(&mut merge);
    let options = crate::PoolOptions { merge: Some(merge), ..three.shared.options.clone() };
    let shared = crate::shared::Shared::open_with(&options, Some(parse(text)), None).unwrap();
    Three { shared, ..three }
}

impl Three {
    fn look_as(&self, who: Who, path: &str) -> Result<Entry> {
        let (parent, last) = self.parent(path);
        lookup::lookup(&self.shared, who, parent, &name(last))
    }

    fn create_as(&self, who: Who, path: &str, flags: u32) -> Result<()> {
        let (parent, last) = self.parent(path);
        create::create(&self.shared, who, parent, &name(last), FILE, OpenFlags(mode::O_RDWR | flags))
            .map(drop)
    }

    fn mkdir_as(&self, who: Who, path: &str) -> Result<()> {
        let (parent, last) = self.parent(path);
        make::mkdir(&self.shared, who, parent, &name(last), FOLDER).map(drop)
    }

    pub(super) fn unlink_as(&self, who: Who, path: &str) -> Result<()> {
        let (parent, last) = self.parent(path);
        remove::unlink(&self.shared, who, parent, &name(last))
    }

    fn rename_as(&self, who: Who, from: &str, to: &str) -> Result<()> {
        let ((parent, old), (new_parent, new)) = (self.parent(from), self.parent(to));
        let (old, new) = (name(old), name(new));
        let (from, to) = (Named { parent, name: &old }, Named { parent: new_parent, name: &new });
        rename::rename(&self.shared, who, from, to, 0)
    }

    fn link_as(&self, who: Who, from: &str, to: &str) -> Result<()> {
        let (parent, last) = self.parent(to);
        make::link(&self.shared, who, self.id(from), parent, &name(last)).map(drop)
    }

    /// Whether somebody may change a file's length: that is judged by all names of the file.
    pub(super) fn cut_as(&self, who: Who, path: &str) -> Result<()> {
        let set = SetAttr { size: Some(3), ..SetAttr::default() };
        attr::setattr(&self.shared, who, self.id(path), (None, None), set).map(drop)
    }

    /// The names that somebody sees in a folder.
    fn seen_by(&self, who: Who, path: &str, plus: bool) -> Vec<String> {
        let opened = dir::open(&self.shared, who, self.id(path)).unwrap();
        let mut all = Batch { plus, room: 1000, names: Vec::new() };
        dir::list(&self.shared, who, &opened.walk, 0, &mut all).unwrap();
        let mut names: Vec<_> = all.names.into_iter().map(|(name, _)| name).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    pub(super) fn search(&self) {
        self.shared.rules.as_ref().unwrap().search(&self.shared).unwrap();
    }

    fn change(&self, change: &BranchChange) {
        super::super::change(&self.shared, self.shared.merge.as_ref().unwrap(), change).unwrap();
    }
}

#[test]
fn a_name_is_hidden_on_every_branch_and_made_on_none() {
    let tree = ["a/d/x.key", "b/d/x.key", "b/d/y.key", "c/d/z", "c/e/"];
    let three = under("[[rule]]\nbasename = '*.key'\nhide = true\n", &tree, &[], |_| ());
    for plus in [false, true] {
        assert_eq!(three.seen_by(Who::root(), "d", plus), ["z"]);
    }
    for path in ["d/x.key", "d/y.key", "e/x.key"] {
        assert_eq!(three.look(path).err(), Some(Errno::NOENT), "{path}");
        assert_eq!(three.unlink(path).err(), Some(Errno::NOENT), "{path}");
        assert_eq!(three.create_as(Who::root(), path, 0), Err(Errno::ACCES), "{path}");
        assert_eq!(three.create_as(Who::root(), path, mode::O_EXCL), Err(Errno::ACCES), "{path}");
        assert_eq!(three.mkdir_as(Who::root(), path), Err(Errno::ACCES), "{path}");
        assert_eq!(three.link_as(Who::root(), "d/z", path), Err(Errno::ACCES), "{path}");
        assert_eq!(three.rename_as(Who::root(), "d/z", path), Err(Errno::ACCES), "{path}");
    }
    assert_eq!(
        (three.on("d/x.key"), three.on("d/y.key"), three.on("e/x.key")),
        ("ab".into(), "b".into(), String::new())
    );
    assert_eq!(three.on("e"), "c", "no path is made for what may not come");
}

/// A caller from whom a file is hidden made another one on an earlier branch, in front of it.
#[test]
fn nothing_comes_to_be_in_front_of_what_is_hidden() {
    let text = "[[rule]]\nsize = { min = '1K', max = '3K' }\nuid = 4002\nhide = true\n";
    let three = under(text, &["c/big", "b/both", "a/both", "c/behind", "b/behind", "a/small"], &[], |_| ());
    for path in ["c/big", "b/both", "b/behind"] {
        fs::write(three.at(path), vec![b'x'; 2000]).unwrap();
    }
    assert_eq!(three.look_as(KEPT, "big").err(), Some(Errno::NOENT));
    assert_eq!(three.create_as(KEPT, "big", 0), Err(Errno::ACCES));
    assert_eq!(three.create_as(KEPT, "big", mode::O_EXCL), Err(Errno::ACCES));
    assert_eq!(three.mkdir_as(KEPT, "big"), Err(Errno::ACCES));
    assert_eq!(three.link_as(KEPT, "small", "big"), Err(Errno::ACCES));
    assert_eq!(three.rename_as(KEPT, "small", "big"), Err(Errno::ACCES));
    assert_eq!((three.on("big"), three.on("small")), ("c".into(), "a".into()));
    // What is shown decides, and a copy behind it is no way around.
    assert!(three.look_as(KEPT, "both").is_ok_and(|entry| entry.node.is_some()));
    assert_eq!(three.look_as(KEPT, "behind").err(), Some(Errno::NOENT));
    assert_eq!(three.seen_by(KEPT, "", false), ["both", "small"]);
    assert_eq!(three.seen_by(KEPT, "", true), ["both", "small"]);
    // And neither does the copy go with what is shown.
    for outcome in [
        three.unlink_as(KEPT, "both"),
        three.rename_as(KEPT, "both", "other"),
        three.rename_as(KEPT, "small", "both"),
    ] {
        assert_eq!(outcome, Err(Errno::ACCES));
    }
    assert_eq!((three.on("both"), three.on("other")), ("ab".into(), String::new()));
    three.unlink("both").unwrap();
    assert_eq!(three.on("both"), "");
}

pub(super) const DENIED: &str = "[[rule]]\npath = 'denied/**'\nuid = 4002\ndeny = 'EACCES'\n";

/// Branches on one file system may share a file, which is two nodes.
#[test]
fn a_name_on_one_branch_protects_the_file_on_another() {
    let three = under(DENIED, &["a/free", "b/denied/"], &[("a/free", "b/denied/f")], |_| ());
    assert_eq!(three.cut_as(KEPT, "free"), Err(Errno::ACCES));
    assert_eq!(three.unlink_as(KEPT, "denied/f"), Err(Errno::ACCES));
    assert_eq!(three.rename_as(KEPT, "denied/f", "f"), Err(Errno::ACCES));
    assert_eq!(three.cut_as(Who::root(), "free"), Ok(()));
    three.unlink("denied/f").unwrap();
    assert_eq!(three.cut_as(KEPT, "free"), Ok(()));
    three.link("free", "denied/g").unwrap();
    assert_eq!((three.on("denied/g"), three.cut_as(KEPT, "free")), ("a".into(), Err(Errno::ACCES)));
}

#[test]
fn folders_take_the_names_on_all_their_branches_along() {
    let links = [("a/denied/x", "a/x"), ("b/denied/in/y", "c/y")];
    let three = under(DENIED, &["a/denied/x", "b/denied/in/y", "c/denied/"], &links, |_| ());
    let cuts = || ["x", "y"].map(|path| three.cut_as(KEPT, path).is_ok());
    assert_eq!(cuts(), [false, false]);
    assert_eq!(three.rename_as(KEPT, "denied", "open"), Err(Errno::ACCES));
    three.rename("denied", "open", 0).unwrap();
    assert_eq!(cuts(), [true, true]);
    three.rename("open", "denied", 0).unwrap();
    assert_eq!(cuts(), [false, false]);
    three.rename("denied/in", "in", 0).unwrap();
    assert_eq!(cuts(), [false, true]);
    three.rename("denied/x", "z", 0).unwrap();
    assert_eq!(cuts(), [true, true]);
}

/// A copy that nobody sees moved with the one that is shown, and its new name was not known: when it was shown itself, it was judged by a
/// name that it did not have any more.
#[test]
fn names_of_copies_behind_are_followed() {
    let links = [("b/x", "b/y")];
    let three = under(DENIED, &["a/x", "b/x", "a/denied/", "b/denied/"], &links, |_| ());
    three.rename("x", "denied/x", 0).unwrap();
    assert_eq!((three.on("x"), three.on("denied/x")), (String::new(), "ab".into()));
    assert_eq!(three.cut_as(KEPT, "y"), Err(Errno::ACCES));
    three.rename("denied/x", "x", 0).unwrap();
    assert_eq!(three.cut_as(KEPT, "y"), Ok(()));
}

#[test]
fn a_copy_that_stays_keeps_its_name() {
    let links = [("b/denied/x", "b/y")];
    let change = |merge: &mut MergeOptions| {
        merge.functions = vec![(Function::Rename, policy("ff")), (Function::Unlink, policy("ff"))];
    };
    let three = under(DENIED, &["a/denied/x", "b/denied/x", "a/denied/z"], &links, change);
    three.rename("denied/x", "x", 0).unwrap();
    assert_eq!((three.on("denied/x"), three.on("x")), ("b".into(), "a".into()));
    assert_eq!((three.cut_as(KEPT, "y"), three.cut_as(KEPT, "x")), (Err(Errno::ACCES), Ok(())));
    // What replaces it takes it away on every branch.
    three.rename("denied/z", "denied/x", 0).unwrap();
    assert_eq!((three.on("denied/x"), three.cut_as(KEPT, "y")), ("a".into(), Ok(())));
}

#[test]
fn names_on_a_new_branch_count_from_the_start() {
    let links = [("a/free", "d/denied/f")];
    let three = under(DENIED, &["a/free", "d/denied/"], &links, |_| ());
    assert_eq!(three.cut_as(KEPT, "free"), Ok(()), "its other name is outside");
    let new = super::BranchOptions::new(three.at("d"));
    three.change(&BranchChange::Append(vec![new]));
    assert_eq!(three.cut_as(KEPT, "free"), Err(Errno::ACCES), "nobody knows its names yet");
    three.search();
    assert_eq!(three.cut_as(KEPT, "free"), Err(Errno::ACCES));
    assert!(three.look_as(KEPT, "denied/f").is_ok());
    three.change(&BranchChange::Remove(vec![three.at("d")]));
    three.search();
    assert_eq!(three.cut_as(KEPT, "free"), Ok(()));
}

#[test]
fn no_path_is_made_for_what_rules_refuse() {
    let three = under("[[rule]]\npath = 'deep/**'\nread_only = true\n", &["c/deep/er/", "a/x"], &[], |_| ());
    for outcome in [
        three.create_as(Who::root(), "deep/er/new", 0),
        three.mkdir_as(Who::root(), "deep/er/new"),
        three.link_as(Who::root(), "x", "deep/er/new"),
        three.rename_as(Who::root(), "x", "deep/er/new"),
    ] {
        assert_eq!(outcome, Err(Errno::ROFS));
    }
    assert_eq!((three.on("deep"), three.on("x")), ("c".into(), "a".into()));
}

#[test]
fn rules_that_judge_may_place_as_well() {
    let text = "match = 'all'\n[[rule]]\nbasename = '*.log'\nappend_only = true\n\
        [[rule]]\npath = 'logs/**'\nplace = 'id=last'\n";
    let three = under(text, &["a/logs/"], &[], |merge| merge.branches[2].id = Some("last".into()));
    assert_eq!(three.create_as(Who::root(), "logs/a.log", 0), Err(Errno::PERM));
    three.create_as(Who::root(), "logs/a.txt", 0).unwrap();
    assert_eq!((three.on("logs/a.log"), three.on("logs/a.txt")), (String::new(), "c".into()));
    assert_eq!(three.cut_as(Who::root(), "logs/a.txt"), Ok(()));
}

/// Of a file with several names the place of any may be told, and it may be a hidden one.
#[test]
fn no_hidden_name_is_told_when_somebody_asks_where_a_file_is() {
    let text = "[[rule]]\npath = 'hidden/**'\nuid = 4002\nhide = true\n";
    let three = under(text, &["a/hidden/x", "a/y"], &[("a/hidden/x", "b/free")], |_| ());
    let ask = |path: &str, what: &str| -> Result<String> {
        let (question, mut value) =
            (std::ffi::CString::new(format!("user.mergerfs.{what}")).unwrap(), [0; 4096]);
        let len = xattr::get(&three.shared, three.id(path), &question, &mut value)?;
        Ok(String::from_utf8(value[..len].to_vec()).unwrap())
    };
    for what in ["relpath", "fullpath", "allpaths"] {
        assert_eq!(ask("hidden/x", what), Err(Errno::ACCES), "{what}");
        assert!(ask("y", what).is_ok_and(|path| path.ends_with("/y")), "{what}");
    }
}

/// Somebody else may have a name in another view, also of a folder: the kernel is to ask each time.
#[test]
fn what_is_hidden_from_some_is_kept_for_nobody() {
    let text = "[[rule]]\npath = 'some'\nuid = 4002\nhide = true\n";
    let three = under(text, &["a/some/", "b/some/", "a/all/"], &[], |_| ());
    let ttl = |path: &str| three.look(path).unwrap().ttl;
    assert!(ttl("some").is_zero() && !ttl("all").is_zero());
    assert_eq!(three.look_as(KEPT, "some").err(), Some(Errno::NOENT));
}
