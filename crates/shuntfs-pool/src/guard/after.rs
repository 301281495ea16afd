//! What is noted of names that came, went and moved.

use std::sync::Arc;

use shuntfs::{NodeId, Result};
use shuntfs_sys::stat_of;

use super::arrive::Arrived;
use super::change::Spot;
use super::held::Held;
use crate::error::errno;
use crate::find::{self, Found};
use crate::mode;
use crate::node::{Identity, Node};
use crate::rules::{DEPTH_MAX, Engine, Event, Link, Moment, State, Step, Way};
use crate::shared::Shared;

/// Notes that a name leads to a node.
pub(super) fn note(shared: &Shared, spot: Spot<'_>, node: &Node) {
    if let Some(engine) = &shared.rules {
        engine.paths.note(node.id, spot.folder.id, spot.bytes(), node.is_dir());
    }
}

/// Notes that a file was made in a folder and has no name.
pub(super) fn note_nameless(shared: &Shared, folder: NodeId, node: &Node) {
    if let Some(engine) = &shared.rules {
        engine.paths.note(node.id, folder, b"", false);
    }
}

/// Notes a name of a file with several links that was found: it may have been made below. Not where names have changed since
/// it was looked for.
pub(super) fn met(shared: &Shared, spot: Spot<'_>, found: &Found) {
    let Some(engine) = shared.rules.as_ref().filter(|engine| engine.index.is_kept()) else { return };
    if found.stat.nlink <= 1 || found.stat.is_dir() {
        return;
    }
    let (file, branch) = (shared.home(&found.identity), found.identity.mount.branch);
    let mut names = engine.index.change();
    let is_noted =
        || inode_on(spot.folder, branch).is_some_and(|folder| names.has(&file, &folder, spot.bytes()));
    if engine.paths.moment() == found.moment && !is_noted() {
        came(shared, engine, &mut names, &file, spot, branch);
    }
}

/// Notes that a name leads to what was found; whether it was noted, which it is not where names have changed since it was
/// looked for.
pub(super) fn note_met(shared: &Shared, spot: Spot<'_>, arrived: &Arrived, moment: Moment) -> bool {
    let node = &arrived.node;
    shared.rules.as_ref().is_none_or(|engine| {
        engine.paths.note_met(moment, node.id, spot.folder.id, spot.bytes(), node.is_dir())
    })
}

/// Notes that a name leads to these nodes no more, where there is one branch.
pub(super) fn note_removed(shared: &Shared, spot: Spot<'_>, nodes: &[Arc<Node>]) {
    let Some(engine) = &shared.rules else { return };
    let mut names = engine.index.change();
    engine.paths.changes();
    went(shared, engine, &mut names, spot, nodes);
}

/// Notes that a server that is dead had removed a name.
pub(crate) fn was_removed_before(shared: &Shared, spot: Spot<'_>) {
    let Some(engine) = &shared.rules else { return };
    engine.paths.changes();
    for node in engine.paths.holders(spot.folder.id, spot.bytes()) {
        engine.paths.removed(node, spot.folder.id, spot.bytes());
    }
}

/// Notes what two names lead to that a server that is dead had moved or exchanged: it may not have come to note it. The source was searched
/// for all names of its files since then.
///
/// # Errors
/// Those of looking what the names lead to.
pub(crate) fn was_moved_before(shared: &Shared, from: Spot<'_>, to: Spot<'_>) -> Result<()> {
    note_now(shared, &[from, to])?;
    if let Some(engine) = &shared.rules {
        engine.expire_names(shared);
    }
    Ok(())
}

