//! All names of the files that have several.
//!
//! A file that is reached by a name that no rule is about may have another that a rule protects. So the source is walked
//! before rules that go by names hold ([`super::search`]), and of each file with several links every name is kept,
//! whether a rule of the moment is about it or not: rules and folders may come to it later. From then on every change through
//! the mount is followed.
//!
//! A name is a folder and a last component, and a folder is known by its inode, not by its path: so a folder that moves takes
//! its names along, and what was noted before the move and after it means the same. In a merge it is a folder of one branch, and
//! its path is that in the pool. Names on all branches are kept together, because branches on one file system may share a file.
//!
//! What changes while the source is walked is noted in a journal, too, which is played again on what was found; each entry says
//! what is true after it, so it does no harm where the walk had seen it already.
//!
//! How many names there must be is known as well: the lower file system counts the links of each file. Those that the walk did not
//! find are outside of the source, where no rule is about them. A link more than that was made below the mount, and the
//! file's names are then not known ([`Known::is_all`]) until another walk has found them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use parking_lot::{Mutex, MutexGuard};
use shuntfs::{Errno, Result};

use crate::node::Identity;

/// More names than these are not kept, and the rules refused: each takes some 100 bytes.
pub(super) const NAMES_MAX: usize = 4_000_000;

/// What is above the top of a branch.
const ABOVE: u32 = u32::MAX;

/// A folder and its name in the next one.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) folder: Identity,
    /// The same wherever it is mounted ([`crate::shared::Shared::home`]).
    pub(crate) home: Identity,
    pub(crate) name: Box<[u8]>,
}

/// Where a folder is: itself and those that it is in, from the inside out. The last is the top of its branch, which has no name.
pub(crate) type Way = Vec<Step>;

/// The names of files with several links.
#[derive(Debug, Default)]
pub(crate) struct Index {
    state: Mutex<State>,
    /// Whether the source was walked, and names are followed.
    is_kept: AtomicBool,
    /// Whether the last walk left a branch out.
    misses: AtomicBool,
}

/// What is known, under its lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// `None` until the source was walked.
    names: Option<Names>,
    /// What has changed since the walk began that is under way.
    journal: Option<Vec<Event>>,
    /// A change could not be noted, so that only another walk knows.
    is_torn: bool,
    /// That was so of the walk under way, too.
    is_walk_torn: bool,
}

/// A change of names. Files are known by [`crate::shared::Shared::home`]: by which mount they were reached says nothing.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A file has a name.
    Came { file: Identity, folder: Way, name: Box<[u8]> },
    /// It has it no more.
    Went { file: Identity, folder: Identity, name: Box<[u8]> },
    /// A file has this name instead of that one; `has_others` is said of one that may not be kept yet.
    Moved { file: Identity, from: (Identity, Box<[u8]>), to: (Way, Box<[u8]>), has_others: bool },
    /// A folder is in another place.
    FolderMoved { way: Way },
}

/// What is known of one file.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) paths: Vec<Vec<u8>>,
    /// Whether these are all names in the source.
    pub(crate) is_all: bool,
}

/// The names that a walk found.
#[derive(Debug, Default)]
pub(crate) struct Names {
    folders: Vec<Folder>,
    by_identity: HashMap<Identity, u32>,
    files: HashMap<Identity, File>,
    count: usize,
}

#[derive(Debug)]
struct Folder {
    parent: u32,
    name: Box<[u8]>,
    /// The same wherever it is mounted.
    home: Identity,
    /// The branch that it is on.
    branch: u16,
}

#[derive(Debug, Default)]
struct File {
    links: Vec<Link>,
    /// How many more there were when the source was walked.
    outside: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Link {
    folder: u32,
    name: Box<[u8]>,
}

impl Index {
    /// Holds everything still that changes names, from before a change is noted until it is noted everywhere.
    pub(crate) fn change(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether the source was walked, and names are followed: where some rule goes by them.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::SeqCst)
    }

