//! Where what lies in a manifest; little endian throughout. `docs/sealing.md` has the same tables in words.
//!
//! Nothing here is trusted: every number is checked against the manifest's length before it is used.

use shuntfs_sys::{Device, Time};
use shuntfs_verity::{Algorithm, BlockSize, Params, SALT_LEN_MAX, Salt};

use crate::ManifestError;

/// The first bytes of every manifest.
pub(crate) const MAGIC: [u8; 8] = *b"shuntman";
/// The format that this code writes and reads.
pub(crate) const VERSION: u32 = 1;
/// Length of the header.
pub(crate) const HEADER_LEN: usize = 256;
/// Length of an entry: a name in a folder.
pub(crate) const ENTRY_LEN: usize = 32;
/// Length of a node without its root hash.
pub(crate) const NODE_HEAD_LEN: usize = 80;
/// Length of the longest node.
pub(crate) const NODE_LEN_MAX: usize = NODE_HEAD_LEN + 64;
/// Longest name, as the kernel has it.
pub(crate) const NAME_LEN_MAX: usize = 255;
/// Longest target of a symlink, as the kernel has it (`PATH_MAX` without its NUL).
pub(crate) const TARGET_LEN_MAX: u64 = 4095;
/// Most bytes of extended attributes that one node may have here; the kernel lists at most 64 KiB of names.
pub(crate) const XATTRS_LEN_MAX: u32 = 16 << 20;
/// The store beside the data: never part of what is sealed.
pub(crate) const STORE_NAME: &[u8] = b".shunt";

/// What a manifest holds, in numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Folders, the root included.
    pub folders: u64,
    /// Regular files; one with several names counts once.
    pub files: u64,
    /// Symlinks.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub others: u64,
    /// The files' sizes in all.
    pub bytes: u64,
}

/// The head of a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// How the files of the tree are hashed; the manifest itself says so in its own descriptor.
    pub(crate) params: Params,
    pub(crate) nodes: u64,
    pub(crate) entries: u64,
    pub(crate) blob_len: u64,
    pub(crate) counts: Counts,
}

impl Header {
    /// Length of one node.
    pub(crate) fn node_len(&self) -> usize {
        NODE_HEAD_LEN + self.params.algorithm().digest_len()
    }

    fn entries_offset(&self) -> Option<u64> {
        (self.node_len() as u64).checked_mul(self.nodes)?.checked_add(HEADER_LEN as u64)
    }

    fn blob_offset(&self) -> Option<u64> {
        (ENTRY_LEN as u64).checked_mul(self.entries)?.checked_add(self.entries_offset()?)
    }

    /// Length of the whole manifest.
    pub(crate) fn manifest_len(&self) -> Option<u64> {
        self.blob_offset()?.checked_add(self.blob_len)
    }

    /// Where a node starts.
    pub(crate) fn node_at(&self, index: u64) -> Result<u64, ManifestError> {
        if index >= self.nodes {
            return Err(ManifestError::Malformed("a node beyond the last"));
        }
        Ok(HEADER_LEN as u64 + index * self.node_len() as u64)
    }

    /// Where an entry starts.
    pub(crate) fn entry_at(&self, index: u64) -> Result<u64, ManifestError> {
        match self.entries_offset() {
            Some(start) if index < self.entries => Ok(start + index * ENTRY_LEN as u64),
            _ => Err(ManifestError::Malformed("an entry beyond the last")),
        }
    }

    /// Where bytes of the blob start; all `len` of them are inside.
    pub(crate) fn blob_at(&self, offset: u64, len: u64) -> Result<u64, ManifestError> {
        let outside = ManifestError::Malformed("bytes beyond the blob");
        let end = offset.checked_add(len).filter(|end| *end <= self.blob_len);
        end.and_then(|_| self.blob_offset()?.checked_add(offset)).ok_or(outside)
    }

