//! Folders that are removed below on one branch while others have them.
//!
//! Whoever walks a path looks folders up again, and hears of it. A working directory, or one that is held open, is not looked up: its node leaves such
//! a place when something fails there, and what failed is tried in the others.

use std::sync::Arc;

use shuntfs::{Errno, LowerFile, NodeId, Result};
use shuntfs_sys::dir::DirReader;
use shuntfs_sys::{OsError, reopen, stat_of};

use crate::mode;
use crate::node::{Node, Parts, Place};
use crate::shared::Shared;

impl Shared {
    /// Does something where a folder of a merge is shown. If it was removed there below, it is shown in another of its places from then on.
    pub(crate) fn where_shown<T>(
        &self,
        node: &Arc<Node>,
        parts: &Parts,
        act: impl Fn(&Place) -> Result<T>,
    ) -> Result<T> {
        loop {
            let place = parts.shown();
            match act(&place) {
                Err(Errno::STALE) if self.leaves(node, &place) => {}
                outcome => return outcome,
            }
        }
    }

    /// Has a folder of a merge leave a place where it was removed below, if it is in others: nobody may look it up again, as where somebody
    /// works in it. Whether it is there no more. The root is on every branch, whatever becomes of the branch.
    pub(crate) fn leaves(&self, node: &Arc<Node>, place: &Arc<Place>) -> bool {
        if node.id == NodeId::ROOT {
            return false;
        }
        let is_gone = self.is_gone(node, place);
        let has_left = is_gone && node.parts().is_some_and(|parts| parts.leave_place(place));
        if has_left {
            self.doubt_attributes(node.id);
        }
        has_left
    }

    /// The same of all its places. Whether it left one: then what failed may succeed in another.
    pub(crate) fn leaves_any(&self, node: &Arc<Node>) -> bool {
        let all = node.parts().map(Parts::all).unwrap_or_default();
        all.iter().filter(|place| self.leaves(node, place)).count() > 0
    }

    /// Whether a folder of a merge was removed below in one of its places.
    pub(crate) fn is_gone(&self, node: &Arc<Node>, place: &Place) -> bool {
        match self.descriptor_at(node, place) {
            Ok(held) => self.is_removed(&held),
            Err(error) => error == Errno::STALE,
        }
    }

    /// Whether a folder was removed below.
    pub(crate) fn is_removed(&self, folder: &LowerFile) -> bool {
        stat_of(folder).is_ok_and(|stat| stat.nlink == 0) && self.has_no_names(folder)
    }

    /// Whether a folder lists not even itself, as one that was removed: not every file system counts the links of folders.
    fn has_no_names(&self, folder: &LowerFile) -> bool {
        let opened = self.opening(|| reopen(folder, mode::O_RDONLY | mode::O_DIRECTORY));
        opened.is_ok_and(|fd| DirReader::new(fd).fill() == Err(OsError::NOENT))
    }
}
