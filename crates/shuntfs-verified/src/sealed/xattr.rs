//! Extended attributes: the manifest's, and the digest.

use shuntfs::{Errno, NodeId, Result};
use shuntfs_seal::Manifest;

use super::attr;

/// The attribute that shows a file's digest, on kernels whose `fsverity measure` cannot (before Linux 6.12).
pub(super) const DIGEST: &[u8] = b"user.shuntfs.verity";
/// Names that only a superuser sees.
const TRUSTED: &[u8] = b"trusted.";

/// GETXATTR.
pub(super) fn get(manifest: &Manifest, id: NodeId, name: &[u8]) -> Result<Vec<u8>> {
    let node = attr::node(manifest, id)?;
    if name == DIGEST
        && let Some(digest) = node.digest()
    {
        return Ok(digest.to_string().into_bytes());
    }
    let all = manifest.xattrs(node.index).map_err(|error| attr::told(&error))?;
    all.into_iter().find(|found| found.name == name).map(|found| found.value).ok_or(Errno::NODATA)
}

/// LISTXATTR: names, each with its NUL.
pub(super) fn list(manifest: &Manifest, id: NodeId, is_superuser: bool) -> Result<Vec<u8>> {
    let node = attr::node(manifest, id)?;
    let all = manifest.xattrs(node.index).map_err(|error| attr::told(&error))?;
    let mut names = Vec::new();
    for found in all.iter().filter(|found| is_superuser || !found.name.starts_with(TRUSTED)) {
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
