//! Whether a file that must be moved is what it seems: one file, of one node, that no other one will hide.
//!
//! A lower file has a node for each view of it, and for each mount of its file system through which it was met. Moved is one node. The others would stay
//! with what has no name any more, and what is done by them would be lost.

use std::sync::Arc;

use super::relocate::Unmoved;
use crate::node::{Marks, Move, Node};
use crate::shared::Shared;

/// Keeps a file from being changed by its partial views, as long as what is returned is there.
///
/// # Errors
/// Where the file may have paths through another mount, or a partial view of it is open.
pub(super) fn hold_views(shared: &Shared, node: &Arc<Node>) -> Result<Vec<Move>, Unmoved> {
    if shared.has_twins() && shared.everywhere(node.key()).nth(1).is_some() {
        return Err(Unmoved::Twins);
    }
    let views = other_views(shared, node)?;
    // Nobody moves a file by a partial view, so whoever has one of these waits for no other one but for a move that was given up, and is about to end.
    let hold = |view| Move::begin(view).or_else(|| Move::begin(view)).ok_or(Unmoved::Busy);
    views.iter().map(hold).collect()
}

/// Checks whether there are no more of them than those that are held.
///
/// # Errors
/// Where there are.
pub(super) fn check_views(shared: &Shared, node: &Arc<Node>, held: &[Move]) -> Result<(), Unmoved> {
    let is_held = |view: &Arc<Node>| held.iter().any(|held| Arc::ptr_eq(held.node(), view));
    if other_views(shared, node)?.iter().all(is_held) { Ok(()) } else { Err(Unmoved::Viewed) }
}

fn other_views(shared: &Shared, node: &Arc<Node>) -> Result<Vec<Arc<Node>>, Unmoved> {
    let mut others = shared.table.peek(node.key());
    others.retain(|other| !Arc::ptr_eq(other, node));
    if others.iter().any(|other| other.opens() > 0) { Err(Unmoved::Viewed) } else { Ok(others) }
}

/// Whether a file of a folder may come to a branch although not all branches can be asked whether they have another one of its name: only before those, or
/// that one would be shown when they are there again.
pub(super) fn would_be_shown(shared: &Shared, folder: &Node, branch: u16) -> bool {
    let is_aside = |number: u16| shared.branches.at(number).health.is_aside();
    let order = shared.branches.order();
    let first = order.iter().copied().find(|number| *number == branch || is_aside(*number));
    !folder.has(Marks::DOUBTFUL) && first == Some(branch) && !is_aside(branch)
}
