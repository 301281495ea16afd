//! The names that lead to each node.
//!
//! A folder has one, a file as many as were met. The kernel knows a folder as long as it knows anything in it, so a
//! path can be put together from names up to the root. A node's last name stays with it when it is removed: what is
//! still open, or opened anew through `/proc`, is judged by the name that it had.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use shuntfs::NodeId;

use crate::ledger::{Kind, Ledger, Reading, Writing};

/// A node's names are in the shard of its number.
const SHARDS: usize = 64;

/// More components than any path of `PATH_MAX` bytes has.
pub(crate) const DEPTH_MAX: usize = 4096;

/// Room for most paths, in bytes.
const PATH_USUAL: usize = 64;

/// More names of one file than this are not noted here; those that a rule protects are in the index anyway.
const NAMES_MAX: usize = 1024;

/// The longest name that any file system has, in bytes.
const NAME_MAX: usize = 1024;

/// A name in a folder; empty for a file that was made without one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) parent: NodeId,
    pub(crate) name: Box<[u8]>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Links {
    list: Vec<Link>,
    /// The last name was removed.
    is_gone: bool,
    /// The path that it had then: the folder that it was in may move on, and come to where less is denied.
    last_path: Option<Vec<u8>>,
}

/// How many changes of names there were: what was looked up before one may be noted only as long as there is no other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moment(u64);

/// The names of all nodes but the root.
#[derive(Debug)]
pub(crate) struct Paths {
    shards: Box<[Mutex<HashMap<NodeId, Links>>]>,
    changes: AtomicU64,
    /// Where names are written down for the next server, if there may be one. Its lock comes after those of the shards.
    ledger: OnceLock<Arc<Ledger>>,
}

