//! Names and attributes, as the manifest has them. They hold for ever: content and names of a manifest cannot change.

use std::time::Duration;

use shuntfs::{Attr, AttrReply, Entry, Errno, NodeId, Result, Statfs, Timestamp};
use shuntfs_seal::{Manifest, ManifestError, Node, NodeIndex};
use shuntfs_sys::encode_dev;

use crate::error::errno;

/// What the kernel may keep: everything, for ever.
const FOR_EVER: Duration = Duration::MAX;
/// What `df` counts in.
const BLOCK: u32 = 4096;
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

/// What is known of a node.
pub(super) fn reply(node: &Node) -> AttrReply {
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
        mode: node.mode,
        nlink: node.nlink,
        uid: node.uid,
        gid: node.gid,
        rdev: encode_dev(node.rdev.major, node.rdev.minor),
        blksize: BLOCK,
    };
    AttrReply { attr, ttl: FOR_EVER }
}

/// A name's answer.
pub(super) fn entry(node: &Node) -> Entry {
    Entry { node: NodeId::new(node.index.inode()), ttl: FOR_EVER, attr: reply(node) }
}

/// LOOKUP.
pub(super) fn lookup(manifest: &Manifest, parent: NodeId, name: &[u8]) -> Result<Entry> {
    let found = manifest.lookup(index(parent)?, name).map_err(|error| told(&error))?;
    let Some(found) = found else { return Ok(Entry::negative(FOR_EVER)) };
    manifest.node(found).map(|node| entry(&node)).map_err(|error| told(&error))
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