/// Notes what names lead to now, of a change that a server that is dead had begun: what led to them before may have changed by it.
///
/// # Errors
/// Those of looking what the names lead to.
pub(crate) fn note_now(shared: &Shared, spots: &[Spot<'_>]) -> Result<()> {
    let Some(engine) = &shared.rules else { return Ok(()) };
    let now = spots.iter().map(|spot| Ok((*spot, find::known(shared, *spot)?)));
    let now = now.collect::<Result<Vec<_>>>()?;
    engine.paths.changes();
    for (spot, nodes) in now {
        let mut holders = engine.paths.holders(spot.folder.id, spot.bytes());
        holders.retain(|holder| nodes.iter().all(|node| node.id != *holder));
        holders.into_iter().for_each(|node| engine.paths.removed(node, spot.folder.id, spot.bytes()));
        nodes.iter().for_each(|node| note(shared, spot, node));
    }
    Ok(())
}

fn went(shared: &Shared, engine: &Engine, names: &mut State, spot: Spot<'_>, nodes: &[Arc<Node>]) {
    nodes.iter().for_each(|node| engine.paths.removed(node.id, spot.folder.id, spot.bytes()));
    if let Some(node) = nodes.first().filter(|node| names.is_kept() && !node.is_dir()) {
        let (file, folder) = (shared.home(node.key()), spot.folder.key().clone());
        names.note(Event::Went { file, folder, name: spot.bytes().into() });
    }
}

/// Notes that a file got one more name. It may be its second, so the first is noted, too.
pub(super) fn note_second(shared: &Shared, spot: Spot<'_>, node: &Node, held: &Held<'_>) {
    let Some(engine) = &shared.rules else { return };
    let mut names = engine.index.change();
    // Before the new name is noted, because a file without a name keeps its last one until then.
    let before = links_of(shared, engine, node);
    note(shared, spot, node);
    if !names.is_kept() {
        return;
    }
    let file = shared.home(node.key());
    came(shared, engine, &mut names, &file, spot, node.mount().branch);
    for (branch, Link { parent, name }) in before {
        match way_to(shared, engine, parent, branch) {
            Some(folder) => names.note(Event::Came { file: file.clone(), folder, name }),
            None => names.tear(),
        }
    }
    if held.is_late() {
        late(engine, &mut names);
    }
}

/// Other changes of names have gone on while this one hung on a disk: what was found of names may be of before, so they are searched for again.
pub(super) fn late(engine: &Engine, names: &mut State) {
    names.tear();
    engine.search_soon();
}

/// The names by which the kernel knows an inode now, each on its branch, in whatever view and through whatever mount.
fn links_of(shared: &Shared, engine: &Engine, node: &Node) -> Vec<(u16, Link)> {
    let everywhere = shared.everywhere(node.key());
    let nodes = everywhere.flat_map(|identity| shared.table.peek(&identity));
    let links = nodes.flat_map(|node| {
        let branch = node.mount().branch;
        engine.paths.links_now(node.id).into_iter().map(move |link| (branch, link))
    });
    links.collect()
}

pub(super) fn came(
    shared: &Shared,
    engine: &Engine,
    names: &mut State,
    file: &Identity,
    spot: Spot<'_>,
    branch: u16,
) {
    match way_to(shared, engine, spot.folder.id, branch) {
        Some(folder) => names.note(Event::Came { file: file.clone(), folder, name: spot.bytes().into() }),
        None => names.tear(),
    }
}

/// The lower inode of a folder on a branch; `None` where it is not known to be there.
pub(super) fn inode_on(folder: &Node, branch: u16) -> Option<Identity> {
    match folder.parts() {
        None => Some(folder.key().clone()),
        Some(parts) => parts.on(branch).map(|place| place.inode().clone()),
    }
}

/// Where a folder is on a branch; `None` where that is not known of a folder on the way.
pub(super) fn way_to(shared: &Shared, engine: &Engine, folder: NodeId, branch: u16) -> Option<Way> {
    let (mut way, mut here) = (Vec::new(), folder);
    while here != NodeId::ROOT {
        let Link { parent, name } = engine.paths.links(here).into_iter().next()?;
        let node = shared.node(here).ok()?;
        let folder = inode_on(&node, branch)?;
        way.push(Step { home: shared.home(&folder), folder, name });
        here = parent;
        if way.len() > DEPTH_MAX {
            return None;
        }
    }
    let top = inode_on(&shared.root, branch)?;
    way.push(Step { home: shared.home(&top), folder: top, name: Box::default() });
    Some(way)
}

fn path_of(engine: &Engine, spot: Spot<'_>) -> Option<Vec<u8>> {
    engine.paths.child(spot.folder.id, spot.bytes())
}

/// A move that was allowed and is about to happen, where there is one branch.
pub(super) struct Moving<'s> {
    shared: &'s Shared,
    from: Spot<'s>,
    to: Spot<'s>,
    /// The nodes that lose the first name for the second, and those of the second name.
    moved: Vec<Arc<Node>>,
    met: Vec<Arc<Node>>,
    exchanges: bool,
}

