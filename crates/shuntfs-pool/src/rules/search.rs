//! The walk of the source that finds all names of files with several: in a merge of all branches, one after the other.
//!
//! Folders are opened by their handles, so that one that is moved while the walk is under way is found anyway; what was
//! moved from a place that was not walked yet to one that was is walked at the end ([`super::index`]). Where the lower file system has
//! no handles, folders are opened by name, and the walk starts anew where one was moved meanwhile.
//!
//! A branch that is set aside is left out, because its disk would keep the walk waiting. Names that it may have are not known then, and the walk is
//! made again when the branch is taken back ([`super::engine::Engine::comes_back`]).

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::dir::DirReader;
use shuntfs_sys::{open_path_at, reopen, stat_of};

use super::index::{Index, Names, Step, Way};
use crate::branch::{Branch, MountIndex};
use crate::error::errno;
use crate::find::{self, Found};
use crate::mode;
use crate::node::Identity;
use crate::shared::Shared;

/// How often a walk starts anew, and how often it goes on because folders were moved.
const TRIES: usize = 5;
const ROUNDS: usize = 1000;

/// Walks the source; what the index held before stays until the walk is done.
///
/// # Errors
/// EAGAIN where folders are moved about all the time, ENOSPC where there are too many names, and those of reading
/// the source.
pub(super) fn search(shared: &Shared, index: &Index) -> Result<()> {
    for _ in 0..TRIES {
        index.begin_walk();
        match Walk::new(shared, index).and_then(Walk::all) {
            Ok(true) => return Ok(()),
            Ok(false) | Err(Errno::AGAIN) => index.end_walk(),
            Err(error) => {
                index.end_walk();
                return Err(error);
            }
        }
    }
    Err(Errno::AGAIN)
}

/// A folder on the way, held by those inside.
struct Place {
    step: Step,
    outer: Option<Rc<Place>>,
}

struct Walk<'s> {
    shared: &'s Shared,
    index: &'s Index,
    names: Option<Names>,
    /// Branches that do not answer.
    left_out: Vec<u16>,
    /// Mounts and inode numbers.
    seen: HashSet<(MountIndex, u64)>,
    /// Folders to be walked.
    ahead: Vec<Rc<Place>>,
}

impl<'s> Walk<'s> {
    fn new(shared: &'s Shared, index: &'s Index) -> Result<Self> {
        let (mut tops, mut left_out) = (Vec::new(), Vec::new());
        for number in shared.branches.order().iter() {
            match top_of(shared, shared.branches.at(*number)) {
                Err(_) if is_left_out(shared, index, *number) => left_out.push(*number),
                top => tops.push(top?),
            }
        }
        let names = Some(Names::below(tops.iter().cloned()));
        let place = |step| Rc::new(Place { step, outer: None });
        let ahead = tops.into_iter().map(place).collect();
        Ok(Self { shared, index, names, left_out, seen: HashSet::new(), ahead })
    }

    /// Walks all, and hands it over; whether that went well.
    fn all(mut self) -> Result<bool> {
        for _ in 0..ROUNDS {
            while let Some(place) = self.ahead.pop() {
                self.folder(&place)?;
            }
            let seen = &self.seen;
            let unseen =
                self.index.take(&mut self.names, |folder| seen.contains(&(folder.mount, folder.ino)));
            if unseen.is_empty() {
                return Ok(true);
            }
            // The tops are held, and need none.
            let is_lost = |step: &Step| step.folder.handle.is_none() && !step.name.is_empty();
            if unseen.iter().flatten().any(is_lost) {
                return Ok(false);
            }
            self.ahead = unseen.into_iter().filter_map(place_of).collect();
        }
        Ok(false)
    }

    fn folder(&mut self, place: &Rc<Place>) -> Result<()> {
        let mount = place.step.folder.mount;
        if !self.seen.insert((mount, place.step.folder.ino)) || self.left_out.contains(&mount.branch) {
            return Ok(());
        }
        // Where it is seen if the disk hangs.
        let entries = match self.shared.under_way(|| self.list(place)) {
            Ok(entries) => entries,
            // It went away, or is the mount itself, which is not shown inside itself.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::LOOP) => return Ok(()),
            // The branch was removed meanwhile.
            Err(_) if !self.shared.branches.order().contains(&mount.branch) => return Ok(()),
            // It was set aside meanwhile. What was found there is not all, so the walk starts anew, without it.
            Err(_) if is_left_out(self.shared, self.index, mount.branch) => return Err(Errno::AGAIN),
            Err(error) => return Err(error),
        };
        let mut way = None;
        let may_be_left_out = self.is_on_left_out(mount);
        for (name, found) in entries {
            let (home, name) = (self.shared.home(&found.identity), name.into_bytes().into_boxed_slice());
            if found.stat.is_dir() {
                let step = Step { folder: found.identity, home, name };
                self.ahead.push(Rc::new(Place { step, outer: Some(Rc::clone(place)) }));
            } else if let Some(names) = &mut self.names {
                let way = way.get_or_insert_with(|| way_of(place));
                // What is not found is taken to be outside, but not where a branch was not asked that may have it.
                let links = if may_be_left_out { 0 } else { found.stat.nlink };
                names.found(home, links, way, &name)?;
            }
        }
        Ok(())
    }

