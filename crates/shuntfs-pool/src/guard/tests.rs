//! What the kernel does not ask while nobody changes anything below.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use shuntfs::{Errno, Name, NodeId, SetAttr};
use shuntfs_rules::{Nobody, Rules};

use super::{Coming, Guard, Made, NameComes};
use crate::mode;
use crate::name_buf::NameBuf;
use crate::op::rename::Named;
use crate::op::{attr, lookup, remove, rename};
use crate::options::PoolOptions;
use crate::shared::Shared;
use crate::who::Who;

const CALLER: Who = Who::new(4002, 4002, None);

fn name(name: &str) -> NameBuf {
    let name = CString::new(name).unwrap();
    NameBuf::new(Name::new(&name).unwrap()).unwrap()
}

/// A source with one file that has two names, of which a rule denies the first to the caller.
fn pool() -> (tempfile::TempDir, Shared) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("denied"), "text").unwrap();
    fs::hard_link(folder.path().join("denied"), folder.path().join("free")).unwrap();
    let text = "[[rule]]\npath = 'denied'\nuid = 4002\ndeny = 'EACCES'\n";
    let rules = Rules::parse(text, "rules", None, &Nobody).unwrap();
    let shared = Shared::open_with(&PoolOptions::new(folder.path()), Some(rules), None).unwrap();
    (folder, shared)
}

fn cut(shared: &Shared) -> Result<(), Errno> {
    let node = lookup::lookup(shared, CALLER, NodeId::ROOT, &name("free")).unwrap().node.unwrap();
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    attr::setattr(shared, CALLER, node, (None, None), set).map(drop)
}

#[test]
fn a_name_that_protects_stays_though_nobody_has_met_the_file() {
    let (_folder, shared) = pool();
    let removed = remove::unlink(&shared, CALLER, NodeId::ROOT, &name("denied"));
    assert_eq!(removed, Err(Errno::ACCES));
    assert_eq!(cut(&shared), Err(Errno::ACCES));
    remove::unlink(&shared, Who::root(), NodeId::ROOT, &name("denied")).unwrap();
    assert_eq!(cut(&shared), Ok(()));
}

/// The kernel does not ask for such a move, unless it takes one of the names for another file's.
#[test]
fn a_move_from_one_name_of_a_file_to_another_takes_neither_away() {
    let (folder, shared) = pool();
    for of in ["denied", "free"] {
        lookup::lookup(&shared, Who::root(), NodeId::ROOT, &name(of)).unwrap();
    }
    let (from, to) = (name("denied"), name("free"));
    let (from, to) = (Named { parent: NodeId::ROOT, name: &from }, Named { parent: NodeId::ROOT, name: &to });
    rename::rename(&shared, Who::root(), from, to, 0).unwrap();
    assert!(folder.path().join("denied").exists());
    assert_eq!(cut(&shared), Err(Errno::ACCES));
}

/// A regression: rules were asked about the caller's group, and the kernel gives what is made in such a folder the folder's.
#[test]
fn what_is_made_in_a_set_group_id_folder_is_of_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("shared");
    fs::create_dir(&at).unwrap();
    let group = fs::metadata(&at).unwrap().gid();
    assert_ne!(group, CALLER.gid());
    let text = format!("[[rule]]\npath = 'shared/**'\ngroup = {group}\nopen = 'create'\ndeny = 'EACCES'\n");
    let rules = Rules::parse(&text, "rules", None, &Nobody).unwrap();
    let shared = Shared::open_with(&PoolOptions::new(folder.path()), Some(rules), None).unwrap();
    let id = lookup::lookup(&shared, Who::root(), NodeId::ROOT, &name("shared")).unwrap().node.unwrap();
    let folder = shared.folder(id).unwrap();
    let new = name("new");
    let make = || {
        let made = Made { mode: mode::FILE | 0o644, umask: 0 };
        let change = NameComes { spot: folder.spot(&new), what: Coming::Node { made, rdev: 0 } };
        Guard::new(&shared, CALLER).judge(change).map(drop)
    };
    assert_eq!(make(), Ok(()), "it would be of the caller's group");
    fs::set_permissions(&at, fs::Permissions::from_mode(0o2755)).unwrap();
    assert_eq!(make(), Err(Errno::ACCES));
}
