//! Content that is cut, changed, or read below.

use std::sync::Arc;

use shuntfs::{Errno, Result};
use shuntfs_rules::{OpenWord, Use};

use super::change::Change;
use super::terms::{Limits, refused, unchangeable};
use crate::file::PoolFile;
use crate::node::Node;
use crate::rules::Asking;
use crate::sealed;
use crate::shared::Shared;

/// `FALLOC_FL_KEEP_SIZE`
const FALLOC_KEEP_SIZE: u32 = 1;

/// A file gets another length, by an open file (whose limits are given) or without one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentCut<'n> {
    pub(crate) node: &'n Arc<Node>,
    pub(crate) by: Option<Limits>,
    pub(crate) len: u64,
}

/// Bytes of an open file change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentChanges<'f> {
    pub(crate) file: &'f PoolFile,
    pub(crate) how: Changing,
}

/// How bytes of an open file change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Changing {
    /// By WRITE.
    Write,
    /// By FALLOCATE in this mode.
    Allocate { mode: u32 },
    /// By COPY_FILE_RANGE to it.
    Copy,
}

/// Something is learned of an open file by asking below, and not by READ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBelow<'f> {
    pub(crate) file: &'f PoolFile,
    pub(crate) how: Reading,
}

/// How something is learned of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reading {
    /// By COPY_FILE_RANGE from it.
    Copy,
    /// By LSEEK.
    Seek,
    /// By IOCTL.
    Ask,
}

impl Change for ContentCut<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        let limits = match self.by {
            Some(limits) => limits,
            None => {
                let how = Use::of(OpenWord::Write).and(Use::of(OpenWord::Truncate));
                let decision = asking.decide_node(self.node, how)?;
                refused(&decision)?;
                if !decision.redact.is_empty() {
                    // By whatever name or descriptor: what is not seen is not cut.
                    return Err(Errno::ACCES);
                }
                Limits { read_only: decision.read_only, append_only: decision.append_only }
            }
        };
        unchangeable(limits.read_only, limits.append_only)
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, shared: &Shared, (): &()) -> Result<()> {
        sealed::check_content(shared, self.node.id)
    }

    fn ask_state(&self, shared: &Shared) -> Result<()> {
        if self.node.view.is_whole() { shared.check_branch(self.node) } else { Err(Errno::ACCES) }
    }
}

impl Change for ContentChanges<'_> {
    type Terms = Limits;

    fn writes(&self) -> bool {
        true
    }

    /// What was decided at the open holds to the close: rules are not asked when bytes are written.
    fn ask_rules(&self, _: &Asking<'_>) -> Result<Limits> {
        let limits = self.file.terms.limits;
        let may = match self.how {
            Changing::Write => true,
            Changing::Allocate { mode } => !limits.append_only || mode & !FALLOC_KEEP_SIZE == 0,
            Changing::Copy => !limits.append_only,
        };
        if may { Ok(limits) } else { Err(Errno::PERM) }
    }

    fn without_rules(&self) -> Limits {
        Limits::default()
    }

    /// No open that may write is of a sealed file.
    fn ask_seals(&self, _: &Shared, _: &Limits) -> Result<()> {
        Ok(())
    }

    fn ask_state(&self, _: &Shared) -> Result<()> {
        if self.file.node.view.is_whole() { Ok(()) } else { Err(Errno::ACCES) }
    }
}

impl Change for ReadBelow<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        false
    }

    /// What was decided at the open holds to the close.
    fn ask_rules(&self, _: &Asking<'_>) -> Result<()> {
        Ok(())
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, _: &Shared, (): &()) -> Result<()> {
        Ok(())
    }

    fn ask_state(&self, _: &Shared) -> Result<()> {
        match self.how {
            // The lower file holds more than is shown, or what nobody has checked: the kernel then copies what it reads.
            Reading::Copy if self.file.is_below() => Ok(()),
            Reading::Copy => Err(Errno::XDEV),
            // Where its holes are is not told.
            Reading::Seek if self.file.is_below() => Ok(()),
            Reading::Seek => Err(Errno::ACCES),
            // Some tell of what is hidden; none of what a file holds that is only checked.
            Reading::Ask if self.file.shown.is_none() => Ok(()),
            Reading::Ask => Err(Errno::NOTTY),
        }
    }
}