    /// Forgets everything, where no rule goes by names any more.
    pub(super) fn clear(&self) {
        self.is_kept.store(false, Ordering::SeqCst);
        *self.state.lock() = State::default();
    }

    /// From now on changes are noted for a walk that begins.
    pub(super) fn begin_walk(&self) {
        self.misses.store(false, Ordering::SeqCst);
        let mut state = self.state.lock();
        state.journal = Some(Vec::new());
        state.is_walk_torn = false;
    }

    /// Notes that a walk leaves a branch out, because that does not answer. It must be looked afterwards whether that is so still.
    pub(super) fn miss(&self) {
        self.misses.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether a walk left a branch out.
    pub(super) fn misses(&self) -> bool {
        self.misses.load(Ordering::SeqCst)
    }

    /// The walk came to nothing.
    pub(super) fn end_walk(&self) {
        self.state.lock().journal = None;
    }

    /// Takes what a walk found, unless folders were moved that it has not seen (`is_seen`): those are returned, to be walked.
    pub(super) fn take(&self, walked: &mut Option<Names>, is_seen: impl Fn(&Identity) -> bool) -> Vec<Way> {
        let mut state = self.state.lock();
        let journal = state.journal.as_deref().unwrap_or_default();
        let folders = journal.iter().filter_map(|event| match event {
            Event::FolderMoved { way } => Some(way),
            Event::Came { .. } | Event::Went { .. } | Event::Moved { .. } => None,
        });
        let unseen: Vec<Way> =
            folders.filter(|way| way.first().is_some_and(|step| !is_seen(&step.folder))).cloned().collect();
        if unseen.is_empty()
            && let Some(mut names) = walked.take()
        {
            let journal = state.journal.take().unwrap_or_default();
            names.all_found();
            journal.iter().for_each(|event| names.play_again(event));
            let is_torn = state.is_walk_torn;
            *state = State { names: Some(names), journal: None, is_torn, is_walk_torn: false };
            self.is_kept.store(true, Ordering::SeqCst);
        }
        unseen
    }

    /// The names of a file that has `links` links.
    pub(super) fn of(&self, file: &Identity, links: u32) -> Known {
        let state = self.state.lock();
        let Some(names) = &state.names else { return Known { paths: Vec::new(), is_all: links <= 1 } };
        let Some(file) = names.files.get(file) else {
            return Known { paths: Vec::new(), is_all: links <= 1 };
        };
        let outside = if state.is_torn { 0 } else { file.outside };
        let known = u32::try_from(names.distinct(file)).unwrap_or(u32::MAX);
        let paths = names.places(file).map(|(_, path)| path).collect();
        Known { paths, is_all: known.saturating_add(outside) >= links }
    }

    /// Keeps of a file's names, each a path on a branch, those that hold. The number of links then says whether there are others, wherever
    /// these are.
    pub(super) fn keep(&self, file: &Identity, links: u32, holds: impl Fn(u16, &[u8]) -> bool) -> Known {
        let before = self.places_of(file);
        let (good, bad): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|(branch, path)| holds(*branch, path));
        let paths = good.into_iter().map(|(_, path)| path).collect();
        let mut state = self.state.lock();
        let Some(names) = &mut state.names else { return Known { paths, is_all: links <= 1 } };
        names.drop_places(file, &bad);
        let known = names.files.get(file).map_or(0, |file| names.distinct(file));
        Known { paths, is_all: u32::try_from(known).is_ok_and(|known| known >= links) }
    }

    /// The branch and the path of each name of a file.
    fn places_of(&self, file: &Identity) -> Vec<(u16, Vec<u8>)> {
        let state = self.state.lock();
        let Some(names) = &state.names else { return Vec::new() };
        names.files.get(file).map_or_else(Vec::new, |file| names.places(file).collect())
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.state.lock().names.as_ref().map_or(0, |names| names.count)
    }
}

impl State {
    /// Notes a change that was made through the mount, or a name that was met.
    pub(crate) fn note(&mut self, event: Event) {
        if let Some(names) = &mut self.names {
            names.play(&event);
        }
        if let Some(journal) = &mut self.journal {
            journal.push(event);
        }
    }

