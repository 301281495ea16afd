//! The operations without a kernel above: on a folder of the machine's, asked as the kernel would.
#![expect(clippy::disallowed_methods, reason = "tests write below by themselves")]

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{Access, Entry, Errno, LookupCount, Name, NodeId, OpenFlags, SetAttr};
use shuntfs_sys::AccessTimes;
use shuntfs_sys::data::{read_at, write_at};
use tempfile::TempDir;

use crate::branch::{Mount, MountIndex, Mounts};
use crate::dir::{self, Records};
use crate::guard::Made;
use crate::name_buf::NameBuf;
use crate::op::rename::Named;
use crate::op::{attr, create, lookup, make, open, readlink, remove, rename, xattr};
use crate::options::{Cache, FlowWish, PoolOptions};
use crate::shared::Shared;
use crate::view::View;
use crate::who::Who;
use crate::{file, mode};

mod begun;

const FILE: Made = Made { mode: mode::FILE | 0o644, umask: 0o022 };

pub(crate) fn pool(change: impl FnOnce(&mut PoolOptions)) -> (TempDir, Shared) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = PoolOptions::new(folder.path());
    change(&mut options);
    let shared = Shared::open(&options).unwrap();
    (folder, shared)
}

fn name(name: &str) -> NameBuf {
    let name = CString::new(name).unwrap();
    NameBuf::new(Name::new(&name).unwrap()).unwrap()
}

fn lookup(shared: &Shared, parent: NodeId, of: &str) -> Entry {
    lookup::lookup(shared, Who::root(), parent, &name(of)).unwrap()
}

fn id(entry: &Entry) -> NodeId {
    entry.node.expect("the name exists")
}

pub(crate) fn create(shared: &Shared, of: &str, flags: u32) -> (NodeId, crate::PoolFile) {
    let made = create::create(shared, Who::root(), NodeId::ROOT, &name(of), FILE, OpenFlags(flags));
    let (entry, opened) = made.unwrap();
    (id(&entry), opened.file)
}

#[test]
fn a_lookup_tells_what_is_there_and_what_is_not() {
    let (folder, shared) = pool(|_| ());
    fs::write(folder.path().join("a"), b"12345").unwrap();
    fs::hard_link(folder.path().join("a"), folder.path().join("b")).unwrap();
    let a = lookup(&shared, NodeId::ROOT, "a");
    let below = fs::metadata(folder.path().join("a")).unwrap();
    assert_eq!(a.attr.ino, below.ino());
    assert_eq!(a.attr.size, 5);
    assert_eq!(a.attr.nlink, 2);
    assert_eq!((a.ttl, a.attr_ttl), (Duration::MAX, Duration::MAX));
    assert_eq!(id(&a), id(&lookup(&shared, NodeId::ROOT, "b")), "hard links share a node");
    assert_eq!(lookup(&shared, NodeId::ROOT, "c").node, None);
    shared.forget(id(&a), LookupCount(2));
    assert_eq!(attr::getattr(&shared, id(&a)).err(), Some(Errno::STALE));
    assert_ne!(id(&lookup(&shared, NodeId::ROOT, "a")), id(&a), "ids are not used again");
}

#[test]
fn nothing_is_to_be_kept_where_others_change_the_folder() {
    let (folder, shared) = pool(|options| options.cache = Cache::None);
    fs::write(folder.path().join("a"), b"").unwrap();
    let a = lookup(&shared, NodeId::ROOT, "a");
    assert_eq!((a.ttl, a.attr_ttl), (Duration::ZERO, Duration::ZERO));
    assert_eq!(lookup::lookup(&shared, Who::root(), NodeId::ROOT, &name("c")).err(), Some(Errno::NOENT));
}

#[test]
fn a_symlink_is_shown_and_never_followed() {
    let (folder, shared) = pool(|_| ());
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("out")).unwrap();
    let out = lookup(&shared, NodeId::ROOT, "out");
    assert_eq!(out.attr.mode & mode::TYPE, 0o120_000);
    let mut target = [0; 64];
    let len = readlink::readlink(&shared, id(&out), &mut target).unwrap();
    assert_eq!(&target[..len], b"/etc/passwd");
    assert!(lookup::lookup(&shared, Who::root(), id(&out), &name("x")).is_err());
}