impl Paths {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, changes: AtomicU64::new(0), ledger: OnceLock::new() }
    }

    /// Takes the names of a node that a predecessor has written down.
    ///
    /// # Errors
    /// What is written is not what a server writes.
    pub(crate) fn take(&self, record: &[u8]) -> Result<(), &'static str> {
        let (node, links) = read_links(record).ok_or("the names of a node")?;
        let mut shard = self.shard(node).lock();
        match links.list.is_empty() {
            true => shard.remove(&node),
            false => shard.insert(node, links),
        };
        Ok(())
    }

    /// Names are written down from now on, and those that are known of these nodes at once; what is known of others is forgotten.
    pub(crate) fn keep(&self, ledger: &Arc<Ledger>, is_known: impl Fn(NodeId) -> bool) {
        for shard in &self.shards {
            shard.lock().retain(|node, _| is_known(*node));
        }
        if self.ledger.set(Arc::clone(ledger)).is_ok() {
            self.rewrite(ledger);
        }
    }

    fn rewrite(&self, ledger: &Ledger) {
        let shards: Vec<_> = self.shards.iter().map(Mutex::lock).collect();
        let all = shards.iter().flat_map(|shard| shard.iter());
        ledger.rewrite(all.map(|(node, links)| written(*node, links)));
    }

    /// Writes down the names of a node that have changed.
    fn write(&self, shard: MutexGuard<'_, HashMap<NodeId, Links>>, node: NodeId) {
        let Some(ledger) = self.ledger.get() else { return };
        let none = Links::default();
        ledger.note(Kind::Names, &written(node, shard.get(&node).unwrap_or(&none)));
        drop(shard);
        if ledger.is_due() {
            self.rewrite(ledger);
        }
    }

    /// The nodes to which a name leads, as far as is known.
    pub(crate) fn holders(&self, parent: NodeId, name: &[u8]) -> Vec<NodeId> {
        let is_here = |link: &Link| link.parent == parent && *link.name == *name;
        let mut holders = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let held = shard.iter().filter(|(_, links)| !links.is_gone && links.list.iter().any(is_here));
            holders.extend(held.map(|(node, _)| *node));
        }
        holders
    }

    /// The moment before whatever is looked up next.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.changes.load(Ordering::SeqCst))
    }

    /// A name went or moved; called before that is noted.
    pub(crate) fn changes(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    fn shard(&self, node: NodeId) -> &Mutex<HashMap<NodeId, Links>> {
        let index = usize::try_from(node.get() % SHARDS as u64).expect("below 64");
        &self.shards[index]
    }

    /// Notes that a name leads to a node; `is_only` where it can have no other.
    pub(crate) fn note(&self, node: NodeId, parent: NodeId, name: &[u8], is_only: bool) {
        let mut shard = self.shard(node).lock();
        if Self::note_in(&mut shard, node, (parent, name), is_only) {
            self.write(shard, node);
        }
    }

    /// The same of what was looked up at a moment; not where a name has changed since, because then it may be this one:
    /// the kernel looks names up again without keeping them from being moved. Whether it was noted.
    pub(crate) fn note_met(
        &self,
        moment: Moment,
        node: NodeId,
        parent: NodeId,
        name: &[u8],
        is_only: bool,
    ) -> bool {
        let mut shard = self.shard(node).lock();
        // Whoever changes names counts before it comes to this lock, so its note follows where this sees nothing.
        let is_now = self.moment() == moment;
        if is_now && Self::note_in(&mut shard, node, (parent, name), is_only) {
            self.write(shard, node);
        }
        is_now
    }

    /// Whether anything changed by it.
    fn note_in(
        shard: &mut HashMap<NodeId, Links>,
        node: NodeId,
        (parent, name): (NodeId, &[u8]),
        is_only: bool,
    ) -> bool {
        if node == NodeId::ROOT {
            return false;
        }
        let links = shard.entry(node).or_default();
        let is_here = |link: &Link| link.parent == parent && *link.name == *name;
        let mut has_changed = links.is_gone || is_only && !links.list.iter().all(is_here);
        if has_changed {
            *links = Links::default();
        }
        let before = links.list.len();
        links.list.retain(|link| !link.name.is_empty());
        has_changed |= links.list.len() != before;
        if !links.list.iter().any(is_here) && links.list.len() < NAMES_MAX {
            links.list.push(Link { parent, name: name.into() });
            has_changed = true;
        }
        has_changed
    }

    /// Notes that a name leads to the node no more. A node that was met by none of its file's other names keeps the last of
    /// those that went.
    pub(crate) fn removed(&self, node: NodeId, parent: NodeId, name: &[u8]) {
        // Looked up before the lock: a folder on the way may be in the same shard.
        let path = self.child(parent, name);
        let mut shard = self.shard(node).lock();
        let Some(links) = shard.get_mut(&node) else { return };
        let is_here = |link: &Link| link.parent == parent && *link.name == *name;
        if links.list.len() > 1 {
            links.list.retain(|link| !is_here(link));
        } else if links.is_gone || links.list.iter().any(is_here) {
            let list = vec![Link { parent, name: name.into() }];
            *links = Links { list, is_gone: true, last_path: path };
        }
        self.write(shard, node);
    }

    /// The kernel has forgotten the node.
    pub(crate) fn forget(&self, node: NodeId) {
        let mut shard = self.shard(node).lock();
        if shard.remove(&node).is_some() {
            self.write(shard, node);
        }
    }

    /// The names that a node has now: not the one that stays with it when it has none.
    pub(crate) fn links_now(&self, node: NodeId) -> Vec<Link> {
        let shard = self.shard(node).lock();
        let links = shard.get(&node).filter(|links| !links.is_gone);
        links
            .into_iter()
            .flat_map(|links| links.list.iter().filter(|link| !link.name.is_empty()).cloned())
            .collect()
    }

    /// The names of a node.
    pub(crate) fn links(&self, node: NodeId) -> Vec<Link> {
        self.shard(node).lock().get(&node).map(|links| links.list.clone()).unwrap_or_default()
    }

    /// Whether no node has a name.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// Every folder in which a name is known, and every name, in no order.
    pub(crate) fn all(&self) -> (HashSet<NodeId>, Vec<Link>) {
        let (mut folders, mut links) = (HashSet::from([NodeId::ROOT]), Vec::new());
        for shard in &self.shards {
            let shard = shard.lock();
            links.extend(shard.values().flat_map(|links| links.list.iter().cloned()));
        }
        folders.extend(links.iter().map(|link| link.parent));
        (folders, links)
    }

    /// The path of a folder below the root, which itself is empty; `None` where a name on the way is not known.
    pub(crate) fn folder(&self, folder: NodeId) -> Option<Vec<u8>> {
        self.path(folder, None)
    }

    /// The path of a name in a folder.
    pub(crate) fn child(&self, folder: NodeId, name: &[u8]) -> Option<Vec<u8>> {
        self.path(folder, Some(name))
    }

    /// Put together backwards, in one piece of memory: every open and every name of a listing asks for a path.
    fn path(&self, folder: NodeId, last: Option<&[u8]>) -> Option<Vec<u8>> {
        let (mut path, mut here) = (Vec::with_capacity(PATH_USUAL), folder);
        path.extend(last.into_iter().flatten().rev());
        for _ in 0..=DEPTH_MAX {
            if here == NodeId::ROOT {
                path.reverse();
                return Some(path);
            }
            let shard = self.shard(here).lock();
            let link = shard.get(&here)?.list.first()?;
            if last.is_some() || here != folder {
                path.push(b'/');
            }
            path.extend(link.name.iter().rev());
            here = link.parent;
        }
        None
    }

    /// The paths of a node, one for each name whose folder is known.
    pub(crate) fn of(&self, node: NodeId) -> Vec<Vec<u8>> {
        if node == NodeId::ROOT {
            return vec![Vec::new()];
        }
        if let Some(path) = self.shard(node).lock().get(&node).and_then(|links| links.last_path.clone()) {
            return vec![path];
        }
        self.links(node).iter().filter_map(|link| self.child(link.parent, &link.name)).collect()
    }
}

