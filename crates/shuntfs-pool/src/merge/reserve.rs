//! Which files may be written in passthrough: nobody hears of those writes, so nobody can move such a file when its branch becomes full.
//!
//! A branch reserves so many bytes for each file that is open for writing in passthrough there. As long as none of them takes more, and nobody else takes
//! anything, each finds room to its close. An open for which there is nothing left to reserve flows by the server.

use shuntfs::Result;

use super::state::Merge;
use crate::branch::{Branch, OpenThere};
use crate::node::{Marks, Node};
use crate::shared::Shared;

/// Counts an open for writing in passthrough, unless its file had better be where it can be moved: then `None`.
pub(crate) fn reserve(shared: &Shared, node: &Node) -> Option<OpenThere> {
    let branch = shared.branch(node.mount());
    // Counted first, so that of two at once one sees the other.
    let passes = branch.write_past();
    if is_near_full(shared, node, branch.writers_past()) { None } else { Some(passes) }
}

/// Whether one more open for writing had better not be in passthrough.
pub(crate) fn leaves_passthrough(shared: &Shared, node: &Node) -> bool {
    is_near_full(shared, node, shared.branch(node.mount()).writers_past() + 1)
}

fn is_near_full(shared: &Shared, node: &Node, writers: usize) -> bool {
    let Some(merge) = &shared.merge else { return false };
    // What is not moved anyway loses nothing by passthrough.
    if merge.settings.moves().is_none() || node.has(Marks::LINKED.and(Marks::MAPPED_BELOW)) {
        return false;
    }
    // A branch that does not tell its space is not known to be full.
    has_room(merge, shared.branch(node.mount()), writers) == Ok(false)
}

fn has_room(merge: &Merge, branch: &Branch, writers: usize) -> Result<bool> {
    let each = merge.options.passthrough_reserve.unwrap_or_else(|| merge.min_free(branch));
    if each == 0 {
        // The branch need not be asked.
        return Ok(true);
    }
    let all = u64::try_from(writers).unwrap_or(u64::MAX).saturating_mul(each);
    branch.space().map(|space| space.available >= all)
}
