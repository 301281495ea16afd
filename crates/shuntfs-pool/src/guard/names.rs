//! Names that come, go and move.
//!
//! A hidden name is not there for whoever it is hidden from, and cannot be made either: EACCES, whether there is such
//! a file or not, so that nothing is overwritten and nothing told. A caller from whom something is taken can take away,
//! add or move a name only where that loosens nothing.

use std::sync::Arc;

use shuntfs::{Errno, LowerFile, NodeId, Result};
use shuntfs_rules::{Attributes, Decision, OpenWord, Use};
use shuntfs_sys::stat_at;

use super::change::{Change, Coming, Spot};
use super::terms::{Terms, refused_name, unchangeable};
use crate::find;
use crate::mode;
use crate::node::Node;
use crate::rules::{Asking, OfNew, OfNode};
use crate::sealed;
use crate::shared::Shared;

/// The uses under which a file's names are compared.
const USES: [Use; 3] = [Use::of(OpenWord::Read), Use::of(OpenWord::Write), Use::of(OpenWord::Exec)];

/// Something new gets a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameComes<'n> {
    pub(crate) spot: Spot<'n>,
    pub(crate) what: Coming<'n>,
}

/// A file is made in a folder, and has no name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamelessComes<'n> {
    pub(crate) folder: NodeId,
    pub(crate) dir: &'n LowerFile,
    pub(crate) what: Coming<'n>,
}

/// What is there gets one more name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecondName<'n> {
    pub(crate) node: &'n Arc<Node>,
    pub(crate) spot: Spot<'n>,
}

/// A name goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameGoes<'n> {
    pub(crate) spot: Spot<'n>,
    pub(crate) is_folder: bool,
}

/// A name goes and another comes, in the place of what has it; or two are exchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameMoves<'n> {
    pub(crate) from: Spot<'n>,
    pub(crate) to: Spot<'n>,
    pub(crate) flags: u32,
}

impl Change for NameComes<'_> {
    type Terms = Terms;

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<Terms> {
        may_come(asking, &asking.path_of(self.spot)?, self.what)
    }

    fn without_rules(&self) -> Terms {
        Terms::none()
    }

    fn ask_seals(&self, shared: &Shared, _: &Terms) -> Result<()> {
        sealed::check_name(shared, self.spot.folder.id, self.spot.name)
    }

    fn ask_state(&self, _: &Shared) -> Result<()> {
        Ok(())
    }
}

impl Change for NamelessComes<'_> {
    type Terms = Terms;

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<Terms> {
        may_come(asking, &asking.path_in(self.folder, b"")?, self.what)
    }

    fn without_rules(&self) -> Terms {
        Terms::none()
    }

    fn ask_seals(&self, _: &Shared, _: &Terms) -> Result<()> {
        Ok(())
    }

    fn ask_state(&self, _: &Shared) -> Result<()> {
        Ok(())
    }
}

impl Change for SecondName<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        if !asking.rules().restricts() {
            return Ok(());
        }
        let before = asking.paths_of(self.node)?;
        let decision = asking.decide_paths(self.node, &before, Use::of(OpenWord::Write))?;
        unchangeable(decision.read_only, decision.append_only)?;
        let new = asking.path_of(self.spot)?;
        let named = asking.decide(&asking.of_node(self.node, &new), Use::of(OpenWord::Create))?;
        refused_name(&named)?;
        unchangeable(named.read_only, false)?;
        check_loosens(asking, self.node, &before, &[new])
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, shared: &Shared, (): &()) -> Result<()> {
        sealed::check_name(shared, self.spot.folder.id, self.spot.name)
    }

    fn ask_state(&self, _: &Shared) -> Result<()> {
        // Under another name other rules may hold.
        if self.node.view.is_whole() { Ok(()) } else { Err(Errno::ACCES) }
    }
}

impl Change for NameGoes<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        if !asking.rules().restricts() {
            return Ok(());
        }
        check_leaves(asking, self.spot)?;
        let Some(node) = one_of(asking.shared, self.spot) else { return Ok(()) };
        let before = asking.paths_of(&node)?;
        let path = asking.path_of(self.spot)?;
        let after: Vec<Vec<u8>> = before.iter().filter(|other| **other != path).cloned().collect();
        // With its last name a file goes.
        if after.is_empty() || node.is_dir() { Ok(()) } else { check_loosens(asking, &node, &before, &after) }
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, shared: &Shared, (): &()) -> Result<()> {
        sealed::check_name(shared, self.spot.folder.id, self.spot.name)
    }

    fn ask_state(&self, _: &Shared) -> Result<()> {
        Ok(())
    }
}