    /// A change cannot be noted: nobody knows then how many names there are outside.
    pub(crate) fn tear(&mut self) {
        self.is_torn = true;
        self.is_walk_torn = true;
    }

    /// Whether anybody wants to know.
    pub(crate) fn is_kept(&self) -> bool {
        self.names.is_some() || self.journal.is_some()
    }

    /// Whether a name is noted already.
    pub(crate) fn has(&self, file: &Identity, folder: &Identity, name: &[u8]) -> bool {
        let Some(names) = &self.names else { return false };
        let Some(folder) = names.number_of(folder) else { return false };
        let mut links = names.files.get(file).into_iter().flat_map(|file| &file.links);
        links.any(|link| link.folder == folder && *link.name == *name)
    }
}

impl Names {
    /// No names, below these tops of branches.
    pub(super) fn below(tops: impl Iterator<Item = Step>) -> Self {
        let mut names = Self::default();
        for top in tops {
            names.place(&vec![top]);
        }
        names
    }

    /// A walk found a name of a file with so many links, of which those that are not found at all are outside.
    ///
    /// # Errors
    /// ENOSPC where there are too many.
    pub(super) fn found(&mut self, file: Identity, links: u32, way: &Way, name: &[u8]) -> Result<()> {
        self.add(&file, way, name);
        if self.count > NAMES_MAX {
            tracing::error!(limit = NAMES_MAX, "too many hard links for rules that go by names");
            return Err(Errno::NOSPC);
        }
        if let Some(file) = self.files.get_mut(&file) {
            file.outside = links;
        }
        Ok(())
    }

    /// Everything was found: what is left of the numbers of links is outside.
    fn all_found(&mut self) {
        let mut files = std::mem::take(&mut self.files);
        for file in files.values_mut() {
            let inside = u32::try_from(self.distinct(file)).unwrap_or(u32::MAX);
            file.outside = file.outside.saturating_sub(inside);
        }
        self.files = files;
    }

    /// Plays what happened while the source was walked. How many links the walk saw may be of before or after.
    fn play_again(&mut self, event: &Event) {
        self.play(event);
        let (Event::Came { file, .. } | Event::Went { file, .. } | Event::Moved { file, .. }) = event else {
            return;
        };
        if let Some(file) = self.files.get_mut(file) {
            file.outside = 0;
        }
    }

    fn play(&mut self, event: &Event) {
        match event {
            Event::Came { file, folder, name } => self.add(file, folder, name),
            Event::Went { file, folder, name } => {
                self.remove(file, folder, name);
            }
            Event::Moved { file, from, to, has_others } => {
                if self.remove(file, &from.0, &from.1) || *has_others {
                    self.add(file, &to.0, &to.1);
                }
            }
            // What is not kept leads to no name.
            Event::FolderMoved { way } => {
                if way.first().is_some_and(|step| self.by_identity.contains_key(&step.folder)) {
                    self.place(way);
                }
            }
        }
    }

    fn add(&mut self, file: &Identity, way: &Way, name: &[u8]) {
        let link = Link { folder: self.place(way), name: name.into() };
        let file = self.files.entry(file.clone()).or_default();
        if !file.links.contains(&link) {
            file.links.push(link);
            self.count += 1;
        }
    }

    fn remove(&mut self, file: &Identity, folder: &Identity, name: &[u8]) -> bool {
        let folder = self.number_of(folder);
        let Some(known) = self.files.get_mut(file) else { return false };
        let before = known.links.len();
        known.links.retain(|link| Some(link.folder) != folder || *link.name != *name);
        let removed = before - known.links.len();
        self.count -= removed;
        if known.links.is_empty() {
            self.files.remove(file);
        }
        removed > 0
    }

    fn drop_places(&mut self, file: &Identity, bad: &[(u16, Vec<u8>)]) {
        let Some(mut known) = self.files.remove(file) else { return };
        let before = known.links.len();
        known.links.retain(|link| !self.path(link).is_some_and(|place| bad.contains(&place)));
        self.count -= before - known.links.len();
        if !known.links.is_empty() {
            self.files.insert(file.clone(), known);
        }
    }

