//! Files of the pool that are sealed: checked as they are read, and never written.
//!
//! Which node is sealed follows from names, as the manifest has them ([`crate::seals`]). Names of the manifest cannot be given to
//! anything else through the mount: they are not removed, moved, replaced or made. Where somebody has done so below, they
//! are refused.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use shuntfs::{
    Access, ByteRange, CacheHint, Cx, Delegation, Errno, Filled, LowerFile, NodeId, Opened, ReadReply, Result,
};
use shuntfs_seal::{ManifestError, NodeIndex};
use shuntfs_sys::Stat;
use shuntfs_verified::{CheckedFile, Seals, Stream};

use crate::file::PoolFile;
use crate::guard::Terms;
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::Node;
use crate::seals::{Claim, SealedNodes};
use crate::shared::Shared;

/// The attribute that shows a file's digest.
pub(crate) const DIGEST: &std::ffi::CStr = c"user.shuntfs.verity";

/// How the attributes begin that the server alone shows.
const OWN_XATTRS: &[u8] = b"user.shuntfs.";

/// Where trees and manifest are, unless they are in another place altogether.
const STORE: &[u8] = b".shunt";

/// The checks of one open file.
#[derive(Debug)]
pub(crate) struct Checked {
    /// `None` where a server before had it open and this one cannot check it: nobody reads it then.
    file: Option<CheckedFile>,
    stream: Stream,
}

impl Checked {
    fn file(&self) -> Result<&CheckedFile> {
        self.file.as_ref().ok_or(Errno::IO)
    }
}

/// What the manifest has at a name. A manifest that does not tell is an error: nobody knows then what is sealed.
pub(crate) fn look(shared: &Shared, parent: NodeId, name: &[u8]) -> Result<Claim> {
    shared.sealed.as_ref().map_or(Ok(Claim::default()), |sealed| sealed.look(parent, name))
}

/// What the manifest has at a name that it was asked about when the name was made: nothing.
pub(crate) fn nothing(shared: &Shared) -> Claim {
    shared.sealed.as_ref().map_or(Claim::default(), SealedNodes::nothing)
}

/// Notes what of the manifest a node is, by the name that it was found by; else, where it has others, by its inode. `false`
/// where the kernel knows it as one that is not sealed: it is retired, and the next look finds another.
///
/// # Errors
/// EIO where a sealed name leads to something else than was sealed: something of another kind, or what was sealed elsewhere.
/// ESTALE where another seal was taken since the name was looked at.
pub(crate) fn note(shared: &Shared, node: &Arc<Node>, stat: &Stat, claim: Claim) -> Result<bool> {
    let Some(sealed) = &shared.sealed else { return Ok(true) };
    let is_noted = sealed.note(node, stat, claim)?;
    if !is_noted {
        shared.table.retire(node);
    }
    Ok(is_noted)
}

/// Notes that the kernel is told of a node that was not found by a name.
pub(crate) fn told_of(shared: &Shared, node: &Node) {
    if let Some(sealed) = &shared.sealed {
        sealed.told(node);
    }
}

/// What is said of a name that does not exist: EIO where the manifest has it.
pub(crate) fn missing(shared: &Shared, claim: Claim) -> Errno {
    let errno = shared.sealed.as_ref().and_then(|sealed| sealed.missing(claim));
    errno.unwrap_or(Errno::NOENT)
}

/// Refuses a symlink that leads elsewhere than it was sealed to lead.
pub(crate) fn check_target(shared: &Shared, node: NodeId, target: &[u8]) -> Result<()> {
    let Some(sealed) = &shared.sealed else { return Ok(()) };
    sealed.check_settled(node)?;
    match sealed.of(node) {
        (seals, Some(index)) => seals.check_target(index, target),
        (_, None) => Ok(()),
    }
}

/// How long a sealed file is, whatever it is below: where it is shorter, reads of what is missing fail, rather than end.
pub(crate) fn size(shared: &Shared, node: &Node) -> Option<u64> {
    let size = shared.sealed.as_ref()?.size_of(node.id)?;
    (!is_unchecked(shared, node)).then_some(size)
}

/// Whether a node is read without a check, whoever reads it.
fn is_unchecked(shared: &Shared, node: &Node) -> bool {
    let Some(engine) = &shared.rules else { return false };
    shared.node(node.id).is_ok_and(|node| engine.is_unchecked(shared, &node))
}

/// Whether a name is that of the folder that holds trees and manifest: who could write there through the mount could take the
/// seal away, so it is not shown.
pub(crate) fn is_store(shared: &Shared, parent: NodeId, name: &[u8]) -> bool {
    parent == NodeId::ROOT && name == STORE && shared.sealed.is_some()
}

/// Refuses a change of a name that is sealed, and of the store's.
pub(crate) fn check_name(shared: &Shared, parent: NodeId, name: &NameBuf) -> Result<()> {
    if is_store(shared, parent, name.as_c_str().to_bytes()) {
        return Err(Errno::PERM);
    }
    let claim = look(shared, parent, name.as_c_str().to_bytes())?;
    if claim.is_sealed() { Err(Errno::PERM) } else { Ok(()) }
}

/// Refuses a change of what a sealed file holds. Its attributes are not covered, as with fs-verity.
pub(crate) fn check_content(shared: &Shared, node: NodeId) -> Result<()> {
    if let Some(sealed) = &shared.sealed {
        // Whoever has open for writing what was not sealed may go on with what it was when it was opened.
        let may_go_on = shared.node(node)?.opens() > 0 && !sealed.was_sealed(node);
        if !may_go_on {
            sealed.check_settled(node)?;
        }
    }
    if seal_of_file(shared, node).is_some() { Err(Errno::PERM) } else { Ok(()) }
}