#[test]
fn what_is_open_outlives_its_name() {
    let (folder, shared) = pool(|_| ());
    let (node, made) = create(&shared, "f", mode::O_RDWR);
    let lower = made.mover(&shared).unwrap();
    write_at(&lower, b"kept", 0).unwrap();
    drop((made, lower));
    // A second open is lazy: nothing below holds the file but what unlink takes hold of.
    let opened = open::open(&shared, Who::root(), node, OpenFlags(mode::O_RDONLY)).unwrap();
    shared.descriptors.shed();
    remove::unlink(&shared, Who::root(), NodeId::ROOT, &name("f")).unwrap();
    assert!(!folder.path().join("f").exists());
    shared.descriptors.shed();
    assert_eq!(attr::getattr(&shared, node).unwrap().attr.nlink, 0);
    let mut bytes = [0; 8];
    let lower = file::lower_file(&shared, &opened.file, Access::Move).unwrap();
    assert_eq!(read_at(&lower, &mut bytes, 0), Ok(4));
    let again = open::open(&shared, Who::root(), node, OpenFlags(mode::O_RDONLY)).unwrap();
    drop((opened, lower));
    let lower = file::lower_file(&shared, &again.file, Access::Move).unwrap();
    assert_eq!(read_at(&lower, &mut bytes, 0), Ok(4));
    drop((again, lower));
    shared.forget(node, LookupCount(1));
    assert_eq!(shared.descriptors.len(), 0);
}

#[test]
fn a_file_that_nobody_has_open_is_gone_with_its_last_name() {
    let (folder, shared) = pool(|_| ());
    fs::write(folder.path().join("f"), b"x").unwrap();
    let node = id(&lookup(&shared, NodeId::ROOT, "f"));
    attr::getattr(&shared, node).unwrap();
    assert_eq!(shared.descriptors.len(), 1);
    remove::unlink(&shared, Who::root(), NodeId::ROOT, &name("f")).unwrap();
    assert_eq!(shared.descriptors.len(), 0, "no descriptor keeps its space");
    assert_eq!(attr::getattr(&shared, node).err(), Some(Errno::STALE));
}

#[test]
fn a_hard_link_that_stays_gives_the_descriptor_back() {
    let (folder, shared) = pool(|_| ());
    let (node, made) = create(&shared, "f", mode::O_RDWR);
    fs::hard_link(folder.path().join("f"), folder.path().join("g")).unwrap();
    remove::unlink(&shared, Who::root(), NodeId::ROOT, &name("f")).unwrap();
    assert!(shared.descriptors.shed() > 0, "it is not pinned");
    assert_eq!(attr::getattr(&shared, node).unwrap().attr.nlink, 1);
    drop(made);
}

#[test]
fn renaming_over_an_open_file_keeps_it() {
    let (folder, shared) = pool(|_| ());
    fs::write(folder.path().join("new"), b"new").unwrap();
    fs::write(folder.path().join("old"), b"older").unwrap();
    let old = id(&lookup(&shared, NodeId::ROOT, "old"));
    let opened = open::open(&shared, Who::root(), old, OpenFlags(mode::O_RDONLY)).unwrap();
    let (new_name, old_name) = (name("new"), name("old"));
    let from = Named { parent: NodeId::ROOT, name: &new_name };
    let to = Named { parent: NodeId::ROOT, name: &old_name };
    rename::rename(&shared, Who::root(), from, to, 0).unwrap();
    shared.descriptors.shed();
    assert_eq!(attr::getattr(&shared, old).unwrap().attr.size, 5);
    assert_eq!(fs::read(folder.path().join("old")).unwrap(), b"new");
    drop(opened);
}

#[test]
fn a_file_without_a_name_can_be_given_one() {
    let (folder, shared) = pool(|_| ());
    let made = create::tmpfile(&shared, Who::root(), NodeId::ROOT, FILE, OpenFlags(mode::O_RDWR));
    let (entry, opened) = made.unwrap();
    shared.descriptors.shed();
    let lower = opened.file.mover(&shared).unwrap();
    write_at(&lower, b"named", 0).unwrap();
    let linked = make::link(&shared, Who::root(), id(&entry), NodeId::ROOT, &name("n")).unwrap();
    assert_eq!(linked.node, entry.node);
    assert_eq!(fs::read(folder.path().join("n")).unwrap(), b"named");
    assert!(shared.descriptors.shed() > 0, "with a name it needs no descriptor of its own");
    assert_eq!(attr::getattr(&shared, id(&entry)).unwrap().attr.size, 5);
}

