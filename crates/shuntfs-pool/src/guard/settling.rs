//! What is noted of names of a merge that went and moved.
//!
//! Policies pick which copies of a file go, and what fails on one branch may have been done on another. So it is looked what the names
//! mean on each branch before a change, and again when it is over, whatever came of it: what is true then is noted. Copies behind the one
//! that is shown are no nodes of the kernel's, but have names as well, which must be known when they come to be shown.

use std::sync::Arc;

use shuntfs::{Errno, Result};

use super::after::{came, inode_on, is_touched, late, way_to};
use super::change::Spot;
use super::held::Held;
use crate::find;
use crate::merge::Merge;
use crate::node::{Identity, Node};
use crate::rules::{Engine, Event, State, Step};
use crate::shared::Shared;

/// What a name leads to on the branch of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leads {
    /// To something else, or to nothing.
    Elsewhere,
    /// To the inode, which has so many links.
    There { links: u32 },
    /// Nobody knows.
    Unknown,
}

/// An inode that a name led to.
#[derive(Debug)]
struct Inode {
    identity: Identity,
    is_folder: bool,
    /// Which of the names were its own.
    had: Vec<bool>,
}

/// One of the names, whether it was the inode's own, and what it leads to now.
type Outcome<'s> = (Spot<'s>, bool, Leads);

/// What names of a merge meant before a change.
#[derive(Debug)]
pub(super) struct Settling<'s> {
    shared: &'s Shared,
    merge: &'s Merge,
    engine: &'s Engine,
    spots: Vec<Spot<'s>>,
    inodes: Vec<Inode>,
    /// The folders that the kernel knows by these names, each with the name that it had.
    folders: Vec<(Spot<'s>, Arc<Node>)>,
}

impl<'s> Settling<'s> {
    /// Looks what the names mean, where there are rules.
    ///
    /// # Errors
    /// Those of looking.
    pub(super) fn begin(shared: &'s Shared, merge: &'s Merge, spots: &[Spot<'s>]) -> Result<Option<Self>> {
        let Some(engine) = &shared.rules else { return Ok(None) };
        let (mut inodes, mut folders) = (Vec::<Inode>::new(), Vec::new());
        for (index, spot) in spots.iter().enumerate() {
            for found in find::copies(shared, *spot)? {
                let known = inodes.iter().position(|inode| inode.identity == found.identity);
                let at = known.unwrap_or(inodes.len());
                if at == inodes.len() {
                    let (identity, is_folder) = (found.identity, found.stat.is_dir());
                    inodes.push(Inode { identity, is_folder, had: vec![false; spots.len()] });
                }
                inodes[at].had[index] = true;
            }
            let folder = merge.folder(shared, spot.folder.id, spot.c_name());
            folders.extend(folder.map(|folder| (*spot, folder)));
        }
        Ok(Some(Self { shared, merge, engine, spots: spots.to_vec(), inodes, folders }))
    }

    /// It is over: notes what the names mean now.
    pub(super) fn done(self, held: &Held<'_>) {
        let mut all: Vec<_> = self.inodes.iter().map(|inode| (inode, self.outcomes(inode))).collect();
        let mut names = self.engine.index.change();
        self.engine.paths.changes();
        // Nobody notes anything meanwhile: what was found holds, unless others changed names before.
        if held.is_late() {
            all.iter_mut()
                .flat_map(|(_, outcomes)| outcomes)
                .for_each(|(_, _, leads)| *leads = Leads::Unknown);
            late(self.engine, &mut names);
        }
        // First where every folder is now, because the names of files are noted by the folders that they are in.
        let mut is_stale = self.settle_folders();
        for (inode, outcomes) in &all {
            self.settle_paths(inode, outcomes);
            if names.is_kept() {
                self.settle_index(&mut names, inode, outcomes);
            }
        }
        drop(names);
        for (inode, outcomes) in &all {
            let arrived = came_to(outcomes);
            is_stale |= arrived.is_some_and(|(spot, _)| is_touched(self.engine, spot, inode.is_folder));
        }
        // The kernel takes a name along with the time that it was given for the old place.
        if is_stale {
            self.engine.expire_names(self.shared);
        }
    }

    fn outcomes(&self, inode: &Inode) -> Vec<Outcome<'s>> {
        let leads = |spot: Spot<'s>| leads(self.shared, spot, &inode.identity);
        self.spots.iter().zip(&inode.had).map(|(spot, had)| (*spot, *had, leads(*spot))).collect()
    }

