//! What the kernel does not ask while nobody changes anything below.

use std::ffi::CString;
use std::fs;

use shuntfs::{Errno, Name, NodeId, SetAttr};
use shuntfs_rules::{Known, Rules};

use crate::name_buf::NameBuf;
use crate::op::rename::Named;
use crate::op::{attr, lookup, remove, rename};
use crate::options::PoolOptions;
use crate::shared::Shared;
use crate::who::Who;

const CALLER: Who = Who::new(4002, 4002, None);

struct Nobody;

impl Known for Nobody {
    fn user(&self, _: &str) -> Option<u32> {
        None
    }
    fn group(&self, _: &str) -> Option<u32> {
        None
    }
    fn policies(&self) -> &[&str] {
        &[]
    }
}

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
