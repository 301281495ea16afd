//! Open files that outlive their server: what each is checked by, in a file in memory.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | the number of the seal that it was opened by |
//! | 8 | 8 | the descriptor of the lower file, plus 1; 0 if the next server finds it by itself |
//! | 16 | 16 | what that leads to: device, inode |
//! | 32 | 8 | the descriptor of the hash tree, plus 1; 0 where there is none |
//! | 40 | 256 | what was sealed, as fs-verity has it |
//! | 296 | | the path, for the log |
//!
//! Little endian. The tree is held from the open on: to seal the folder once more removes trees that the new seal has no use for.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use shuntfs::takeover::FileIdentity;
use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::memory::file_in_memory;
use shuntfs_sys::spawn::inherited_fd;
use shuntfs_verity::{DESCRIPTOR_LEN, Descriptor};

use crate::checked::CheckedFile;
use crate::error::errno;
use crate::seals::Seals;

/// Longer than all of it with the longest path that the kernel takes.
const LEN_MAX: u64 = 8192;
const HEAD: usize = 40;

impl CheckedFile {
    /// Writes down by what it is checked, for the next server, which has the same descriptors. With the lower file if `with_lower`.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit, ENOMEM.
    pub fn outlive(&self, seal: u64, with_lower: bool) -> Result<OwnedFd> {
        let file = file_in_memory(c"shuntfs-sealed").map_err(errno)?;
        self.write_down(&file, seal, with_lower)?;
        Ok(file.into())
    }

    fn write_down(&self, file: &File, seal: u64, with_lower: bool) -> Result<()> {
        let lower = if with_lower {
            let identity = FileIdentity::of(&*self.lower).map_err(errno)?;
            [word_of(self.lower.as_fd()), identity.device, identity.inode]
        } else {
            [0; 3]
        };
        let tree = self.tree.held().map_or(0, |tree| word_of(tree.as_fd()));
        let head = [seal].into_iter().chain(lower).chain([tree]);
        let mut bytes: Vec<u8> = head.flat_map(u64::to_le_bytes).collect();
        bytes.extend_from_slice(&self.tree.descriptor().to_bytes());
        bytes.extend_from_slice(self.path.as_bytes());
        file.write_all_at(&bytes, 0).map_err(|_| Errno::NOMEM)
    }

    /// What another server wrote down of a file that is open, by the seal of that number; the lower file is `lower`, or the one that was written
    /// down. From now on this server's descriptors are there. `None` if it cannot be checked any more.
    #[must_use]
    pub fn left(
        kept: BorrowedFd<'_>,
        seals: impl FnOnce(u64) -> Option<Arc<Seals>>,
        lower: Option<Arc<LowerFile>>,
    ) -> Option<Self> {
        let kept = File::from(kept.try_clone_to_owned().ok()?);
        let len = kept.metadata().ok()?.len().min(LEN_MAX);
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        kept.read_exact_at(&mut bytes, 0).ok()?;
        let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
        let (descriptor, path) = rest.split_first_chunk::<DESCRIPTOR_LEN>()?;
        let (words, _) = head.as_chunks::<8>();
        let [seal, number, device, inode, tree] = words else { return None };
        let [seal, number, device, inode, tree] =
            [seal, number, device, inode, tree].map(|word| u64::from_le_bytes(*word));
        let seals = seals(seal)?;
        let with_lower = lower.is_none();
        let lower = match lower {
            Some(lower) => lower,
            None => {
                let lower = duplicate(number)?;
                let is_it = FileIdentity::of(&lower) == Ok(FileIdentity { device, inode });
                Arc::new(seals.blocking_like(LowerFile::new(Some(lower).filter(|_| is_it)?)))
            }
        };
        let descriptor = Descriptor::parse(descriptor).ok()?;
        let checked = seals.check(descriptor, String::from_utf8(path.to_vec()).ok()?, lower).ok()?;
        if let Some(tree) = duplicate(tree) {
            checked.tree.hold(seals.blocking_like(LowerFile::new(tree)));
        }
        checked.write_down(&kept, seal, with_lower).ok()?;
        Some(checked)
    }
}

fn word_of(fd: BorrowedFd<'_>) -> u64 {
    u64::try_from(fd.as_raw_fd()).map_or(0, |number| number + 1)
}

fn duplicate(word: u64) -> Option<OwnedFd> {
    inherited_fd(RawFd::try_from(word.checked_sub(1)?).ok()?).ok()
}