    /// Notes where the folders are that the kernel knows; whether one moved to where it may be seen in another way.
    fn settle_folders(&self) -> bool {
        let mut is_stale = false;
        for (before, node) in &self.folders {
            let is_here = |spot: &&Spot<'_>| {
                let known = self.merge.folder(self.shared, spot.folder.id, spot.c_name());
                known.is_some_and(|known| known.id == node.id)
            };
            match self.spots.iter().find(is_here) {
                Some(spot) => {
                    self.engine.paths.note(node.id, spot.folder.id, spot.bytes(), true);
                    is_stale |= is_touched(self.engine, *spot, true);
                }
                None => self.engine.paths.removed(node.id, before.folder.id, before.bytes()),
            }
        }
        is_stale
    }

    /// Notes the names of a file's nodes that the kernel knows. One that nobody knows of is held against it.
    fn settle_paths(&self, inode: &Inode, outcomes: &[Outcome<'_>]) {
        if inode.is_folder {
            return;
        }
        for node in self.shared.table.peek(&inode.identity) {
            for (spot, _, leads) in outcomes {
                if *leads != Leads::Elsewhere {
                    self.engine.paths.note(node.id, spot.folder.id, spot.bytes(), false);
                }
            }
            for (spot, had, leads) in outcomes {
                if *had && *leads == Leads::Elsewhere {
                    self.engine.paths.removed(node.id, spot.folder.id, spot.bytes());
                }
            }
        }
    }

    /// Notes the names of an inode on its branch; where they cannot be told, that nobody knows them.
    fn settle_index(&self, names: &mut State, inode: &Inode, outcomes: &[Outcome<'_>]) {
        let (file, branch) = (self.shared.home(&inode.identity), inode.identity.mount.branch);
        let went = outcomes.iter().find(|(_, had, leads)| *had && *leads == Leads::Elsewhere);
        let event = match (went, came_to(outcomes)) {
            (_, Some((spot, Leads::There { .. }))) if inode.is_folder => self.folder_moved(inode, spot),
            (_, Some(_)) if inode.is_folder => None,
            (_, None) if inode.is_folder => return,
            (Some((old, ..)), Some((new, leads))) => self.moved(file, branch, (*old, new), leads),
            (None, Some((_, Leads::There { links: 1 })) | None) => return,
            (None, Some((spot, _))) => return came(self.shared, self.engine, names, &file, spot, branch),
            (Some((spot, ..)), None) => inode_on(spot.folder, branch).map(|folder| Event::Went {
                file,
                folder,
                name: spot.bytes().into(),
            }),
        };
        match event {
            Some(event) => names.note(event),
            None => names.tear(),
        }
    }

    fn folder_moved(&self, inode: &Inode, to: Spot<'_>) -> Option<Event> {
        let mut way = way_to(self.shared, self.engine, to.folder.id, inode.identity.mount.branch)?;
        let (home, folder) = (self.shared.home(&inode.identity), inode.identity.clone());
        way.insert(0, Step { home, folder, name: to.bytes().into() });
        Some(Event::FolderMoved { way })
    }

    fn moved(
        &self,
        file: Identity,
        branch: u16,
        (old, new): (Spot<'_>, Spot<'_>),
        leads: Leads,
    ) -> Option<Event> {
        let from = (inode_on(old.folder, branch)?, old.bytes().into());
        let to = (way_to(self.shared, self.engine, new.folder.id, branch)?, new.bytes().into());
        Some(Event::Moved { file, from, to, has_others: leads != Leads::There { links: 1 } })
    }
}

/// The name that an inode did not have before and may have now.
fn came_to<'s>(outcomes: &[Outcome<'s>]) -> Option<(Spot<'s>, Leads)> {
    let came = outcomes.iter().find(|(_, had, leads)| !*had && *leads != Leads::Elsewhere);
    came.map(|(spot, _, leads)| (*spot, *leads))
}

/// What a name leads to on the branch of an inode.
fn leads(shared: &Shared, spot: Spot<'_>, identity: &Identity) -> Leads {
    let Some(place) = spot.folder.parts().and_then(|parts| parts.on(identity.mount.branch)) else {
        return Leads::Elsewhere;
    };
    let look = || {
        let dir = &*shared.descriptor_at(spot.folder, &place)?;
        find::find_at(shared, Spot { mount: place.mount(), dir, ..spot })
    };
    match look() {
        Ok(found) if found.identity == *identity => Leads::There { links: found.stat.nlink },
        Ok(_) | Err(Errno::NOENT) => Leads::Elsewhere,
        Err(_) => Leads::Unknown,
    }
}
