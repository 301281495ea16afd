//! OPEN.

use std::sync::Arc;

use shuntfs::{Errno, NodeId, OpenFlags, Opened, Result};
use shuntfs_rules::FlowWord;

use crate::file::{self, PoolFile};
use crate::guard::{FileOpens, Guard};
use crate::merge::Copies;
use crate::node::{Marks, Node};
use crate::redact;
use crate::removal;
use crate::reread::is_reread;
use crate::sealed;
use crate::shared::Shared;
use crate::who::Who;

/// OPEN: no lower call, where the kernel moves the bytes.
pub(crate) fn open(shared: &Shared, who: Who, id: NodeId, flags: OpenFlags) -> Result<Opened<PoolFile>> {
    let node = shared.node(id)?;
    if node.is_dir() {
        return Err(Errno::ISDIR);
    }
    shared.reaches(node.mount())?;
    open_node(shared, &Guard::new(shared, who), &node, flags)
}

/// Opens a file that is there. If that cuts it, whoever asks for it keeps it from being moved meanwhile ([`crate::node::Change`]).
pub(crate) fn open_node(
    shared: &Shared,
    guard: &Guard<'_>,
    node: &Arc<Node>,
    flags: OpenFlags,
) -> Result<Opened<PoolFile>> {
    let judged = guard.judge(FileOpens { node: Arc::clone(node), flags })?;
    if let Some(checked) = sealed::check(shared, node, judged.terms())? {
        let kept = sealed::outlive(shared, &checked)?;
        let (terms, _) = judged.open();
        let mut file = PoolFile::new(shared, guard.who(), Arc::clone(node), flags, terms);
        file.kept = kept;
        return Ok(sealed::opened(shared, file, Some(checked)));
    }
    let rereads = is_reread(shared, node, flags.0, judged.terms());
    // It counts as open before anybody checks whether a name is being removed.
    let (terms, cut) = judged.open();
    let mut file = PoolFile::new(shared, guard.who(), Arc::clone(node), flags, terms);
    file.rereads = rereads;
    file.copies = Copies::of(shared, &file.node, flags.0);
    if file.copies.is_some() {
        // Nobody else hears of an error.
        file.terms.reads = Some(FlowWord::Served);
    }
    file.leave_passthrough(shared);
    if file.node.is_losing_a_name() || file.node.has(Marks::UNLINKED) {
        file::hold(shared, &file.node)?;
        removal::settle(shared, &file.node);
    }
    cut.cut(shared)?;
    if !file.node.view.is_whole() {
        let (shown, cache) = redact::show(shared, &file.node)?;
        file.kept = shown.kept()?;
        file.shown = Some(shown);
        let delegation = redact::delegation(shared, &file);
        return Ok(Opened { file, delegation, cache, flush: shared.locks_below() });
    }
    if file.flows(shared) != (FlowWord::Passthrough, FlowWord::Passthrough) && flags.may_write() {
        // What forbids it below, the caller hears now: a file system that became read-only, a program that runs.
        file.mover(shared)?;
    }
    Ok(file::answer(shared, file))
}
