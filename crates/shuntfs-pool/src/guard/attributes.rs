//! Attributes that change: mode, owner and times, extended attributes, inode flags.

use std::ffi::CStr;
use std::sync::Arc;

use shuntfs::{Result, SetAttr};
use shuntfs_rules::{OpenWord, Use};

use super::change::Change;
use super::terms::unchangeable;
use crate::node::Node;
use crate::rules::Asking;
use crate::sealed;
use crate::shared::Shared;

/// Mode, owner or times change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributesChange<'n> {
    pub(crate) node: &'n Arc<Node>,
    pub(crate) set: SetAttr,
}

/// Suid, sgid and capabilities go, because somebody is about to write who may not leave them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrivilegesGo<'n> {
    pub(crate) node: &'n Arc<Node>,
}

/// An extended attribute is set or removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XattrChanges<'n> {
    pub(crate) node: &'n Arc<Node>,
    pub(crate) name: &'n CStr,
}

/// An ioctl sets flags of the inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlagsChange<'n> {
    pub(crate) node: &'n Arc<Node>,
}

impl Change for AttributesChange<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        may_change(asking, self.node)
    }

    fn without_rules(&self) {}

    /// Attributes are not covered by a seal, as with fs-verity.
    fn ask_seals(&self, _: &Shared, (): &()) -> Result<()> {
        Ok(())
    }

    fn ask_state(&self, shared: &Shared) -> Result<()> {
        shared.check_branch(self.node)
    }
}

impl Change for PrivilegesGo<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    /// That somebody is about to write is asked about by itself.
    fn ask_rules(&self, _: &Asking<'_>) -> Result<()> {
        Ok(())
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, _: &Shared, (): &()) -> Result<()> {
        Ok(())
    }

    fn ask_state(&self, shared: &Shared) -> Result<()> {
        shared.check_branch(self.node)
    }
}

impl Change for XattrChanges<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        may_change(asking, self.node)
    }

    fn without_rules(&self) {}

    /// What shows the digest is nobody's to set.
    fn ask_seals(&self, shared: &Shared, (): &()) -> Result<()> {
        sealed::check_xattr(shared, self.name)
    }

    fn ask_state(&self, shared: &Shared) -> Result<()> {
        shared.check_branch(self.node)
    }
}

impl Change for FlagsChange<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        may_change(asking, self.node)
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, _: &Shared, (): &()) -> Result<()> {
        Ok(())
    }

    fn ask_state(&self, shared: &Shared) -> Result<()> {
        shared.check_branch(self.node)
    }
}

/// Whether what belongs to a file may change: not where it is read-only or append-only.
fn may_change(asking: &Asking<'_>, node: &Arc<Node>) -> Result<()> {
    let possible = asking.possible(node)?;
    if !possible.read_only && !possible.append_only {
        return Ok(());
    }
    let decision = asking.decide_node(node, Use::of(OpenWord::Write))?;
    unchangeable(decision.read_only, decision.append_only)
}
