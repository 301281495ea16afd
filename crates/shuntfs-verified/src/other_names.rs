//! Sealed files by names that the manifest does not have: hard links that were made after sealing, or lie outside.

use std::ffi::CString;

use shuntfs_seal::{ManifestError, NodeIndex};
use shuntfs_sys::open::open_beneath;
use shuntfs_sys::{Device, Stat, stat_of};

use crate::seals::Seals;

/// `O_PATH`: only which inode it is counts.
const PATH: u32 = 0o10_000_000;

impl Seals {
    /// The sealed file that an inode is, by whichever name it was found.
    ///
    /// Costs a search in the store's list of inodes, and where that has it, a look at what the file's name in the manifest
    /// leads to now. A store that was made without the list, or a file whose name leads elsewhere by now, has no answer.
    #[must_use]
    pub fn by_inode(&self, stat: &Stat) -> Option<NodeIndex> {
        let device = if stat.dev == self.top_device { Device::default() } else { stat.dev };
        let found = self.inodes.as_ref()?.find(device, stat.ino);
        let index = found.unwrap_or_else(|error| {
            tracing::warn!(?error, "the inodes of sealed files cannot be read");
            None
        })?;
        // Numbers of inodes are given out again.
        let names = self.manifest().path_of(index).inspect_err(told).ok()?;
        let below = CString::new(names.join(&b'/')).ok()?;
        let now = open_beneath(self.root(), &below, PATH).and_then(stat_of).ok()?;
        ((now.dev, now.ino) == (stat.dev, stat.ino)).then_some(index)
    }
}

fn told(error: &ManifestError) {
    tracing::error!(%error, "the manifest does not tell");
}