#[test]
fn what_is_made_belongs_to_the_caller() {
    let (folder, shared) = pool(|_| ());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let caller = Who::new(1234, 2345, None);
    let made = Made { mode: mode::FILE | 0o666, umask: 0o027 };
    let flags = OpenFlags(mode::O_WRONLY);
    create::create(&shared, caller, NodeId::ROOT, &name("f"), made, flags).unwrap();
    make::mkdir(&shared, caller, NodeId::ROOT, &name("d"), Made { mode: 0o777, umask: 0o077 }).unwrap();
    make::symlink(&shared, caller, NodeId::ROOT, &name("s"), c"t").unwrap();
    for (name, mode) in [("f", 0o640), ("d", 0o700), ("s", 0o777)] {
        let below = fs::symlink_metadata(folder.path().join(name)).unwrap();
        assert_eq!((below.uid(), below.gid(), below.mode() & 0o777), (1234, 2345, mode), "{name}");
    }
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o2777)).unwrap();
    std::os::unix::fs::chown(folder.path(), None, Some(77)).unwrap();
    make::mkdir(&shared, caller, NodeId::ROOT, &name("e"), Made { mode: 0o755, umask: 0 }).unwrap();
    let below = fs::metadata(folder.path().join("e")).unwrap();
    assert_eq!((below.gid(), below.mode() & 0o7777), (77, 0o2755), "setgid folders hand on their group");
}

#[test]
fn a_setattr_that_names_nothing_strips() {
    let (folder, shared) = pool(|_| ());
    let path = folder.path().join("f");
    fs::write(&path, b"x").unwrap();
    std::os::unix::fs::chown(&path, None, Some(77)).unwrap();
    let (outside, inside) = (Who::new(7, 7, None), Who::new(7, 7, Some(77)));
    for (who, before, after) in [
        (outside, 0o6755, 0o755),
        (outside, 0o4711, 0o711),
        (outside, 0o2711, 0o711),
        (outside, 0o2745, 0o745),
        (inside, 0o2745, 0o2745),
        (inside, 0o6745, 0o2745),
        (inside, 0o2755, 0o755),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        let node = id(&lookup(&shared, NodeId::ROOT, "f"));
        let reply = attr::setattr(&shared, who, node, (None, None), SetAttr::default()).unwrap();
        assert_eq!(reply.attr.mode & 0o7777, after);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, after, "{before:o}");
    }
}

#[test]
fn cutting_strips_for_users_and_keeps_for_the_superuser() {
    let (folder, shared) = pool(|_| ());
    let path = folder.path().join("f");
    for (who, kill, after) in [(Who::root(), false, 0o6755), (Who::new(7, 7, None), true, 0o755)] {
        fs::write(&path, b"some").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        let node = id(&lookup(&shared, NodeId::ROOT, "f"));
        let set = SetAttr { size: Some(1), kill_priv: kill, ..SetAttr::default() };
        let cut = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    // As the queue's threads are: without the capability that keeps set-ids.
                    shuntfs_sys::prepare_thread().unwrap();
                    attr::setattr(&shared, who, node, (None, None), set).unwrap()
                })
                .join()
                .unwrap()
        });
        assert_eq!(cut.attr.size, 1);
        assert_eq!(cut.attr.mode & 0o7777, after);
    }
}

#[test]
fn the_superuser_sets_sgid_for_any_group() {
    let (folder, shared) = pool(|_| ());
    let path = folder.path().join("f");
    fs::write(&path, b"").unwrap();
    std::os::unix::fs::chown(&path, Some(5), Some(6)).unwrap();
    let node = id(&lookup(&shared, NodeId::ROOT, "f"));
    let set = SetAttr { mode: Some(0o2755), ..SetAttr::default() };
    let reply = attr::setattr(&shared, Who::new(5, 6, None), node, (None, None), set).unwrap();
    assert_eq!(reply.attr.mode & 0o7777, 0o2755);
}