    fn number_of(&self, folder: &Identity) -> Option<u32> {
        self.by_identity.get(folder).copied()
    }

    /// Notes where a folder is; its number.
    fn place(&mut self, way: &Way) -> u32 {
        let mut parent = ABOVE;
        for Step { folder, home, name } in way.iter().rev() {
            let next = u32::try_from(self.folders.len()).expect("fewer folders than names");
            let number = *self.by_identity.entry(folder.clone()).or_insert(next);
            if number == next {
                let branch = folder.mount.branch;
                self.folders.push(Folder { parent, name: name.clone(), home: home.clone(), branch });
            } else if let Some(known) = self.folders.get_mut(number as usize) {
                known.parent = parent;
                known.name.clone_from(name);
            }
            parent = number;
        }
        parent
    }

    /// How many links these names are: two of them may be one, in a folder that is mounted twice.
    fn distinct(&self, file: &File) -> usize {
        let place = |link: &Link| &self.folders[link.folder as usize].home;
        let is_first = |index: usize, link: &Link| {
            file.links[..index].iter().all(|other| other.name != link.name || place(other) != place(link))
        };
        file.links.iter().enumerate().filter(|(index, link)| is_first(*index, link)).count()
    }

    /// The branch and the path of each name of a file.
    fn places(&self, file: &File) -> impl Iterator<Item = (u16, Vec<u8>)> {
        file.links.iter().filter_map(|link| self.path(link))
    }

    /// The branch and the path of a name.
    fn path(&self, link: &Link) -> Option<(u16, Vec<u8>)> {
        let mut here = self.folders.get(link.folder as usize)?;
        let (mut parts, branch) = (vec![&*link.name], here.branch);
        while here.parent != ABOVE {
            parts.push(&here.name);
            here = self.folders.get(here.parent as usize)?;
            // Folders below cannot be their own parents, but what is kept of them may be of two moments.
            if parts.len() > self.folders.len() + 1 {
                return None;
            }
        }
        parts.reverse();
        Some((branch, parts.join(&b'/')))
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::branch::MountIndex;
    use crate::find;
    use crate::name_buf::NameBuf;
    use crate::node::Identity;
    use crate::options::PoolOptions;
    use crate::rules::search::search;
    use crate::shared::Shared;
    use shuntfs_sys::Stat;

    fn inode(ino: u64) -> Identity {
        Identity::new(&Stat { ino, ..Stat::default() }, MountIndex::own(0), None)
    }

    fn step(ino: u64, name: &str) -> Step {
        Step { folder: inode(ino), home: inode(ino), name: name.as_bytes().into() }
    }

    /// A folder and those around it, with the top.
    fn way(steps: &[(u64, &str)]) -> Way {
        steps.iter().map(|(ino, name)| step(*ino, name)).chain([step(1, "")]).collect()
    }

    fn came(file: u64, folder: &[(u64, &str)], name: &str) -> Event {
        let folder = way(folder);
        Event::Came { file: inode(file), folder, name: name.as_bytes().into() }
    }

    fn texts(index: &Index, file: u64, links: u32) -> (Vec<String>, bool) {
        let known = index.of(&inode(file), links);
        let mut texts: Vec<_> =
            known.paths.into_iter().map(|path| String::from_utf8(path).unwrap()).collect();
        texts.sort();
        (texts, known.is_all)
    }

    fn walked(index: &Index, names: Names) {
        assert!(index.take(&mut Some(names), |_| true).is_empty());
    }

    fn empty() -> Names {
        Names::below(std::iter::once(step(1, "")))
    }

    #[test]
    fn names_are_found_and_followed_whatever_rules_are_about_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        for (name, other) in [("a/b/one", "two"), ("three", "four")] {
            std::fs::write(at(name), "x").unwrap();
            std::fs::hard_link(at(name), at(other)).unwrap();
        }
        std::fs::write(at("a/alone"), "x").unwrap();
        let shared = Shared::open(&PoolOptions::new(folder.path())).unwrap();
        let index = Index::default();
        search(&shared, &index).unwrap();
        assert_eq!(index.len(), 4);
        let root = shared.folder(shuntfs::NodeId::ROOT).unwrap();
        let name = NameBuf::new(shuntfs::Name::new(c"two").unwrap()).unwrap();
        let file = find::find(&shared, root.spot(&name)).unwrap().identity;
        let file = shared.home(&file);
        let known = index.of(&file, 2);
        assert!(known.is_all && !index.of(&file, 3).is_all, "a third link is nobody's");
        let mut paths: Vec<_> =
            known.paths.into_iter().map(|path| String::from_utf8(path).unwrap()).collect();
        paths.sort();
        assert_eq!(paths, ["a/b/one", "two"]);

        // Without a word to us, as with `--cache none`.
        std::fs::rename(at("a/b"), at("c")).unwrap();
        let holds =
            |branch: u16, path: &[u8]| crate::rules::search::leads_to(&shared, branch, path, &file).unwrap();
        let known = index.keep(&file, 2, holds);
        assert!(known.paths == [b"two".to_vec()] && !known.is_all);
        search(&shared, &index).unwrap();
        assert!(index.keep(&file, 2, holds).is_all);
        // A link outside of the source is known to be outside, while everything changes through the mount.
        let outside = tempfile::tempdir_in(folder.path().parent().unwrap()).unwrap();
        std::fs::hard_link(at("two"), outside.path().join("out")).unwrap();
        assert!(!index.of(&file, 3).is_all);
        search(&shared, &index).unwrap();
        assert!(index.of(&file, 3).is_all);
        assert!(!index.keep(&file, 3, holds).is_all, "where others change the source it may come in");
    }

