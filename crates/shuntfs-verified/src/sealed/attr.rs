//! Names and attributes, as the manifest has them. They hold forever: content and names of a manifest cannot change.

use std::time::Duration;

use shuntfs::{Attr, AttrReply, Entry, Errno, NodeId, Result, Statfs, Timestamp};
use shuntfs_seal::{Manifest, ManifestError, Node, NodeIndex, NodeKind};
use shuntfs_sys::encode_dev;

use crate::error::errno;

/// What the kernel may keep: everything, forever.
const FOR_EVER: Duration = Duration::MAX;
/// What `df` counts in.
const BLOCK: u32 = 4096;
/// `S_ISUID` and `S_ISGID`.
const SET_ID: u32 = 0o6000;
/// Longest name.
const NAME_MAX: u32 = 255;

/// What a manifest that does not tell means for a caller; said in the log, because nothing else is wrong then.
pub(super) fn told(error: &ManifestError) -> Errno {
    match error {
        ManifestError::NotAFolder | ManifestError::NotASymlink => {}
        error => tracing::error!(%error, "the manifest does not tell"),
    }
    errno(error.errno())
}

/// The node that the kernel names.
pub(super) fn node(manifest: &Manifest, id: NodeId) -> Result<Node> {
    let index = index(id)?;
    if index.get() >= manifest.node_count() {
        return Err(Errno::STALE);
    }
    manifest.node(index).map_err(|error| told(&error))
}

/// The kernel's numbers are the manifest's, plus one: its root is 1, the manifest's 0.
pub(super) fn index(id: NodeId) -> Result<NodeIndex> {
    NodeIndex::from_inode(id.get()).ok_or(Errno::STALE)
}

/// What is known of a node. Of a manifest that anybody may have made, nothing that would give somebody a right beyond that of reading
/// what is here: no set-uid and set-gid programs, and devices that lead nowhere. The mount is nosuid and nodev as well; but it may have
/// been made by another program, be bound or copied elsewhere.
pub(super) fn reply(manifest: &Manifest, node: &Node) -> AttrReply {
    let is_powerless = !manifest.is_authentic();
    let mode = if is_powerless && node.kind == NodeKind::File { node.mode & !SET_ID } else { node.mode };
    let rdev = if is_powerless { 0 } else { encode_dev(node.rdev.major, node.rdev.minor) };
    let time = Timestamp { secs: node.mtime.secs, nanos: node.mtime.nanos };
    let attr = Attr {
        ino: node.index.inode(),
        size: node.size,
        blocks: node.size.div_ceil(512),
        // The manifest keeps one time. That of the last access would change, and that of the inode's last change belongs to
        // an inode that is not shown.
        atime: time,
        mtime: time,
        ctime: time,
        mode,
        nlink: node.nlink,
        uid: node.uid,
        gid: node.gid,
        rdev,
        blksize: BLOCK,
    };
    AttrReply { attr, ttl: FOR_EVER }
}

/// GETATTR.
pub(super) fn stat(manifest: &Manifest, id: NodeId) -> Result<AttrReply> {
    node(manifest, id).map(|node| reply(manifest, &node))
}

/// A name's answer.
pub(super) fn entry(manifest: &Manifest, node: &Node) -> Entry {
    let entry = Entry::new(NodeId::ROOT, reply(manifest, node));
    Entry { node: NodeId::new(node.index.inode()), ..entry }
}

/// LOOKUP.
pub(super) fn lookup(manifest: &Manifest, parent: NodeId, name: &[u8]) -> Result<Entry> {
    let found = manifest.lookup(index(parent)?, name).map_err(|error| told(&error))?;
    let Some(found) = found else { return Ok(Entry::negative(FOR_EVER)) };
    manifest.node(found).map(|node| entry(manifest, &node)).map_err(|error| told(&error))
}

/// STATFS: full, as every file system is that cannot be written.
pub(super) fn statfs(manifest: &Manifest) -> Statfs {
    let counts = manifest.counts();
    Statfs {
        blocks: counts.bytes.div_ceil(u64::from(BLOCK)),
        bfree: 0,
        bavail: 0,
        files: manifest.node_count(),
        ffree: 0,
        bsize: BLOCK,
        namelen: NAME_MAX,
        frsize: BLOCK,
    }
}