    /// Whether a branch that is left out shows the file system of a mount, too.
    fn is_on_left_out(&self, mount: MountIndex) -> bool {
        let device = self.shared.mount(mount).device();
        let has_it = |number: &u16| self.shared.branches.at(*number).of_device(device).next().is_some();
        self.left_out.iter().any(has_it)
    }

    /// The folders in a folder, and its files with several names.
    fn list(&self, place: &Rc<Place>) -> Result<Vec<(CString, Found)>> {
        self.shared.reaches(place.step.folder.mount)?;
        let (folder, branch) = (self.open(place)?, self.shared.branch(place.step.folder.mount));
        let fd = self.shared.opening(|| reopen(&folder, mode::O_RDONLY | mode::O_DIRECTORY))?;
        let (mut reader, mut entries) = (DirReader::new(fd), Vec::new());
        loop {
            let Some(record) = reader.peek().map_err(errno)? else {
                if reader.fill().map_err(errno)? {
                    continue;
                }
                return Ok(entries);
            };
            let name = record.name.to_owned();
            reader.advance().map_err(errno)?;
            if name.as_bytes() == b"." || name.as_bytes() == b".." {
                continue;
            }
            // Opened first, because asking about a name would ask whatever is mounted there, and that may be ourselves.
            let opened = self.shared.opening(|| open_path_at(&folder, &name));
            match opened.and_then(|fd: OwnedFd| find::by_descriptor(branch, fd)) {
                Ok(found) if found.stat.is_dir() || found.stat.nlink > 1 => {
                    entries.push((name, found.without_descriptor()));
                }
                Ok(_) | Err(Errno::NOENT | Errno::STALE | Errno::LOOP) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn open(&self, place: &Rc<Place>) -> Result<Arc<LowerFile>> {
        let identity = &place.step.folder;
        if let Some(handle) = &identity.handle {
            let mount = self.shared.mount(identity.mount);
            return self.shared.opening(|| mount.open(handle)).map(LowerFile::new).map(Arc::new);
        }
        let mut folder = Arc::clone(self.shared.branch(identity.mount).root());
        // From the top on, which is open.
        for step in way_of(place).into_iter().rev().skip(1) {
            let name = CString::new(step.name).map_err(|_| Errno::INVAL)?;
            let fd = self.shared.opening(|| open_path_at(&folder, &name))?;
            folder = Arc::new(LowerFile::new(fd));
        }
        let is_it = stat_of(&folder).map_err(errno)?.ino == identity.ino;
        if is_it { Ok(folder) } else { Err(Errno::STALE) }
    }
}

/// Whether a branch is set aside, so that its names are not available; that is noted.
fn is_left_out(shared: &Shared, index: &Index, number: u16) -> bool {
    let health = &shared.branches.at(number).health;
    if !health.is_aside() {
        return false;
    }
    index.miss();
    // Whoever took it back before did not hear of it.
    health.is_aside()
}

/// The top of a branch.
fn top_of(shared: &Shared, branch: &Branch) -> Result<Step> {
    shared.reaches(branch.mounts.own().index)?;
    let root = shared.opening(|| reopen(branch.root(), mode::O_PATH))?;
    let home = shared.home(&find::by_descriptor(branch, root)?.identity);
    Ok(Step { folder: branch.identity(), home, name: Box::default() })
}

/// Whether a path on a branch still leads to this inode, wherever that is mounted.
pub(super) fn leads_to(shared: &Shared, branch: u16, path: &[u8], home: &Identity) -> Result<bool> {
    if !shared.branches.order().contains(&branch) {
        return Ok(false);
    }
    let branch = shared.branches.at(branch);
    let here = match walk_on(shared, branch, path) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::LOOP) => return Ok(false),
        here => here?,
    };
    let fd = shared.opening(|| reopen(&here, mode::O_PATH))?;
    match find::by_descriptor(branch, fd) {
        Ok(found) => Ok(shared.home(&found.identity) == *home),
        Err(Errno::LOOP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What a path leads to, on the first branch that has it.
pub(super) fn walk(shared: &Shared, path: &[u8]) -> Result<Arc<LowerFile>> {
    let mut failed = Errno::NOENT;
    for branch in shared.branches.in_use() {
        match walk_on(shared, branch, path) {
            Err(error) => failed = error,
            here => return here,
        }
    }
    Err(failed)
}

fn walk_on(shared: &Shared, branch: &Branch, path: &[u8]) -> Result<Arc<LowerFile>> {
    shared.reaches(branch.mounts.own().index)?;
    let mut here = Arc::clone(branch.root());
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        here = Arc::new(LowerFile::new(shared.opening(|| open_path_at(&here, &name))?));
    }
    Ok(here)
}

fn way_of(place: &Rc<Place>) -> Way {
    let (mut way, mut here) = (Vec::new(), Some(place));
    while let Some(place) = here {
        way.push(place.step.clone());
        here = place.outer.as_ref();
    }
    way
}

fn place_of(way: Way) -> Option<Rc<Place>> {
    way.into_iter().rev().fold(None, |outer, step| Some(Rc::new(Place { step, outer })))
}