impl<'s> Moving<'s> {
    /// Notes which nodes move.
    ///
    /// # Errors
    /// Those of looking what the names mean.
    pub(super) fn begin(shared: &'s Shared, from: Spot<'s>, to: Spot<'s>, flags: u32) -> Result<Self> {
        let known = |spot: Spot<'_>| match &shared.rules {
            Some(_) => find::known(shared, spot),
            None => Ok(Vec::new()),
        };
        let (moved, met) = (known(from)?, known(to)?);
        Ok(Self { shared, from, to, moved, met, exchanges: flags & mode::RENAME_EXCHANGE != 0 })
    }

    /// It has happened.
    pub(super) fn done(self) {
        let Some(engine) = &self.shared.rules else { return };
        if self.moved.first().zip(self.met.first()).is_some_and(|(one, other)| one.key() == other.key()) {
            // Two names of one file: both stay, whatever the call says.
            return;
        }
        let has_others =
            [has_others(self.shared, &self.moved), self.exchanges && has_others(self.shared, &self.met)];
        let mut names = engine.index.change();
        engine.paths.changes();
        // First where everything is now, because the names of files are noted by the folders that they are in.
        let gone: &[_] = if self.exchanges { &[] } else { &self.met };
        went(self.shared, engine, &mut names, self.to, gone);
        for (nodes, old, new) in self.moves() {
            nodes.iter().for_each(|node| engine.paths.removed(node.id, old.folder.id, old.bytes()));
            nodes.iter().for_each(|node| note(self.shared, new, node));
        }
        if names.is_kept() {
            for ((nodes, old, new), has_others) in self.moves().zip(has_others) {
                if let Some(node) = nodes.first() {
                    moved(self.shared, engine, &mut names, node, (old, new), has_others);
                }
            }
        }
        drop(names);
        // The kernel takes a name along with the time that it was given for the old place.
        let is_touched = |(nodes, _, new): (&[Arc<Node>], Spot<'_>, Spot<'_>)| {
            nodes.iter().any(|node| is_touched(engine, new, node.is_dir()))
        };
        if self.moves().any(is_touched) {
            engine.expire_names(self.shared);
        }
    }

    /// What went from one name to another.
    fn moves(&self) -> impl Iterator<Item = (&[Arc<Node>], Spot<'s>, Spot<'s>)> {
        let back = self.exchanges.then_some((self.met.as_slice(), self.to, self.from));
        std::iter::once((self.moved.as_slice(), self.from, self.to)).chain(back)
    }
}

fn moved(
    shared: &Shared,
    engine: &Engine,
    names: &mut State,
    node: &Node,
    (old, new): (Spot<'_>, Spot<'_>),
    has_others: bool,
) {
    let branch = node.mount().branch;
    let Some(mut way) = way_to(shared, engine, new.folder.id, branch) else { return names.tear() };
    let name: Box<[u8]> = new.bytes().into();
    names.note(if node.is_dir() {
        let folder = node.key().clone();
        way.insert(0, Step { home: shared.home(&folder), folder, name });
        Event::FolderMoved { way }
    } else {
        let from = (old.folder.key().clone(), old.bytes().into());
        Event::Moved { file: shared.home(node.key()), from, to: (way, name), has_others }
    });
}

/// Whether these nodes are a file with several links. Where that cannot be told it has.
fn has_others(shared: &Shared, nodes: &[Arc<Node>]) -> bool {
    nodes.first().is_some_and(|node| {
        let links = || stat_of(shared.descriptor(node)?).map_err(errno).map(|stat| stat.nlink);
        !node.is_dir() && links().map_or(true, |links| links > 1)
    })
}

/// Whether what arrives under this name, or is in it, may be seen in another way than where it was.
pub(super) fn is_touched(engine: &Engine, spot: Spot<'_>, is_folder: bool) -> bool {
    let rules = engine.rules();
    let Some(path) = path_of(engine, spot) else { return true };
    let possible = rules.possible(&path);
    possible.hide || possible.redact || is_folder && rules.holds_below(&path)
}