#[test]
fn a_new_owner_gets_sgid_as_the_giver_may_leave_it() {
    let (folder, shared) = pool(|_| ());
    let path = folder.path().join("f");
    fs::write(&path, b"").unwrap();
    let (outside, inside) = (Who::new(5, 5, None), Who::new(5, 6, None));
    for (who, before, gid, after) in [
        (Who::root(), 0o6767, 9, 0o2767),
        (Who::root(), 0o6777, 9, 0o777),
        (inside, 0o2767, 6, 0o2767),
        (inside, 0o6767, 6, 0o2767),
        (outside, 0o2767, 5, 0o767),
    ] {
        std::os::unix::fs::chown(&path, Some(5), Some(6)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        let node = id(&lookup(&shared, NodeId::ROOT, "f"));
        let set = SetAttr { gid: Some(gid), kill_priv: true, ..SetAttr::default() };
        let given = std::thread::scope(|scope| {
            let as_a_queue = || {
                shuntfs_sys::prepare_thread().unwrap();
                attr::setattr(&shared, who, node, (None, None), set).unwrap()
            };
            scope.spawn(as_a_queue).join().unwrap()
        });
        assert_eq!((given.attr.gid, given.attr.mode & 0o7777), (gid, after), "{before:o}");
    }
}

#[test]
fn what_forbids_writing_is_told_at_the_open() {
    for flow in [FlowWish::Relay, FlowWish::Served] {
        let (folder, shared) = pool(|options| options.flow = flow);
        let path = folder.path().join("f");
        fs::copy("/bin/sleep", &path).unwrap();
        let node = id(&lookup(&shared, NodeId::ROOT, "f"));
        let mut running = std::process::Command::new(&path).arg("60").spawn().unwrap();
        let open = |flags| open::open(&shared, Who::root(), node, OpenFlags(flags)).map(drop);
        let answers = [mode::O_RDONLY, mode::O_WRONLY, mode::O_RDWR].map(open);
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!(answers, [Ok(()), Err(Errno::TXTBSY), Err(Errno::TXTBSY)], "{flow:?}");
        assert_eq!(shared.node(node).unwrap().opens(), 0, "a failed open is undone");
        assert_eq!(open(mode::O_RDWR), Ok(()), "{flow:?}");
    }
}

#[derive(Default)]
struct List {
    plus: bool,
    room: usize,
    names: Vec<(String, u64, u64, Option<NodeId>)>,
}

impl Records for List {
    fn wants_entries(&self) -> bool {
        self.plus
    }
    fn fits(&self, _name_len: usize) -> bool {
        self.names.len() < self.room
    }
    fn push(&mut self, ino: u64, cookie: u64, _kind: u8, name: &std::ffi::CStr) -> bool {
        self.names.push((name.to_str().unwrap().to_owned(), ino, cookie, None));
        true
    }
    fn push_entry(&mut self, entry: &Entry, cookie: u64, name: &std::ffi::CStr) -> bool {
        self.names.push((name.to_str().unwrap().to_owned(), entry.attr.ino, cookie, entry.node));
        true
    }
}

#[test]
fn listings_go_on_where_they_stopped_and_agree_with_attributes() {
    let (folder, shared) = pool(|_| ());
    for number in 0..100 {
        fs::write(folder.path().join(format!("f{number}")), b"").unwrap();
    }
    for plus in [false, true] {
        let opened = dir::open(&shared, Who::root(), NodeId::ROOT).unwrap();
        let (mut cookie, mut all) = (0, Vec::new());
        loop {
            let mut list = List { plus, room: 7, ..List::default() };
            dir::list(&shared, Who::root(), &opened.walk, cookie, &mut list).unwrap();
            let Some(last) = list.names.last() else { break };
            cookie = last.2;
            all.extend(list.names);
        }
        assert_eq!(all.len(), 102);
        for (name, ino, _, node) in &all {
            match name.as_str() {
                "." | ".." => assert_eq!((*ino, *node), (fs::metadata(folder.path()).unwrap().ino(), None)),
                name => {
                    assert_eq!(*ino, fs::metadata(folder.path().join(name)).unwrap().ino());
                    assert_eq!(node.is_some(), plus);
                }
            }
        }
        // From somewhere in the middle, as after seekdir.
        let mut list = List { plus: false, room: 1, ..List::default() };
        dir::list(&shared, Who::root(), &opened.walk, all[50].2, &mut list).unwrap();
        assert_eq!(list.names[0].0, all[51].0);
        dir::list(&shared, Who::root(), &opened.walk, 0, &mut List { room: 1, ..List::default() }).unwrap();
    }
    assert_eq!(shared.table.len(), 100, "only READDIRPLUS counts lookups");
}

#[test]
fn a_folder_that_was_removed_stays_reachable() {
    let (folder, shared) = pool(|_| ());
    fs::create_dir(folder.path().join("d")).unwrap();
    let node = id(&lookup(&shared, NodeId::ROOT, "d"));
    remove::rmdir(&shared, Who::root(), NodeId::ROOT, &name("d")).unwrap();
    shared.descriptors.shed();
    assert_eq!(attr::getattr(&shared, node).unwrap().attr.mode & mode::TYPE, mode::DIR);
    let opened = dir::open(&shared, Who::root(), node).unwrap();
    let listed = dir::list(&shared, Who::root(), &opened.walk, 0, &mut List { room: 9, ..List::default() });
    assert!(matches!(listed, Ok(()) | Err(Errno::NOENT)));
}

#[test]
fn a_write_only_open_can_read_and_appends_in_place() {
    let (folder, shared) = pool(|_| ());
    fs::write(folder.path().join("f"), b"0123456789").unwrap();
    let node = id(&lookup(&shared, NodeId::ROOT, "f"));
    let flags = OpenFlags(mode::O_WRONLY | mode::O_APPEND);
    let opened = open::open(&shared, Who::root(), node, flags).unwrap();
    let lower = file::lower_file(&shared, &opened.file, Access::Move).unwrap();
    write_at(&lower, b"x", 3).unwrap();
    let mut bytes = [0; 16];
    assert_eq!(read_at(&lower, &mut bytes, 0), Ok(10));
    assert_eq!(&bytes[..10], b"012x456789");
}

#[test]
fn an_open_that_cuts_holds_no_right_to_write() {
    let (folder, shared) = pool(|_| ());
    let path = folder.path().join("run");
    fs::copy("/bin/true", &path).unwrap();
    let node = id(&lookup(&shared, NodeId::ROOT, "run"));
    let flags = OpenFlags(mode::O_WRONLY | mode::O_TRUNC);
    let opened = open::open(&shared, Who::root(), node, flags).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    fs::write(&path, fs::read("/bin/true").unwrap()).unwrap();
    let registered = file::lower_file(&shared, &opened.file, Access::Register).unwrap();
    let status = std::process::Command::new(&path).status().unwrap();
    assert!(status.success(), "not busy");
    drop(registered);
}

#[test]
fn capabilities_of_new_files_are_known_without_asking() {
    let (folder, shared) = pool(|_| ());
    let (node, _file) = create(&shared, "f", mode::O_RDWR);
    fs::remove_file(folder.path().join("f")).unwrap();
    shared.descriptors.shed();
    let name = c"security.capability";
    assert_eq!(
        xattr::get(&shared, node, name, &mut []),
        Err(Errno::NODATA),
        "although the file is gone below"
    );
    let (node, _file) = create(&shared, "g", mode::O_RDWR);
    let value = [1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let set = xattr::Set { name, value: &value, flags: 0, kill_sgid: false };
    if xattr::set(&shared, Who::root(), node, set).is_ok() {
        assert_eq!(xattr::get(&shared, node, name, &mut []), Ok(20));
    }
}

#[test]
fn a_read_only_pool_refuses_every_change() {
    let (folder, shared) = pool(|options| options.read_only = true);
    fs::write(folder.path().join("f"), b"").unwrap();
    let node = id(&lookup(&shared, NodeId::ROOT, "f"));
    let root = Who::root();
    let refused = Some(Errno::ROFS);
    assert_eq!(remove::unlink(&shared, Who::root(), NodeId::ROOT, &name("f")).err(), refused);
    assert_eq!(make::mkdir(&shared, root, NodeId::ROOT, &name("d"), FILE).err(), refused);
    assert_eq!(attr::setattr(&shared, root, node, (None, None), SetAttr::default()).err(), refused);
    assert_eq!(open::open(&shared, root, node, OpenFlags(mode::O_WRONLY)).err(), refused);
    assert!(open::open(&shared, root, node, OpenFlags(mode::O_RDONLY)).is_ok());
}

#[test]
fn a_mapping_that_may_store_keeps_attributes_from_being_believed() {
    let (_folder, shared) = pool(|_| ());
    let ttl = |node| attr::getattr(&shared, node).unwrap().ttl;
    let lengthen = |node| {
        let set = SetAttr { size: Some(1), ..SetAttr::default() };
        attr::setattr(&shared, Who::root(), node, (None, None), set).unwrap().ttl
    };
    let (node, file) = create(&shared, "f", mode::O_RDWR);
    assert_eq!(ttl(node), Duration::MAX, "it has no page to store to");
    assert_eq!((lengthen(node), ttl(node)), (Duration::ZERO, Duration::ZERO));
    drop(file);
    assert_eq!(ttl(node), Duration::from_secs(1));
    let (node, file) = create(&shared, "g", mode::O_WRONLY);
    assert_eq!((ttl(node), lengthen(node)), (Duration::MAX, Duration::MAX));
    drop(file);
}

/// A listing whose calls the kernel sends without telling what it opens and closes.
#[test]
fn a_folder_is_listed_without_being_opened() {
    let (folder, shared) = pool(|_| ());
    for number in 0..300 {
        fs::write(folder.path().join(format!("name-{number}")), b"").unwrap();
    }
    assert!(!shared.hears_of_open_folders());
    let names = |cookie, room| {
        let dir = dir::open(&shared, Who::root(), NodeId::ROOT).unwrap();
        let mut records = Few::new(room);
        dir::list(&shared, Who::root(), &dir.walk, cookie, &mut records).unwrap();
        records.listed
    };
    let whole = |room| {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let some = names(cookie, room);
            let Some((_, next)) = some.last() else { break };
            cookie = *next;
            all.extend(some);
        }
        all
    };
    let all = whole(usize::MAX);
    assert_eq!(all.len(), 302, "`.` and `..`, too");
    assert_eq!(whole(7), all);
    // Two listings that take turns do not disturb each other, nor does one that goes back.
    let mut cookies = [0, 0];
    let mut seen = [Vec::new(), Vec::new()];
    for turn in 0..200 {
        let some = names(cookies[turn % 2], if turn % 2 == 0 { 3 } else { 5 });
        if let Some((_, next)) = some.last() {
            cookies[turn % 2] = *next;
        }
        seen[turn % 2].extend(some);
    }
    assert_eq!(seen[0][..], all[..300]);
    assert_eq!(seen[1], all);
    assert_eq!(names(all[9].1, 4), all[10..14]);
    assert_eq!(names(all[9].1, 4), all[10..14], "the same again");
    // An end that was seen is none for who starts anew.
    let last = all.last().unwrap().1;
    assert_eq!(names(all[300].1, 9), all[301..]);
    for number in 300..600 {
        fs::write(folder.path().join(format!("name-{number}")), b"").unwrap();
    }
    assert_eq!(whole(1000).len(), 602);
    assert_eq!(names(last, 9), [], "and nothing comes after it");
}

/// As many records as are wanted.
struct Few {
    room: usize,
    listed: Vec<(std::ffi::CString, u64)>,
}

impl Few {
    fn new(room: usize) -> Self {
        Self { room, listed: Vec::new() }
    }
}

impl dir::Records for Few {
    fn wants_entries(&self) -> bool {
        false
    }

    fn fits(&self, _name_len: usize) -> bool {
        self.listed.len() < self.room
    }

    fn push(&mut self, _ino: u64, cookie: u64, _kind: u8, name: &std::ffi::CStr) -> bool {
        self.listed.push((name.to_owned(), cookie));
        true
    }

    fn push_entry(&mut self, _entry: &shuntfs::Entry, cookie: u64, name: &std::ffi::CStr) -> bool {
        self.push(0, cookie, 0, name)
    }
}

#[test]
fn what_is_read_again_is_told_by_its_opens() {
    let (_folder, shared) = pool(|_| ());
    let (node, made) = create(&shared, "header", mode::O_WRONLY);
    drop(made);
    let set = SetAttr { size: Some(5000), ..SetAttr::default() };
    attr::setattr(&shared, Who::root(), node, (None, None), set).unwrap();
    let hint = |flags| open::open(&shared, Who::root(), node, OpenFlags(flags)).unwrap().cache;
    let reads = |count: usize| (0..count).map(|_| hint(mode::O_RDONLY)).collect::<Vec<_>>();
    let (keep, again) = (shuntfs::CacheHint::Keep, shuntfs::CacheHint::Again);
    assert_eq!(reads(4), [keep, keep, again, again]);
    // Who writes it begins anew.
    assert_eq!(hint(mode::O_WRONLY), keep);
    assert_eq!(reads(3), [keep, keep, again]);
    assert_eq!(hint(mode::O_RDONLY | mode::O_DIRECT), keep);
    assert_eq!(reads(2), [keep, keep]);
    // A large file is never worth it, and neither is one that a mapping may store to.
    let set = SetAttr { size: Some(1 << 20), ..set };
    attr::setattr(&shared, Who::root(), node, (None, None), set).unwrap();
    assert_eq!(reads(5), [keep; 5]);
    let set = SetAttr { size: Some(1), ..set };
    attr::setattr(&shared, Who::root(), node, (None, None), set).unwrap();
    assert_eq!(reads(1), [again]);
    assert_eq!(hint(mode::O_RDWR), keep);
    assert_eq!(reads(5), [keep; 5]);
}

#[test]
fn a_million_nodes_fit_into_their_share_of_memory() {
    let resident = || {
        let statm = fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let (_folder, shared) = pool(|_| ());
    let handle =
        |ino: u64| shuntfs_sys::FileHandle::new(0x4d, &[ino.to_ne_bytes(), [1; 8]].concat()).unwrap();
    let before = resident();
    for ino in 0..1_000_000 {
        let identity = crate::node::Identity::of_handle(ino, MountIndex::own(0), handle(ino));
        let (node, is_new) = shared.table.obtain(identity, View::WHOLE, None, |id, identity| {
            crate::node::Node::new(id, identity, View::WHOLE, 0)
        });
        assert!(is_new);
        drop(node);
    }
    let grown = resident() - before;
    assert!(grown < 220 << 20, "{} bytes a node", grown / 1_000_000);
}

#[test]
fn a_source_that_is_not_there_or_no_folder_is_said() {
    let (folder, _shared) = pool(|_| ());
    let missing = folder.path().join("missing");
    let error = crate::Pool::open(&PoolOptions::new(&missing)).unwrap_err();
    assert_eq!(error.errno(), Errno::NOENT);
    let error = crate::Pool::open(&PoolOptions::new(Path::new("/etc/passwd"))).unwrap_err();
    assert_eq!(error.errno(), Errno::NOTDIR);
}

#[test]
fn lookups_and_forgets_of_one_file_race_safely() {
    let (folder, shared) = pool(|options| options.descriptors = Some(2));
    for number in 0..8 {
        fs::write(folder.path().join(format!("f{number}")), b"").unwrap();
    }
    let shared = Arc::new(shared);
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                for round in 0..2000 {
                    let entry = lookup(&shared, NodeId::ROOT, &format!("f{}", (round + thread) % 8));
                    let attr = attr::getattr(&shared, id(&entry)).expect("the kernel holds it");
                    assert_eq!(attr.attr.ino, entry.attr.ino);
                    shared.forget(id(&entry), LookupCount(1));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(shared.table.len(), 0);
    assert!(shared.descriptors.len() <= 2);
}

/// A pool that reaches every node by a descriptor of its own, as on a file system without handles.
fn pool_without_handles() -> (TempDir, Shared) {
    let (folder, mut shared) = pool(|_| ());
    let fd = shuntfs_sys::open_folder(folder.path()).unwrap();
    let (id, times) = (shared.first_branch().mounts.own().id, AccessTimes::default());
    let own = Mount::of(MountIndex::own(0), id, &fd, times).unwrap().without_handles();
    shared.branches.first_mut().mounts = Mounts::new(own, times);
    (folder, shared)
}

#[test]
fn without_handles_each_node_keeps_its_descriptor() {
    let (folder, shared) = pool_without_handles();
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("d/f"), b"12").unwrap();
    let d = id(&lookup(&shared, NodeId::ROOT, "d"));
    let f = id(&lookup(&shared, d, "f"));
    assert_eq!(id(&lookup(&shared, d, "f")), f);
    shared.descriptors.shed();
    assert_eq!(attr::getattr(&shared, f).unwrap().attr.size, 2);
    let (made, file) = create(&shared, "g", mode::O_RDWR);
    drop(file);
    remove::unlink(&shared, Who::root(), NodeId::ROOT, &name("g")).unwrap();
    assert_eq!(attr::getattr(&shared, made).unwrap().attr.nlink, 0);
    shared.forget(f, LookupCount(2));
    assert_eq!(attr::getattr(&shared, f).err(), Some(Errno::STALE));
}

#[test]
fn at_the_descriptor_limit_cached_ones_go_first() {
    let (folder, shared) = pool(|_| ());
    fs::write(folder.path().join("f"), b"").unwrap();
    attr::getattr(&shared, id(&lookup(&shared, NodeId::ROOT, "f"))).unwrap();
    let left = std::cell::Cell::new(1);
    let call = || if left.replace(0) > 0 { Err(shuntfs_sys::OsError::MFILE) } else { Ok(()) };
    assert_eq!(shared.opening(call), Ok(()));
    assert_eq!(shared.descriptors.len(), 0);
    assert_eq!(
        shared.opening::<()>(|| Err(shuntfs_sys::OsError::MFILE)),
        Err(Errno::MFILE),
        "an honest error"
    );
}

#[test]
fn a_removal_that_fails_leaves_nothing_pinned() {
    let (folder, shared) = pool(|_| ());
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("d/f"), b"").unwrap();
    let d = id(&lookup(&shared, NodeId::ROOT, "d"));
    assert_eq!(remove::rmdir(&shared, Who::root(), NodeId::ROOT, &name("d")).err(), Some(Errno::NOTEMPTY));
    assert!(shared.descriptors.shed() > 0);
    assert!(!shared.node(d).unwrap().has(crate::node::Marks::PINNED));
}

#[test]
fn flags_of_inodes_are_heeded_at_open() {
    let (folder, shared) = pool(|_| ());
    let chattr = |flag: &str, name: &str| {
        let status = std::process::Command::new("chattr").arg(flag).arg(folder.path().join(name)).status();
        status.is_ok_and(|status| status.success())
    };
    for name in ["i", "a"] {
        fs::write(folder.path().join(name), b"x").unwrap();
    }
    if !chattr("+i", "i") || !chattr("+a", "a") {
        eprintln!("SKIPPED: chattr does not work on {}", folder.path().display());
        chattr("-i", "i");
        return;
    }
    let open = |of: &str, flags| {
        let node = id(&lookup(&shared, NodeId::ROOT, of));
        open::open(&shared, Who::root(), node, OpenFlags(flags)).map(drop)
    };
    let outcomes = [
        open("i", mode::O_RDONLY),
        open("i", mode::O_WRONLY | mode::O_APPEND),
        open("a", mode::O_RDONLY),
        open("a", mode::O_RDWR),
        open("a", mode::O_RDWR | mode::O_APPEND),
        open("a", mode::O_WRONLY | mode::O_APPEND | mode::O_TRUNC),
    ];
    let refused = Err(Errno::PERM);
    let appender = {
        let node = id(&lookup(&shared, NodeId::ROOT, "a"));
        let opened =
            open::open(&shared, Who::root(), node, OpenFlags(mode::O_WRONLY | mode::O_APPEND)).unwrap();
        file::lower_file(&shared, &opened.file, Access::Move).map(drop)
    };
    assert!(chattr("-i", "i") && chattr("-a", "a"));
    assert_eq!(outcomes, [Ok(()), refused, Ok(()), refused, Ok(()), refused]);
    assert_eq!(appender, Ok(()));
    assert_eq!(open("i", mode::O_WRONLY), Ok(()), "the lookup saw that it changed");
}

#[test]
fn privileged_what_is_mounted_below_is_shown_and_kept_apart() {
    struct Mounted(std::path::PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let (folder, shared) = pool(|_| ());
    let below = folder.path().join("m");
    fs::create_dir(&below).unwrap();
    let covered = fs::metadata(&below).unwrap().ino();
    let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&below).status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: not allowed to mount");
        return;
    }
    let mounted = Mounted(below.clone());
    fs::write(below.join("f"), b"123").unwrap();
    let top = lookup(&shared, NodeId::ROOT, "m");
    assert_ne!(top.attr.ino, covered);
    let f = lookup(&shared, id(&top), "f");
    assert_eq!(f.attr.size, 3);
    assert_eq!(id(&lookup(&shared, id(&top), "f")), id(&f));
    assert_ne!(f.attr.ino, fs::metadata(below.join("f")).unwrap().ino(), "it does not meet the branch's own");
    assert_eq!(shared.first_branch().mounts.len(), 2);
    assert_eq!(make::link(&shared, Who::root(), id(&f), NodeId::ROOT, &name("l")).err(), Some(Errno::XDEV));
    let mut list = List { plus: true, room: 9, ..List::default() };
    let opened = dir::open(&shared, Who::root(), NodeId::ROOT).unwrap();
    dir::list(&shared, Who::root(), &opened.walk, 0, &mut list).unwrap();
    let listed = list.names.iter().find(|(name, ..)| name == "m").unwrap();
    assert_eq!(listed.1, top.attr.ino);
    drop((opened, shared));
    drop(mounted);
}

#[test]
fn what_decides_is_not_remembered_for_a_second() {
    let (_folder, plain) = pool(|options| options.cache = Cache::Second);
    assert_eq!(plain.ttl(), Duration::from_secs(1));
    let folder = tempfile::tempdir().unwrap();
    let options = PoolOptions { cache: Cache::Second, ..PoolOptions::new(folder.path()) };
    let rules = shuntfs_rules::Rules::parse(
        "[[rule]]\nbasename = 'b'\nhide = true\n",
        "rules",
        None,
        &shuntfs_rules::Nobody,
    )
    .unwrap();
    let ruled = Shared::open_with(&options, Some(rules), None).unwrap();
    assert_eq!(ruled.ttl(), Duration::ZERO);
}