    pub(crate) fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut out = Writer::default();
        out.bytes(&MAGIC).u32(VERSION);
        let (algorithm, salt) = (self.params.algorithm(), self.params.salt());
        let salt = salt.as_bytes();
        let mut padded = [0; SALT_LEN_MAX];
        padded.iter_mut().zip(salt).for_each(|(to, from)| *to = *from);
        let salt_len = u8::try_from(salt.len()).expect("at most 32 bytes of salt");
        out.bytes(&[algorithm.number(), self.params.block_size().log2(), salt_len, 0]).bytes(&padded);
        out.u64(self.nodes).u64(self.entries).u64(self.blob_len);
        let counts = &self.counts;
        out.u64(counts.folders).u64(counts.files).u64(counts.symlinks).u64(counts.others).u64(counts.bytes);
        let mut header = [0; HEADER_LEN];
        header.iter_mut().zip(out.0).for_each(|(to, from)| *to = from);
        header
    }

    /// Reads the header of a manifest of this length.
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN], manifest_len: u64) -> Result<Self, ManifestError> {
        let malformed = ManifestError::Malformed;
        let mut from = Reader(bytes);
        if from.array::<8>()? != MAGIC {
            return Err(malformed("it does not start as one"));
        }
        let version = from.u32()?;
        if version != VERSION {
            return Err(ManifestError::Version(version));
        }
        let [algorithm, log2, salt_len, zero] = from.array::<4>()?;
        let padded = from.array::<SALT_LEN_MAX>()?;
        let (salt, rest) =
            padded.split_at_checked(usize::from(salt_len)).ok_or(malformed("the salt is too long"))?;
        if zero != 0 || rest.iter().any(|byte| *byte != 0) {
            return Err(malformed("reserved bytes of the header are not zero"));
        }
        let algorithm =
            Algorithm::from_number(algorithm).map_err(|_| malformed("an unknown hash algorithm"))?;
        let block_size = 1_u32.checked_shl(log2.into()).and_then(|size| BlockSize::new(size).ok());
        let block_size = block_size.ok_or(malformed("a block size that is not offered"))?;
        let salt = Salt::new(salt).map_err(|_| malformed("the salt is too long"))?;
        let params = Params::new(algorithm, block_size, salt);
        let params = params.map_err(|_| malformed("a block size that is not offered"))?;
        let [nodes, entries, blob_len] = [from.u64()?, from.u64()?, from.u64()?];
        let counts = Counts {
            folders: from.u64()?,
            files: from.u64()?,
            symlinks: from.u64()?,
            others: from.u64()?,
            bytes: from.u64()?,
        };
        if from.0.iter().any(|byte| *byte != 0) {
            return Err(malformed("reserved bytes of the header are not zero"));
        }
        let header = Self { params, nodes, entries, blob_len, counts };
        if nodes == 0 || header.manifest_len() != Some(manifest_len) {
            return Err(malformed("its length is not what its header says"));
        }
        Ok(header)
    }
}

/// A node as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) size: u64,
    pub(crate) mtime: Time,
    pub(crate) rdev: Device,
    pub(crate) xattrs_len: u32,
    pub(crate) xattrs_offset: u64,
    /// Folder: its first entry. Symlink: where its target starts in the blob. Else 0.
    pub(crate) content: u64,
    /// Folder: how many entries it has. Else 0; a symlink's target is as long as its size.
    pub(crate) content_count: u64,
    /// The entry that names it; of several, the first. Of the root 0, which says nothing.
    pub(crate) home: u64,
    /// Regular file: the root hash of its tree. Else zeroes.
    pub(crate) root_hash: Vec<u8>,
}