/// The names of a node as they are written down: its number; whether they are gone; the last path; each folder and name.
fn written(node: NodeId, links: &Links) -> Vec<u8> {
    let mut words = Writing::default();
    words.number(node.get());
    words.number(u64::from(links.is_gone) | u64::from(links.last_path.is_some()) << 1);
    words.bytes(links.last_path.as_deref().unwrap_or_default());
    for Link { parent, name } in &links.list {
        words.number(parent.get());
        words.bytes(name);
    }
    words.0
}

fn read_links(record: &[u8]) -> Option<(NodeId, Links)> {
    let mut words = Reading(record);
    let (node, flags) = (NodeId::new(words.number()?)?, words.number()?);
    let path = words.bytes()?;
    let mut links = Links {
        list: Vec::new(),
        is_gone: flags & 1 != 0,
        last_path: (flags & 2 != 0).then(|| path.to_vec()),
    };
    while !words.is_over() {
        let (parent, name) = (NodeId::new(words.number()?)?, words.bytes()?);
        if name.len() > NAME_MAX || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return None;
        }
        links.list.push(Link { parent, name: name.into() });
    }
    let fits = flags <= 3 && node != NodeId::ROOT && links.list.len() <= NAMES_MAX;
    fits.then_some((node, links))
}

#[cfg(test)]
mod test {
    use super::*;