    #[test]
    fn folders_take_their_names_along() {
        let index = Index::default();
        walked(&index, empty());
        let mut names = index.change();
        names.note(came(9, &[(3, "b"), (2, "a")], "f"));
        names.note(came(9, &[], "g"));
        drop(names);
        assert_eq!(texts(&index, 9, 2), (vec!["a/b/f".into(), "g".into()], true));
        index.change().note(Event::FolderMoved { way: way(&[(2, "z")]) });
        index.change().note(Event::FolderMoved { way: way(&[(77, "of no concern")]) });
        assert_eq!(texts(&index, 9, 2).0, ["g", "z/b/f"]);
        index.change().note(Event::FolderMoved { way: way(&[(3, "c")]) });
        assert_eq!(texts(&index, 9, 2).0, ["c/f", "g"]);
        let moved = |has_others, file| Event::Moved {
            file: inode(file),
            from: (inode(1), b"g".as_slice().into()),
            to: (way(&[(2, "z")]), b"h".as_slice().into()),
            has_others,
        };
        index.change().note(moved(true, 9));
        index.change().note(moved(false, 10));
        index.change().note(moved(true, 11));
        assert_eq!(texts(&index, 9, 2).0, ["c/f", "z/h"]);
        assert_eq!(
            (texts(&index, 10, 1), texts(&index, 11, 2)),
            ((vec![], true), (vec!["z/h".into()], false))
        );
        for (folder, name) in [(3, b"f"), (2, b"h")] {
            let name: Box<[u8]> = name.as_slice().into();
            index.change().note(Event::Went { file: inode(9), folder: inode(folder), name });
        }
        assert_eq!(index.len(), 1);
    }

