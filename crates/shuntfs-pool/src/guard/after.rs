//! What is noted of names that came, went and moved.

use std::sync::Arc;

use shuntfs::NodeId;
use shuntfs_sys::stat_of;

use super::change::Spot;
use crate::find;
use crate::mode;
use crate::node::Node;
use crate::rules::Engine;
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

/// Notes that a name leads to these nodes no more.
pub(super) fn note_removed(shared: &Shared, spot: Spot<'_>, nodes: &[Arc<Node>]) {
    let Some(engine) = &shared.rules else { return };
    nodes.iter().for_each(|node| engine.paths.removed(node.id, spot.folder.id, spot.bytes()));
    if let (Some(node), Some(path)) = (nodes.first(), path_of(engine, spot)) {
        engine.index.remove(&node.identity, &path);
    }
}

/// Notes that a file got one more name.
pub(super) fn note_second(shared: &Shared, spot: Spot<'_>, node: &Node) {
    note(shared, spot, node);
    if let Some(engine) = &shared.rules
        && let Some(path) = path_of(engine, spot)
    {
        engine.index.add(&engine.rules(), &node.identity, path);
    }
}

/// Notes what a move brought to a name.
fn note_arrived(shared: &Shared, spot: Spot<'_>, nodes: &[Arc<Node>]) {
    nodes.iter().for_each(|node| note(shared, spot, node));
    if let Some(node) = nodes.first().filter(|node| !node.is_dir())
        && shared.descriptor(node).is_ok_and(|lower| stat_of(&lower).is_ok_and(|stat| stat.nlink > 1))
    {
        note_second(shared, spot, node);
    }
}

fn path_of(engine: &Engine, spot: Spot<'_>) -> Option<Vec<u8>> {
    engine.paths.child(spot.folder.id, spot.bytes())
}

/// A move that was allowed and is about to happen.
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
    pub(super) fn begin(shared: &'s Shared, from: Spot<'s>, to: Spot<'s>, flags: u32) -> Self {
        let known = |spot: Spot<'_>| match &shared.rules {
            Some(_) => find::known(shared, spot.folder, spot.dir, spot.c_name()),
            None => Vec::new(),
        };
        let (moved, met) = (known(from), known(to));
        Self { shared, from, to, moved, met, exchanges: flags & mode::RENAME_EXCHANGE != 0 }
    }

    /// It has happened.
    pub(super) fn done(self) {
        let Some(engine) = &self.shared.rules else { return };
        let (from, to) = (self.from, self.to);
        note_removed(self.shared, to, &self.met);
        note_removed(self.shared, from, &self.moved);
        note_arrived(self.shared, to, &self.moved);
        if self.exchanges {
            note_arrived(self.shared, from, &self.met);
        }
        let is_folder = |nodes: &[Arc<Node>]| nodes.iter().any(|node| node.is_dir());
        let moved_folder = is_folder(&self.moved) || self.exchanges && is_folder(&self.met);
        if moved_folder && let (Some(from), Some(to)) = (path_of(engine, from), path_of(engine, to)) {
            engine.index.moved(&from, &to, self.exchanges);
        }
        // The kernel takes a name along with the time that it was given for the old place.
        let arrives =
            |spot: Spot<'_>, nodes: &[Arc<Node>]| nodes.iter().any(|node| is_touched(engine, spot, node));
        if arrives(to, &self.moved) || self.exchanges && arrives(from, &self.met) {
            engine.expire_names(moved_folder);
        }
    }
}

/// Whether what arrives under this name, or is in it, may be seen in another way than where it was.
fn is_touched(engine: &Engine, spot: Spot<'_>, node: &Node) -> bool {
    let rules = engine.rules();
    let Some(path) = path_of(engine, spot) else { return true };
    let possible = rules.possible(&path);
    possible.hide || possible.redact || node.is_dir() && rules.holds_below(&path)
}
