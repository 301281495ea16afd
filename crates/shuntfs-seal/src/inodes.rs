//! Which inode each sealed file had: how a file is known again that is found by a name the manifest does not have, because
//! it is a hard link from elsewhere.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | `shuntino` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | 0 |
//! | 16 | 64 | digest of the manifest, zeroes after it |
//! | 80 | 24 each | device: major, minor (4 each), inode number (8), node of the manifest (8); sorted |
//!
//! Little endian. The device that the tree's top is on is written as 0:0, because its number may change when it is mounted anew.
//!
//! A hint: inode numbers are given out again, and nobody has signed this. Whoever finds something compares it with what the
//! manifest's own name leads to.

use std::cmp::Ordering;
use std::ffi::CStr;
use std::fs::File;

use shuntfs_sys::{Device, data};
use shuntfs_verity::Digest;

use crate::{NodeIndex, Store, StoreError};

pub(crate) const NAME: &str = "inodes";
pub(crate) const PLACE: &CStr = c"inodes";
const MAGIC: &[u8; 8] = b"shuntino";
const VERSION: u32 = 1;
const HEAD_LEN: usize = 80;
const RECORD_LEN: usize = 24;

type Key = (Device, u64);

/// The inodes of a store's manifest.
#[derive(Debug)]
pub struct Inodes {
    file: File,
    count: u64,
}

impl Inodes {
    /// Opens those of a manifest; `None` where the store has none, or another manifest's.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn open(store: &Store, manifest: &Digest) -> Result<Option<Self>, StoreError> {
        let file = match store.file(NAME) {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            file => file?,
        };
        Self::of(file, store, manifest)
    }

    /// Those that another process has opened; `None` where they are another manifest's.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn of(file: File, store: &Store, manifest: &Digest) -> Result<Option<Self>, StoreError> {
        let failed = |error| StoreError::io(store.path().join(NAME), error);
        let mut found = [0; HEAD_LEN];
        let len = crate::store::read_full(&file, &mut found).map_err(failed)?;
        if len < HEAD_LEN || found != head(manifest) {
            return Ok(None);
        }
        let len = file.metadata().map_err(|error| StoreError::io(store.path().join(NAME), error))?.len();
        Ok(Some(Self { file, count: (len - HEAD_LEN as u64) / RECORD_LEN as u64 }))
    }

    /// The file that they are read from.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The node that had this inode when it was sealed; 0:0 is the device that the top of the tree is on.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn find(&self, device: Device, ino: u64) -> shuntfs_sys::Result<Option<NodeIndex>> {
        let (mut start, mut end) = (0, self.count);
        while start < end {
            let middle = start + (end - start) / 2;
            let Some((key, node)) = self.record(middle)? else { return Ok(None) };
            match key.cmp(&(device, ino)) {
                Ordering::Less => start = middle + 1,
                Ordering::Greater => end = middle,
                Ordering::Equal => return Ok(Some(node)),
            }
        }
        Ok(None)
    }

    /// A record; `None` where the file was cut meanwhile.
    fn record(&self, index: u64) -> shuntfs_sys::Result<Option<(Key, NodeIndex)>> {
        let mut bytes = [0; RECORD_LEN];
        let at = HEAD_LEN as u64 + index * RECORD_LEN as u64;
        if data::read_at(&self.file, &mut bytes, at)? < RECORD_LEN {
            return Ok(None);
        }
        let [major, minor, ..] = bytes.as_chunks::<4>().0 else { return Ok(None) };
        let [_, ino, node] = bytes.as_chunks::<8>().0 else { return Ok(None) };
        let device = Device { major: u32::from_le_bytes(*major), minor: u32::from_le_bytes(*minor) };
        Ok(Some(((device, u64::from_le_bytes(*ino)), NodeIndex(u64::from_le_bytes(*node)))))
    }
}

/// The bytes of the file, from inodes in any order; `top` is the device that the top of the tree is on.
pub(crate) fn to_bytes(
    manifest: &Digest,
    top: Device,
    files: impl Iterator<Item = (Device, u64, NodeIndex)>,
) -> Vec<u8> {
    let shown = |device| if device == top { Device::default() } else { device };
    let mut records: Vec<(Key, NodeIndex)> =
        files.map(|(device, ino, node)| ((shown(device), ino), node)).collect();
    records.sort_unstable();
    let mut bytes = Vec::with_capacity(HEAD_LEN + records.len() * RECORD_LEN);
    bytes.extend_from_slice(&head(manifest));
    for ((device, ino), node) in records {
        bytes.extend_from_slice(&device.major.to_le_bytes());
        bytes.extend_from_slice(&device.minor.to_le_bytes());
        bytes.extend_from_slice(&ino.to_le_bytes());
        bytes.extend_from_slice(&node.0.to_le_bytes());
    }
    bytes
}

fn head(manifest: &Digest) -> [u8; HEAD_LEN] {
    let version = u64::from(VERSION).to_le_bytes();
    let mut head = [0; HEAD_LEN];
    let bytes = MAGIC.iter().chain(&version).chain(manifest.as_bytes());
    head.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    head
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_verity::Algorithm;
    use std::fs;

    #[test]
    fn what_was_written_is_found_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let digest = |byte| Digest::new(Algorithm::Sha256, &[byte; 32]).unwrap();
        assert!(Inodes::open(&store, &digest(1)).unwrap().is_none());
        let (top, other) = (Device { major: 8, minor: 1 }, Device { major: 8, minor: 2 });
        let files = (0..1000).map(|n| (if n % 3 == 0 { other } else { top }, 5000 - 2 * n, NodeIndex(n)));
        let bytes = to_bytes(&digest(1), top, files);
        fs::write(dir.path().join(NAME), &bytes).unwrap();
        let inodes = Inodes::open(&store, &digest(1)).unwrap().unwrap();
        for n in 0..1000 {
            let at = if n % 3 == 0 { other } else { Device::default() };
            let elsewhere = if n % 3 == 0 { Device::default() } else { other };
            assert_eq!(inodes.find(at, 5000 - 2 * n), Ok(Some(NodeIndex(n))), "{n}");
            assert_eq!(inodes.find(elsewhere, 5000 - 2 * n), Ok(None));
            assert_eq!(inodes.find(at, 5001 - 2 * n), Ok(None));
        }
        assert!(Inodes::open(&store, &digest(2)).unwrap().is_none(), "another manifest's");
        // Cut off anywhere: an answer or none, never a panic.
        for len in [0, 79, 80, 81, 103, 104, bytes.len() - 1] {
            fs::write(dir.path().join(NAME), &bytes[..len]).unwrap();
            if let Some(inodes) = Inodes::open(&store, &digest(1)).unwrap() {
                inodes.find(other, 5000).unwrap();
            }
        }
    }
}