impl Change for NameMoves<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        if !asking.rules().restricts() {
            return Ok(());
        }
        let Self { from, to, flags } = *self;
        check_leaves(asking, from)?;
        if stat_at(to.dir, to.c_name()).is_ok() {
            asking.refuse_hidden(to)?;
            check_leaves(asking, to)?;
        }
        check_moves(asking, from, to)?;
        if flags & mode::RENAME_EXCHANGE != 0 {
            check_moves(asking, to, from)?;
        }
        Ok(())
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, shared: &Shared, (): &()) -> Result<()> {
        sealed::check_name(shared, self.from.folder.id, self.from.name)?;
        sealed::check_name(shared, self.to.folder.id, self.to.name)
    }

    fn ask_state(&self, _: &Shared) -> Result<()> {
        Ok(())
    }
}

/// Whether something may come to be under this path, and on what terms it is open then.
fn may_come(asking: &Asking<'_>, path: &[u8], what: Coming<'_>) -> Result<Terms> {
    let attributes =
        Attributes { size: 0, owner: asking.who.uid(), group: asking.who.gid(), mode: what.permissions() };
    let how = Use::of(OpenWord::Create).and(what.how());
    let decision: Decision = asking.decide(&OfNew { path, attributes }, how)?;
    if what.is_file() && !decision.redact.is_empty() {
        // A partial view is never written, so a file that has one for its maker would stay empty.
        return Err(Errno::ACCES);
    }
    refused_name(&decision)?;
    unchangeable(decision.read_only, false)?;
    match what {
        Coming::File { flags, .. } => Terms::of_new(&decision, flags.0),
        Coming::Folder { .. } | Coming::Symlink { .. } | Coming::Node { .. } => Ok(Terms::none()),
    }
}

/// A node that a name means, in one view or another: paths and lower inode are the same.
fn one_of(shared: &Shared, spot: Spot<'_>) -> Option<Arc<Node>> {
    find::known(shared, spot.folder, spot.dir, spot.c_name()).into_iter().next()
}

/// Whether what a name means may leave it: it must be visible, and neither read-only nor append-only.
fn check_leaves(asking: &Asking<'_>, spot: Spot<'_>) -> Result<()> {
    let path = asking.path_of(spot)?;
    let file = asking.of_name(spot, &path);
    if asking.is_hidden(&file)? {
        return Err(Errno::NOENT);
    }
    let possible = asking.at(&path).possible();
    if !possible.read_only && !possible.append_only {
        return Ok(());
    }
    let decision = asking.decide(&file, Use::of(OpenWord::Write))?;
    unchangeable(decision.read_only, decision.append_only)
}

/// Refuses a change of names that gives the caller more of a file than it had. Who may do everything with it could
/// copy it, too, and is not held up.
fn check_loosens(asking: &Asking<'_>, node: &Arc<Node>, before: &[Vec<u8>], after: &[Vec<u8>]) -> Result<()> {
    for how in USES {
        let before = asking.decide_paths(node, before, how)?;
        if before.is_open() {
            continue;
        }
        let after = asking.decide_paths(node, after, how)?;
        let both = before.strictest(after.clone());
        if !after.restricts_like(&both) {
            return Err(Errno::ACCES);
        }
    }
    Ok(())
}

fn check_moves(asking: &Asking<'_>, from: Spot<'_>, to: Spot<'_>) -> Result<()> {
    let Some(node) = one_of(asking.shared, from) else { return Ok(()) };
    let (old, new) = (asking.path_of(from)?, asking.path_of(to)?);
    if asking.is_hidden(&asking.of_node(&node, &new))? {
        return Err(Errno::ACCES);
    }
    let moved = asking.decide(&asking.of_node(&node, &new), Use::of(OpenWord::Create))?;
    unchangeable(moved.read_only, false)?;
    let before = asking.paths_of(&node)?;
    let mut after: Vec<Vec<u8>> = before.iter().filter(|path| **path != old).cloned().collect();
    after.push(new);
    check_loosens(asking, &node, &before, &after)?;
    if !node.is_dir() {
        return Ok(());
    }
    for path in [&old, after.last().unwrap_or(&old)] {
        if asking.concerns_below(&OfNode { shared: asking.shared, node: &node, path })? {
            return Err(Errno::ACCES);
        }
    }
    Ok(())
}