    /// Every event may come before or after the walk saw the place: what is known in the end is the same.
    #[test]
    fn what_changes_during_a_walk_is_known_after_it() {
        let events = [
            came(9, &[(2, "a")], "new"),
            Event::Went { file: inode(9), folder: inode(1), name: b"old".as_slice().into() },
            Event::FolderMoved { way: way(&[(2, "moved")]) },
            came(9, &[], "last"),
        ];
        for seen in 0..=events.len() {
            let mut found = empty();
            found.add(&inode(9), &way(&[(2, "a")]), b"first");
            found.add(&inode(9), &way(&[]), b"old");
            events[..seen].iter().for_each(|event| found.play(event));
            let index = Index::default();
            index.begin_walk();
            events.iter().for_each(|event| index.change().note(event.clone()));
            walked(&index, found);
            assert_eq!(
                texts(&index, 9, 3),
                (vec!["last".into(), "moved/first".into(), "moved/new".into()], true),
                "after {seen}"
            );
        }
        // A folder that came from where the walk had not been yet is walked before the names are taken.
        let index = Index::default();
        index.begin_walk();
        index.change().note(Event::FolderMoved { way: way(&[(5, "unseen"), (2, "a")]) });
        let unseen = index.take(&mut Some(empty()), |folder| *folder == inode(2));
        assert_eq!(unseen.len(), 1);
        assert!(!index.is_kept());
        assert!(index.take(&mut Some(empty()), |_| true).is_empty() && index.is_kept());
    }

    #[test]
    fn a_link_that_two_mounts_show_is_one() {
        let index = Index::default();
        walked(&index, empty());
        let (here, there) = (inode(2), Identity { mount: MountIndex::other(1), ..inode(2) });
        for (folder, name) in [(here, "a"), (there, "b")] {
            let way = vec![Step { folder, home: inode(2), name: name.as_bytes().into() }, step(1, "")];
            index.change().note(Event::Came { file: inode(9), folder: way, name: b"f".as_slice().into() });
        }
        assert_eq!(texts(&index, 9, 1), (vec!["a/f".into(), "b/f".into()], true));
        assert!(!texts(&index, 9, 2).1, "two paths, but one link");
    }

    #[test]
    fn what_cannot_be_noted_is_not_taken_for_known() {
        let index = Index::default();
        let mut found = empty();
        found.found(inode(9), 3, &way(&[]), b"f").unwrap();
        walked(&index, found);
        assert!(texts(&index, 9, 3).1);
        index.change().tear();
        assert!(!texts(&index, 9, 3).1);
        index.clear();
        assert!(!index.is_kept() && texts(&index, 9, 3) == (vec![], false));
    }

    /// A walk that had begun before took the mark away, though it may have missed what could not be noted.
    #[test]
    fn what_cannot_be_noted_during_a_walk_is_not_known_after_it() {
        let index = Index::default();
        index.begin_walk();
        index.change().tear();
        let mut found = empty();
        found.found(inode(9), 2, &way(&[]), b"f").unwrap();
        walked(&index, found);
        assert!(!texts(&index, 9, 2).1);
        index.begin_walk();
        let mut found = empty();
        found.found(inode(9), 2, &way(&[]), b"f").unwrap();
        walked(&index, found);
        assert!(texts(&index, 9, 2).1);
    }

    /// A name in the top of each of two branches that share a file was taken for one: with the first that went both were gone.
    #[test]
    fn names_of_two_branches_are_two_though_their_paths_are_one() {
        let top = |branch: u16| Identity { mount: MountIndex::own(branch), ..inode(u64::from(branch) + 1) };
        let step = |branch: u16| Step { folder: top(branch), home: top(branch), name: Box::default() };
        let index = Index::default();
        let mut found = Names::below([step(0), step(1)].into_iter());
        for branch in [0, 1] {
            found.found(inode(9), 2, &vec![step(branch)], b"x").unwrap();
        }
        walked(&index, found);
        assert_eq!(texts(&index, 9, 2), (vec!["x".into(), "x".into()], true));
        assert!(!texts(&index, 9, 3).1);
        let kept = index.keep(&inode(9), 2, |branch, _| branch == 0);
        assert!(kept.paths == [b"x".to_vec()] && !kept.is_all, "one of them went");
        index.change().note(Event::Went { file: inode(9), folder: top(1), name: b"x".as_slice().into() });
        assert_eq!(texts(&index, 9, 1), (vec!["x".into()], true));
    }
}
