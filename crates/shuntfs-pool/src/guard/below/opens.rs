//! Handing out descriptors.

use std::sync::Arc;

use shuntfs::Result;
use shuntfs_sys::reopen;

use crate::guard::{FileOpens, FolderOpens, Judged, Terms};
use crate::mode;
use crate::node::Node;
use crate::shared::Shared;
use crate::who::{Who, keeping_set_ids};

/// What an open may cut.
#[derive(Debug)]
pub(crate) struct Cut {
    node: Arc<Node>,
    who: Who,
    cuts: bool,
}

impl Judged<FileOpens> {
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The terms of the open, and the cut of the file that belongs to it.
    pub(crate) fn open(self) -> (Terms, Cut) {
        let cuts = self.change.cuts();
        (self.terms, Cut { node: self.change.node, who: self.who, cuts })
    }
}

impl Cut {
    /// Cuts the file, where its open is to. The descriptor goes at once: held, it would keep the file from being executed.
    pub(crate) fn cut(self, shared: &Shared) -> Result<()> {
        if !self.cuts {
            return Ok(());
        }
        let descriptor = shared.descriptor(&self.node)?;
        let keep = self.who.keeps_set_ids() && self.node.has_privileges();
        let flags = mode::O_WRONLY | mode::O_TRUNC | mode::O_NONBLOCK;
        let cut = || keeping_set_ids(keep, || reopen(&descriptor, flags));
        shared.opening(cut).map(drop)
    }
}

impl Judged<FolderOpens> {
    /// The folder to list.
    pub(crate) fn open(self) -> Arc<Node> {
        self.change.node
    }
}
