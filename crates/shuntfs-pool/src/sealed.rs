//! Files of the pool that are sealed: checked as they are read, and never written.
//!
//! Which node is sealed follows from names, as the manifest has them: the root is the manifest's root, and whoever finds a name
//! in a folder that is in the manifest looks there for the same name. A file with several names that is found by one that
//! the manifest does not have is known again by its inode, so that it is sealed by whichever of them. Names of the manifest
//! cannot be given to anything else: they are not removed, moved, replaced or made.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use shuntfs::{ByteRange, CacheHint, Cx, Errno, Filled, NodeId, Opened, ReadReply, Result};
use shuntfs_seal::{ManifestError, NodeIndex};
use shuntfs_sys::Stat;
use shuntfs_verified::{CheckedFile, SealNote, Seals, Stream};

use crate::file::PoolFile;
use crate::guard::Terms;
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::Node;
use crate::shared::Shared;

/// The attribute that shows a file's digest.
pub(crate) const DIGEST: &std::ffi::CStr = c"user.shuntfs.verity";

/// Where trees and manifest are, unless they are in another place altogether.
const STORE: &[u8] = b".shunt";

/// What of a pool is sealed, and which of it the kernel knows.
#[derive(Debug)]
pub(crate) struct SealedNodes {
    seals: Arc<Seals>,
    known: RwLock<HashMap<NodeId, NodeIndex>>,
}

/// The checks of one open file.
#[derive(Debug)]
pub(crate) struct Checked {
    file: CheckedFile,
    stream: Stream,
}

impl SealedNodes {
    pub(crate) fn new(seals: Arc<Seals>) -> Self {
        Self { seals, known: RwLock::default() }
    }

    /// What of the manifest a node is.
    pub(crate) fn of(&self, node: NodeId) -> Option<NodeIndex> {
        if node == NodeId::ROOT { Some(NodeIndex::ROOT) } else { self.known.read().get(&node).copied() }
    }

    /// The kernel has forgotten a node.
    pub(crate) fn forget(&self, node: NodeId) {
        self.known.write().remove(&node);
    }

    pub(crate) fn note_of(&self, node: NodeId) -> Option<SealNote> {
        self.seals.note_of(self.of(node)?)
    }
}

/// What the manifest has at a name. A manifest that does not tell is an error: nobody knows then what is sealed.
pub(crate) fn look(shared: &Shared, parent: NodeId, name: &[u8]) -> Result<Option<NodeIndex>> {
    let Some(sealed) = &shared.sealed else { return Ok(None) };
    let Some(folder) = sealed.of(parent) else { return Ok(None) };
    match sealed.seals.manifest().lookup(folder, name) {
        // A folder below in the place of what was sealed as something else.
        Err(ManifestError::NotAFolder) => Ok(None),
        outcome => outcome.map_err(|error| told(&error)),
    }
}

/// Notes what of the manifest a node is, by the name that it was found by; else, where it has others, by its inode.
pub(crate) fn note(shared: &Shared, node: &Node, stat: &Stat, by_name: Option<NodeIndex>) {
    let Some(sealed) = &shared.sealed else { return };
    let may_have_others = stat.is_file() && stat.nlink > 1;
    if by_name.is_none() && (!may_have_others || sealed.of(node.id).is_some()) {
        return;
    }
    if let Some(index) = by_name.or_else(|| sealed.seals.by_inode(stat)) {
        sealed.known.write().entry(node.id).or_insert(index);
    }
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
    match look(shared, parent, name.as_c_str().to_bytes())? {
        Some(_) => Err(Errno::PERM),
        None => Ok(()),
    }
}

/// Refuses a change of what a sealed file holds. Its attributes are not covered, as with fs-verity.
pub(crate) fn check_content(shared: &Shared, node: NodeId) -> Result<()> {
    if index_of_file(shared, node).is_some() { Err(Errno::PERM) } else { Ok(()) }
}

/// Refuses to set or remove what shows the digest.
pub(crate) fn check_xattr(shared: &Shared, node: NodeId, name: &std::ffi::CStr) -> Result<()> {
    if name == DIGEST && index_of_file(shared, node).is_some() { Err(Errno::PERM) } else { Ok(()) }
}

/// The digest of a sealed file.
pub(crate) fn digest(shared: &Shared, node: NodeId) -> Option<shuntfs_verity::Digest> {
    let index = index_of_file(shared, node)?;
    shared.sealed.as_ref()?.seals.manifest().node(index).ok()?.digest()
}

/// Refuses to open what is sealed for writing, or in part, and what is not sealed where a rule wants it to be.
pub(crate) fn check_open(shared: &Shared, node: &Node, writes: bool, terms: &Terms) -> Result<()> {
    if index_of_file(shared, node.id).is_none() {
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
    let sealed = shared.sealed.as_ref().zip(index_of_file(shared, node.id));
    let Some((sealed, index)) = sealed.filter(|_| !terms.unchecked) else { return Ok(None) };
    let record = sealed.seals.manifest().node(index).map_err(|error| told(&error))?;
    let lower = shared.open_node(node, mode::O_RDONLY | mode::O_NONBLOCK)?;
    let file = sealed.seals.check_file(&record, lower).map_err(|error| {
        tracing::error!(%error, "a sealed file cannot be opened");
        error.errno()
    })?;
    Ok(Some(file))
}

/// An open file that is checked.
pub(crate) fn opened(shared: &Shared, mut file: PoolFile, checked: CheckedFile) -> Opened<PoolFile> {
    let delegation = checked.delegation();
    file.checked = Some(Checked { file: checked, stream: Stream::default() });
    Opened { file, delegation, cache: CacheHint::Keep, flush: shared.locks_below() }
}

/// READ.
pub(crate) async fn read<'q>(
    checked: &Checked,
    cx: &Cx<'_>,
    at: ByteRange,
    reply: ReadReply<'q>,
) -> Result<Filled<'q>> {
    checked.file.read(cx, &checked.stream, at, reply).await
}

/// What of the manifest a node is, where that is no folder.
fn index_of_file(shared: &Shared, node: NodeId) -> Option<NodeIndex> {
    let index = shared.sealed.as_ref()?.of(node)?;
    let known = shared.node(node).ok()?;
    (!known.is_dir()).then_some(index)
}

fn told(error: &ManifestError) -> Errno {
    tracing::error!(%error, "the manifest does not tell");
    Errno::from_lower(error.errno().raw_os_error())
}