    fn id(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn texts(paths: &Paths, node: u64) -> Vec<String> {
        let mut texts: Vec<String> =
            paths.of(id(node)).into_iter().map(|path| String::from_utf8(path).unwrap()).collect();
        texts.sort();
        texts
    }

    #[test]
    fn a_file_has_the_paths_of_its_names_and_a_folder_one() {
        let paths = Paths::new();
        paths.note(id(2), NodeId::ROOT, b"a", true);
        paths.note(id(3), id(2), b"b", true);
        paths.note(id(9), id(3), b"f", false);
        paths.note(id(9), NodeId::ROOT, b"g", false);
        paths.note(id(9), NodeId::ROOT, b"g", false);
        assert_eq!(texts(&paths, 9), ["a/b/f", "g"]);
        assert_eq!(texts(&paths, 1), [""]);
        // The folder moves, and what is in it with it.
        paths.note(id(3), NodeId::ROOT, b"c", true);
        assert_eq!(texts(&paths, 9), ["c/f", "g"]);
        assert_eq!(texts(&paths, 3), ["c"]);
    }

    /// A descriptor of a denied file outlived its name, and its folder moved to where nothing is denied: opened anew through
    /// /proc, the file was judged by the new place of a folder that it was not in any more.
    #[test]
    fn a_name_that_is_gone_does_not_move_with_its_folder() {
        let paths = Paths::new();
        paths.note(id(2), NodeId::ROOT, b"denied", true);
        paths.note(id(5), id(2), b"f", false);
        paths.removed(id(5), id(2), b"f");
        paths.note(id(2), NodeId::ROOT, b"free", true);
        assert_eq!(texts(&paths, 5), ["denied/f"]);
        paths.note(id(5), id(2), b"g", false);
        assert_eq!(texts(&paths, 5), ["free/g"]);
    }

    #[test]
    fn the_last_name_stays_until_there_is_another() {
        let paths = Paths::new();
        for name in [b"a", b"b"] {
            paths.note(id(5), NodeId::ROOT, name, false);
        }
        paths.removed(id(5), NodeId::ROOT, b"a");
        assert_eq!(texts(&paths, 5), ["b"]);
        paths.removed(id(5), NodeId::ROOT, b"b");
        assert_eq!(texts(&paths, 5), ["b"]);
        paths.note(id(5), NodeId::ROOT, b"c", false);
        assert_eq!(texts(&paths, 5), ["c"]);
        paths.forget(id(5));
        assert!(texts(&paths, 5).is_empty());
    }

    /// Each view of a file is a node, met by some of the file's names. One whose only name had gone was judged by it forever,
    /// whatever name the file lost after that.
    #[test]
    fn the_last_name_is_that_of_the_file_also_where_the_node_was_not_met_by_it() {
        let paths = Paths::new();
        paths.note(id(2), NodeId::ROOT, b"denied", true);
        paths.note(id(5), NodeId::ROOT, b"seen", false);
        paths.removed(id(5), id(2), b"unmet");
        assert_eq!((texts(&paths, 5), paths.links_now(id(5)).len()), (vec!["seen".to_owned()], 1));
        paths.removed(id(5), NodeId::ROOT, b"seen");
        paths.removed(id(5), id(2), b"last");
        assert_eq!(texts(&paths, 5), ["denied/last"]);
        assert!(paths.links_now(id(5)).is_empty());
        paths.note(id(5), NodeId::ROOT, b"new", false);
        assert_eq!(texts(&paths, 5), ["new"]);
    }

    #[test]
    fn a_file_made_without_a_name_is_in_its_folder_until_it_has_one() {
        let paths = Paths::new();
        paths.note(id(2), NodeId::ROOT, b"a", true);
        paths.note(id(5), id(2), b"", false);
        assert_eq!(texts(&paths, 5), ["a/"]);
        paths.note(id(5), NodeId::ROOT, b"f", false);
        assert_eq!(texts(&paths, 5), ["f"]);
    }

    /// A name that was looked up before a folder was moved must not bring the old place back.
    #[test]
    fn what_was_looked_up_before_a_change_is_not_noted_after_it() {
        let paths = Paths::new();
        let before = paths.moment();
        assert!(paths.note_met(before, id(2), NodeId::ROOT, b"old", true));
        paths.changes();
        paths.note(id(2), NodeId::ROOT, b"new", true);
        assert!(!paths.note_met(before, id(2), NodeId::ROOT, b"old", true));
        assert_eq!(texts(&paths, 2), ["new"]);
        assert!(paths.note_met(paths.moment(), id(2), NodeId::ROOT, b"newer", true));
        assert_eq!(texts(&paths, 2), ["newer"]);
        assert_eq!(paths.links_now(id(2)).len(), 1);
        paths.removed(id(2), NodeId::ROOT, b"newer");
        assert!(paths.links_now(id(2)).is_empty() && texts(&paths, 2) == ["newer"]);
    }

    /// One thread moves a folder to and fro, others look its names up as a revalidation does: without a lock, and as slow as
    /// they like. What they note must never be where the folder is not.
    #[test]
    fn late_lookups_never_win_over_moves() {
        use std::sync::atomic::AtomicBool;
        let (paths, place, stop) = (Paths::new(), AtomicU64::new(0), AtomicBool::new(false));
        let name = |place: u64| format!("place {place}").into_bytes();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        let moment = paths.moment();
                        let found = place.load(Ordering::SeqCst);
                        std::thread::yield_now();
                        paths.note_met(moment, id(2), NodeId::ROOT, &name(found), true);
                    }
                });
            }
            for now in 1..20_000 {
                place.store(now, Ordering::SeqCst);
                paths.changes();
                paths.note(id(2), NodeId::ROOT, &name(now), true);
                if now % 16 == 0 {
                    std::thread::yield_now();
                }
                assert_eq!(paths.of(id(2)), [name(now)]);
            }
            stop.store(true, Ordering::SeqCst);
        });
    }

    /// The names of the next server are those of the one before, whatever happened to them.
    #[test]
    fn what_was_written_down_is_known_again() {
        let ledger = Arc::new(Ledger::new().expect("memory"));
        let paths = Paths::new();
        paths.note(id(2), NodeId::ROOT, b"denied", true);
        paths.keep(&ledger, |_| true);
        for (node, parent, name, is_only) in [
            (5, 2, &b"f"[..], false),
            (6, 1, b"g", false),
            (6, 2, b"h", false),
            (7, 2, b"", false),
            (8, 1, b"forgotten", true),
            (9, 1, b"old", true),
            (9, 1, b"new", true),
            (10, 2, b"unknown", true),
        ] {
            paths.note(id(node), id(parent), name, is_only);
        }
        paths.removed(id(5), id(2), b"f");
        paths.removed(id(6), NodeId::ROOT, b"g");
        paths.forget(id(8));
        paths.note(id(2), NodeId::ROOT, b"free", true);
        let read = |paths: &Paths| {
            let take = |kind, record: &[u8]| if kind == Kind::Names { paths.take(record) } else { Ok(()) };
            ledger.read(take).expect("is whole");
        };
        let next = Paths::new();
        read(&next);
        assert_eq!(paths.holders(id(2), b"h"), [id(6)]);
        for node in 2..=10 {
            assert_eq!(texts(&next, node), texts(&paths, node), "{node}");
            assert_eq!(next.links_now(id(node)), paths.links_now(id(node)), "{node}");
        }
        assert_eq!(texts(&next, 5), ["denied/f"]);
        next.keep(&ledger, |node| node != id(10));
        assert!(texts(&next, 10).is_empty() && texts(&next, 9) == ["new"]);
        let third = Paths::new();
        read(&third);
        assert!(third.links(id(10)).is_empty() && texts(&third, 6) == ["free/h"]);
    }

    #[test]
    fn names_that_no_server_writes_are_refused() {
        let links = |name: &[u8]| {
            let list = vec![Link { parent: NodeId::ROOT, name: name.into() }];
            Links { list, ..Links::default() }
        };
        let good = written(id(5), &links(b"name"));
        assert!(Paths::new().take(&good).is_ok());
        for cut in 1..good.len() {
            // Without a name it is what is written of a node that was forgotten.
            let may_be = cut == 24;
            assert_eq!(Paths::new().take(&good[..cut]).is_ok(), may_be, "{cut}");
        }
        for bad in [&b"a/b"[..], b"a\0", &[b'n'; NAME_MAX + 1]] {
            assert!(Paths::new().take(&written(id(5), &links(bad))).is_err());
        }
        assert!(Paths::new().take(&written(NodeId::ROOT, &links(b"name"))).is_err());
        assert!(Paths::new().take(&[]).is_err());
    }

    #[test]
    fn names_in_forgotten_folders_lead_nowhere_and_circles_end() {
        let paths = Paths::new();
        paths.note(id(5), id(4), b"f", false);
        assert!(texts(&paths, 5).is_empty());
        paths.note(id(4), id(5), b"d", true);
        assert!(texts(&paths, 5).is_empty());
    }
}
