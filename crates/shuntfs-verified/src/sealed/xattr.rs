//! Extended attributes: the manifest's, and the digest.

use std::ffi::CStr;

use shuntfs::{Errno, NodeId, Result};
use shuntfs_seal::Manifest;

use super::attr;

/// The attribute that shows a file's digest, on kernels whose `fsverity measure` cannot (before Linux 6.12).
pub(super) const DIGEST: &[u8] = b"user.shuntfs.verity";
/// The attribute that tells a node's number, for kernels that do not give it to users of a file (before Linux 6.6). It is not listed.
pub const NODE_XATTR: &CStr = c"user.shuntfs.node";
/// Names of capabilities and labels.
const SECURITY: &[u8] = b"security.";
/// Names that only a superuser sees.
const TRUSTED: &[u8] = b"trusted.";

/// Capabilities, labels and what overlayfs goes by are power: nobody gets it from a manifest that anybody may have made.
fn may_show(manifest: &Manifest, name: &[u8]) -> bool {
    manifest.is_authentic() || ![TRUSTED, SECURITY].iter().any(|prefix| name.starts_with(prefix))
}

/// GETXATTR.
pub(super) fn get(manifest: &Manifest, id: NodeId, name: &[u8]) -> Result<Vec<u8>> {
    let node = attr::node(manifest, id)?;
    if name == DIGEST
        && let Some(digest) = node.digest()
    {
        return Ok(digest.to_string().into_bytes());
    }
    if name == NODE_XATTR.to_bytes() {
        return Ok(id.get().to_string().into_bytes());
    }
    if !may_show(manifest, name) {
        return Err(Errno::NODATA);
    }
    let all = manifest.xattrs(node.index).map_err(|error| attr::told(&error))?;
    all.into_iter().find(|found| found.name == name).map(|found| found.value).ok_or(Errno::NODATA)
}

/// LISTXATTR: names, each with its NUL.
pub(super) fn list(manifest: &Manifest, id: NodeId, is_superuser: bool) -> Result<Vec<u8>> {
    let node = attr::node(manifest, id)?;
    let all = manifest.xattrs(node.index).map_err(|error| attr::told(&error))?;
    let mut names = Vec::new();
    let is_seen = |name: &[u8]| may_show(manifest, name) && (is_superuser || !name.starts_with(TRUSTED));
    for found in all.iter().filter(|found| is_seen(&found.name)) {
        // What was sealed with a mount of ours below has one already.
        if found.name != DIGEST {
            names.extend_from_slice(&found.name);
            names.push(0);
        }
    }
    if node.digest().is_some() {
        names.extend_from_slice(DIGEST);
        names.push(0);
    }
    Ok(names)
}
