//! One lower tree.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shuntfs::LowerFile;
use shuntfs_sys::{Device, FsMagic, Stat, filesystem_of, open_folder, stat_of};

use super::lane::Lane;
use super::mounts::{Mount, MountIndex, Mounts};
use crate::error::PoolError;
use crate::node::{Identity, device_number, mix};
use crate::options::PoolOptions;

/// One lower tree of a pool.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) mounts: Mounts,
    pub(crate) lane: Lane,
    /// The folder at its top, `O_PATH`, and what that was when it was opened.
    root: Arc<LowerFile>,
    stat: Stat,
    /// Where that is, absolute and without symlinks.
    source: PathBuf,
    is_read_only: bool,
}

impl Branch {
    /// Takes hold of the folder `source`, as the branch with this number.
    pub(crate) fn open(number: u16, source: &Path, options: &PoolOptions) -> Result<Self, PoolError> {
        let failed = |error| PoolError::of_source(source, error);
        let fd = open_folder(source).map_err(failed)?;
        let stat = stat_of(&fd).map_err(failed)?;
        let below = filesystem_of(&fd).map_err(failed)?;
        let (index, id) = (MountIndex::own(number), stat.mnt_id.unwrap_or(0));
        let own = Mount::of(index, id, &fd, options.access_times).map_err(failed)?;
        Ok(Self {
            lane: Lane::new(options.calls, &own),
            mounts: Mounts::new(own, options.access_times),
            root: Arc::new(LowerFile::new(fd)),
            stat,
            source: std::fs::canonicalize(source).unwrap_or_else(|_| source.to_owned()),
            is_read_only: below.is_read_only(),
        })
    }

    /// The folder at its top.
    pub(crate) fn root(&self) -> &Arc<LowerFile> {
        &self.root
    }

    /// What makes that folder the same one. It is held, so no handle is needed.
    pub(crate) fn identity(&self) -> Identity {
        Identity::new(&self.stat, self.mounts.own().index, None)
    }

    /// Its mode, as it was when it was opened.
    pub(crate) fn mode(&self) -> u32 {
        self.stat.mode
    }

    /// Whether these are attributes of that folder.
    pub(crate) fn is_root(&self, stat: &Stat) -> bool {
        stat.ino == self.stat.ino && stat.dev == self.stat.dev
    }

    /// Where that folder is, absolute and without symlinks.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    /// Whether its file system refuses changes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Whether its file system is an overlay or FUSE, which are file systems on others.
    pub(crate) fn is_stacked(&self) -> bool {
        matches!(self.mounts.own().magic, FsMagic::OVERLAY | FsMagic::FUSE)
    }

    /// The number that an inode is shown with. Those of other devices than the branch's own are changed in their top 24 bits
    /// by their device, so that they do not meet its own; the same device always gives the same change.
    pub(crate) fn shown_ino(&self, ino: u64, device: Device) -> u64 {
        shown_ino(ino, device_number(device), device_number(self.stat.dev))
    }

    /// The other paths of what has this one, because its file system is mounted in several places of the branch.
    pub(crate) fn aliases(&self, path: &[u8]) -> Vec<Vec<u8>> {
        self.mounts.aliases(&self.source, path)
    }
}

fn shown_ino(ino: u64, device: u32, own: u32) -> u64 {
    if device == own { ino } else { ino ^ (mix(u64::from(device)) & !0xff_ffff_ffff) }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn inode_numbers_of_devices_do_not_meet() {
        let number = |minor| device_number(Device { major: 8, minor });
        let own = number(1);
        assert_eq!(shown_ino(2, own, own), 2);
        let mut seen: Vec<_> = (2..200).map(|minor| shown_ino(2, number(minor), own)).collect();
        seen.push(2);
        seen.sort_unstable();
        let all = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), all);
        assert_eq!(shown_ino(5, number(7), own), shown_ino(5, number(7), own));
        assert_eq!(shown_ino(5, number(7), own) & 0xff_ffff_ffff, 5);
    }
}