/// Whether an attribute is for the server alone to show: one below could look like that of a sealed file.
pub(crate) fn is_own_xattr(shared: &Shared, name: &[u8]) -> bool {
    shared.sealed.is_some() && name.starts_with(OWN_XATTRS)
}

/// Refuses to set or remove what the server alone shows, of any node.
pub(crate) fn check_xattr(shared: &Shared, name: &std::ffi::CStr) -> Result<()> {
    if is_own_xattr(shared, name.to_bytes()) { Err(Errno::PERM) } else { Ok(()) }
}

/// The digest of a sealed file.
pub(crate) fn digest(shared: &Shared, node: NodeId) -> Option<shuntfs_verity::Digest> {
    let (seals, index) = seal_of_file(shared, node)?;
    seals.manifest().node(index).ok()?.digest()
}

/// Refuses to open what is sealed for writing, or in part, and what is not sealed where a rule wants it to be.
pub(crate) fn check_open(shared: &Shared, node: &Node, writes: bool, terms: &Terms) -> Result<()> {
    if let Some(sealed) = &shared.sealed {
        sealed.check_settled(node.id)?;
    }
    if seal_of_file(shared, node.id).is_none() {
        return if terms.needs_seal && node.is_file() { Err(Errno::ACCES) } else { Ok(()) };
    }
    if writes {
        return Err(Errno::PERM);
    }
    // A partial view is made of bytes that nobody checks.
    if terms.unchecked || node.view.is_whole() { Ok(()) } else { Err(Errno::ACCES) }
}

/// What checks a sealed file that may be opened; `None` where nobody does.
pub(crate) fn check(shared: &Shared, node: &Arc<Node>, terms: &Terms) -> Result<Option<CheckedFile>> {
    let sealed = seal_of_file(shared, node.id).filter(|_| !terms.unchecked);
    let Some((seals, index)) = sealed else { return Ok(None) };
    let record = seals.manifest().node(index).map_err(|error| told(&error))?;
    let lower = shared.open_node(node, mode::O_RDONLY | mode::O_NONBLOCK)?;
    let file = seals.check_file(&record, lower).map_err(|error| {
        tracing::error!(%error, "a sealed file cannot be opened");
        error.errno()
    })?;
    Ok(Some(file))
}

/// What an open file is checked by, in memory that outlives the server, if another one may follow.
///
/// # Errors
/// EMFILE at the descriptor limit, ENOMEM.
pub(crate) fn outlive(shared: &Shared, checked: &CheckedFile) -> Result<Option<OwnedFd>> {
    let sealed = shared.sealed.as_ref().filter(|sealed| sealed.survives());
    // The lower file is that of the node.
    sealed.map(|sealed| checked.outlive(sealed.number(), false)).transpose()
}

/// A file that a server before had open, by what it left of it: checked as it was, whatever is sealed by now.
pub(crate) fn left(shared: &Shared, mut file: PoolFile, kept: Option<OwnedFd>) -> Opened<PoolFile> {
    let checked = kept.as_ref().and_then(|kept| again(shared, &file.node, kept));
    if checked.is_none() {
        tracing::error!(node = file.node.id.get(), "a file that is open cannot be checked any more");
    }
    file.kept = kept;
    opened(shared, file, checked)
}

fn again(shared: &Shared, node: &Arc<Node>, kept: &OwnedFd) -> Option<CheckedFile> {
    let lower = shared.open_node(node, mode::O_RDONLY | mode::O_NONBLOCK).ok()?;
    let seals = |number| shared.sealed.as_ref().map(|sealed| sealed.numbered(number));
    CheckedFile::left(kept.as_fd(), seals, Some(lower))
}

/// An open file that is checked.
pub(crate) fn opened(shared: &Shared, mut file: PoolFile, checked: Option<CheckedFile>) -> Opened<PoolFile> {
    let delegation = checked.as_ref().map_or(Delegation::Verified, CheckedFile::delegation);
    file.checked = Some(Checked { file: checked, stream: Stream::default() });
    Opened { file, delegation, cache: CacheHint::Keep, flush: shared.locks_below() }
}

/// The lower file of a checked one. Nobody gets it to move bytes that nobody has checked.
pub(crate) fn lower_file(checked: &Checked, access: Access) -> Result<Arc<LowerFile>> {
    checked.file()?.lower_file(access)
}

/// READ.
pub(crate) async fn read<'q>(
    checked: &Checked,
    cx: &Cx<'_>,
    at: ByteRange,
    reply: ReadReply<'q>,
) -> Result<Filled<'q>> {
    checked.file()?.read(cx, &checked.stream, at, reply).await
}

/// What checks a node, and what of the manifest it is, where that is no folder.
fn seal_of_file(shared: &Shared, node: NodeId) -> Option<(Arc<Seals>, NodeIndex)> {
    let (seals, index) = shared.sealed.as_ref()?.of(node);
    let known = shared.node(node).ok()?;
    index.filter(|_| !known.is_dir()).map(|index| (seals, index))
}

fn told(error: &ManifestError) -> Errno {
    tracing::error!(%error, "the manifest does not tell");
    Errno::from_lower(error.errno().raw_os_error())
}