impl Record {
    /// Appends the node's bytes.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let mut out = Writer(std::mem::take(to));
        out.u32(self.mode).u32(self.uid).u32(self.gid).u32(self.nlink).u64(self.size);
        out.bytes(&self.mtime.secs.to_le_bytes()).u32(self.mtime.nanos);
        out.u32(self.rdev.major).u32(self.rdev.minor).u32(self.xattrs_len).u64(self.xattrs_offset);
        out.u64(self.content).u64(self.content_count).u64(self.home).bytes(&self.root_hash);
        *to = out.0;
    }

    /// Reads a node; `bytes` are all of it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let mut from = Reader(bytes);
        let [mode, uid, gid, nlink] = [from.u32()?, from.u32()?, from.u32()?, from.u32()?];
        let size = from.u64()?;
        let mtime = Time { secs: i64::from_le_bytes(from.array()?), nanos: from.u32()? };
        let rdev = Device { major: from.u32()?, minor: from.u32()? };
        let (xattrs_len, xattrs_offset) = (from.u32()?, from.u64()?);
        let [content, content_count, home] = [from.u64()?, from.u64()?, from.u64()?];
        if mtime.nanos >= 1_000_000_000 {
            return Err(ManifestError::Malformed("a time with more than a second of nanoseconds"));
        }
        if xattrs_len > XATTRS_LEN_MAX {
            return Err(ManifestError::Malformed("too many bytes of extended attributes"));
        }
        let root_hash = from.0.to_vec();
        Ok(Self {
            mode,
            uid,
            gid,
            nlink,
            size,
            mtime,
            rdev,
            xattrs_len,
            xattrs_offset,
            content,
            content_count,
            home,
            root_hash,
        })
    }
}

/// A name in a folder as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EntryRecord {
    pub(crate) name_offset: u64,
    pub(crate) node: u64,
    /// The folder that it is in.
    pub(crate) folder: u64,
    pub(crate) name_len: u16,
}

impl EntryRecord {
    /// Appends the entry's bytes.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let mut out = Writer(std::mem::take(to));
        out.u64(self.name_offset).u64(self.node).u64(self.folder);
        out.bytes(&self.name_len.to_le_bytes()).bytes(&[0; 6]);
        *to = out.0;
    }

    pub(crate) fn parse(bytes: &[u8; ENTRY_LEN]) -> Result<Self, ManifestError> {
        let mut from = Reader(bytes);
        let [name_offset, node, folder] = [from.u64()?, from.u64()?, from.u64()?];
        let name_len = u16::from_le_bytes(from.array()?);
        if from.0.iter().any(|byte| *byte != 0) {
            return Err(ManifestError::Malformed("reserved bytes of an entry are not zero"));
        }
        if !(1..=NAME_LEN_MAX).contains(&usize::from(name_len)) {
            return Err(ManifestError::Malformed("a name that is empty or too long"));
        }
        Ok(Self { name_offset, node, folder, name_len })
    }
}

/// Whether a name may be one component of a path below the root.
pub(crate) fn check_name(name: &[u8], in_root: bool) -> Result<(), ManifestError> {
    let refused = if name.is_empty() || name.len() > NAME_LEN_MAX {
        "a name that is empty or too long"
    } else if name == b"." || name == b".." {
        "a name that leads elsewhere: . or .."
    } else if name.contains(&b'/') || name.contains(&0) {
        "a name with a slash or a NUL in it"
    } else if in_root && name == STORE_NAME {
        "the store as part of the tree"
    } else {
        return Ok(());
    };
    Err(ManifestError::Malformed(refused))
}

/// Appends numbers.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
    pub(crate) fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }
    pub(crate) fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }
}

/// Takes numbers off the front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ManifestError> {
        let (head, rest) =
            self.0.split_first_chunk::<N>().ok_or(ManifestError::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*head)
    }
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], ManifestError> {
        let (head, rest) =
            self.0.split_at_checked(len).ok_or(ManifestError::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }
    pub(crate) fn u32(&mut self) -> Result<u32, ManifestError> {
        self.array().map(u32::from_le_bytes)
    }
    pub(crate) fn u64(&mut self) -> Result<u64, ManifestError> {
        self.array().map(u64::from_le_bytes)
    }
}
