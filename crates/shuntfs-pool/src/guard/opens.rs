//! Descriptors that are handed out: of files, and of folders.

use std::sync::Arc;

use shuntfs::{Errno, OpenFlags, Result};
use shuntfs_rules::{OpenWord, Use};
use shuntfs_sys::{filesystem_of, stat_of};

use super::change::Change;
use super::terms::{Terms, refused, use_of};
use crate::error::errno;
use crate::mode;
use crate::node::{Marks, Node};
use crate::rules::Asking;
use crate::sealed;
use crate::shared::Shared;

/// A file that is there is opened.
#[derive(Clone, Debug)]
pub(crate) struct FileOpens {
    pub(crate) node: Arc<Node>,
    pub(crate) flags: OpenFlags,
}

/// A folder is opened, to be listed.
#[derive(Clone, Debug)]
pub(crate) struct FolderOpens {
    pub(crate) node: Arc<Node>,
}

impl FileOpens {
    pub(super) fn cuts(&self) -> bool {
        self.flags.0 & mode::O_TRUNC != 0
    }
}

impl Change for FileOpens {
    type Terms = Terms;

    fn writes(&self) -> bool {
        self.flags.may_write() || self.cuts()
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<Terms> {
        let (node, paths) = (&self.node, asking.paths_of(&self.node)?);
        let is_touched = paths.is_empty() || paths.iter().any(|path| asking.at(path).is_touched());
        if !is_touched && node.view.is_whole() {
            return Ok(Terms::none());
        }
        if node.is_file() && (!node.view.is_whole() || asking.rules().redacts()) {
            let look = asking.decide_paths(node, &paths, Use::LOOK)?;
            if asking.shared.views.of(&look.redact) != node.view {
                // The name was looked up by somebody else, or for other rules: the caller is to look again.
                return Err(Errno::STALE);
            }
        }
        let terms = Terms::of(&asking.decide_paths(node, &paths, use_of(self.flags.0))?, self.flags.0)?;
        let unchecked = !paths.is_empty() && paths.iter().all(|path| asking.at(path).unchecked());
        Ok(terms.checked_unless(unchecked))
    }

    fn without_rules(&self) -> Terms {
        Terms::none()
    }

    fn ask_seals(&self, shared: &Shared, terms: &Terms) -> Result<()> {
        sealed::check_open(shared, &self.node, self.writes(), terms)
    }

    /// For a passthrough open nobody else looks at the flags of the inode: the kernel opens the lower file without
    /// asking it, and knows nothing of such flags above. A partial view is read-only, because a write of what was read would
    /// put zeroes instead of what is hidden.
    fn ask_state(&self, shared: &Shared) -> Result<()> {
        if !self.writes() {
            return Ok(());
        }
        let node = &self.node;
        if !node.view.is_whole() {
            return Err(Errno::ACCES);
        }
        shared.check_branch(node)?;
        if shared.mount(node.mount()).is_timed() {
            // Passthrough goes through a mount of our own, and the lower one may have been remounted.
            let below = filesystem_of(shared.descriptor(node)?).map_err(errno)?;
            if below.is_read_only() {
                return Err(Errno::ROFS);
            }
        }
        if !shared.is_ours_alone() {
            let descriptor = shared.descriptor(node)?;
            node.saw(&stat_of(&descriptor).map_err(errno)?);
        }
        let appends = self.flags.0 & mode::O_APPEND != 0 && !self.cuts();
        if node.has(Marks::IMMUTABLE) || node.has(Marks::APPEND_ONLY) && !appends {
            Err(Errno::PERM)
        } else {
            Ok(())
        }
    }
}

impl Change for FolderOpens {
    type Terms = ();

    fn writes(&self) -> bool {
        false
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        if !asking.rules().restricts() {
            return Ok(());
        }
        refused(&asking.decide_node(&self.node, Use::of(OpenWord::Read))?)
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, _: &Shared, (): &()) -> Result<()> {
        Ok(())
    }

    fn ask_state(&self, _: &Shared) -> Result<()> {
        Ok(())
    }
}
