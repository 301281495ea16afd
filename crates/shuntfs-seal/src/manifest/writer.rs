//! Makes a manifest: a draft in memory, written in one go.
//!
//! A draft takes about 150 bytes a node besides its names.

use std::collections::HashMap;
use std::io::{self, Write};

use shuntfs_sys::{Device, Time};
use shuntfs_verity::{Digest, Params};

use super::layout::{self, Counts, EntryRecord, Header, Record, XATTRS_LEN_MAX};
use super::node::{NodeIndex, NodeKind, Xattr};
use crate::ManifestError;

/// Bytes that are encoded before they are written.
const BATCH_LEN: usize = 64 * 1024;

/// What a draft is told of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "whoever seals says all of it")]
pub struct DraftNode {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes of a regular file; taken from the target where it is a symlink, else not looked at.
    pub size: u64,
    /// Last change of the data.
    pub mtime: Time,
    /// Which device a special file stands for.
    pub rdev: Device,
    /// Extended attributes, in any order.
    pub xattrs: Vec<Xattr>,
    /// A symlink's target.
    pub target: Vec<u8>,
}

/// A name of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "whoever seals says all of it")]
pub struct Child {
    /// The name.
    pub name: Vec<u8>,
    /// What it leads to.
    pub node: DraftNode,
    /// For what may have several names: device and inode number, by which it is known again.
    pub link: Option<(Device, u64)>,
}

/// What became of a [`Child`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Placed {
    /// The node that its name leads to.
    pub node: NodeIndex,
    /// Whether no earlier name led there.
    pub is_new: bool,
}

/// A manifest that is being made.
#[derive(Debug)]
pub struct Draft {
    params: Params,
    nodes: Vec<Record>,
    entries: Vec<EntryRecord>,
    blob: Vec<u8>,
    /// Where sets of extended attributes are in the blob: most trees have few that differ.
    xattrs: HashMap<Vec<u8>, u64>,
    /// The first name of what may have several.
    links: HashMap<(Device, u64), NodeIndex>,
    counts: Counts,
}

impl Draft {
    /// A draft with a root and nothing in it; files will be hashed with `params`.
    ///
    /// # Errors
    /// The root is no folder, or its extended attributes are too long.
    pub fn new(params: Params, root: DraftNode) -> Result<Self, ManifestError> {
        let mut draft = Self {
            params,
            nodes: Vec::new(),
            entries: Vec::new(),
            blob: Vec::new(),
            xattrs: HashMap::new(),
            links: HashMap::new(),
            counts: Counts::default(),
        };
        if NodeKind::check(root.mode)? != NodeKind::Folder {
            return Err(ManifestError::NotAFolder);
        }
        draft.add(root, 0)?;
        Ok(draft)
    }

    /// Says all that is in a folder, sorted by name; once for each folder. Returns the nodes, in the same order.
    ///
    /// # Errors
    /// Names out of order or that are none, a node that cannot be written down.
    pub fn fill(&mut self, folder: NodeIndex, children: Vec<Child>) -> Result<Vec<Placed>, ManifestError> {
        let first = self.entries.len() as u64;
        let count = children.len() as u64;
        let mut last: Option<Vec<u8>> = None;
        let mut placed = Vec::with_capacity(children.len());
        for Child { name, node, link } in children {
            layout::check_name(&name, folder == NodeIndex::ROOT)?;
            if last.as_ref().is_some_and(|last| *last >= name) {
                return Err(ManifestError::Malformed("names that are out of order"));
            }
            let child = self.place(folder, node, link)?;
            let name_len = u16::try_from(name.len()).expect("checked to be a name");
            let name_offset = self.blob.len() as u64;
            self.blob.extend_from_slice(&name);
            self.entries.push(EntryRecord { name_offset, node: child.node.0, folder: folder.0, name_len });
            placed.push(child);
            last = Some(name);
        }
        let record = self.record(folder)?;
        (record.content, record.content_count) = (first, count);
        Ok(placed)
    }

    /// Says a regular file's root hash.
    ///
    /// # Errors
    /// There is no such node, or the hash is of another algorithm.
    pub fn set_root_hash(&mut self, node: NodeIndex, root_hash: &Digest) -> Result<(), ManifestError> {
        if root_hash.algorithm() != self.params.algorithm() {
            return Err(ManifestError::Malformed("a hash of another algorithm"));
        }
        self.record(node)?.root_hash = root_hash.as_bytes().to_vec();
        Ok(())
    }

    /// What it holds.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Writes the manifest.
    ///
    /// # Errors
    /// What `to` gives.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let header = Header {
            params: self.params,
            nodes: self.nodes.len() as u64,
            entries: self.entries.len() as u64,
            blob_len: self.blob.len() as u64,
            counts: self.counts,
        };
        to.write_all(&header.to_bytes())?;
        let mut batch = Vec::with_capacity(BATCH_LEN + layout::NODE_LEN_MAX);
        for node in &self.nodes {
            node.write(&mut batch);
            // Whatever is no regular file has zeroes for a hash.
            let missing = self.params.algorithm().digest_len().saturating_sub(node.root_hash.len());
            batch.resize(batch.len() + missing, 0);
            spill(&mut batch, to)?;
        }
        for entry in &self.entries {
            entry.write(&mut batch);
            spill(&mut batch, to)?;
        }
        to.write_all(&batch)?;
        to.write_all(&self.blob)
    }

    /// The node of the next entry: a new one, or that of an earlier name.
    fn place(
        &mut self,
        folder: NodeIndex,
        node: DraftNode,
        link: Option<(Device, u64)>,
    ) -> Result<Placed, ManifestError> {
        let is_folder = NodeKind::check(node.mode)? == NodeKind::Folder;
        if is_folder {
            // Its `..`.
            self.record(folder)?.nlink += 1;
        } else if let Some(known) = link.and_then(|link| self.links.get(&link).copied()) {
            self.record(known)?.nlink += 1;
            return Ok(Placed { node: known, is_new: false });
        }
        let node = self.add(node, self.entries.len() as u64)?;
        if let Some(link) = link {
            self.links.insert(link, node);
        }
        Ok(Placed { node, is_new: true })
    }

    fn add(&mut self, node: DraftNode, home: u64) -> Result<NodeIndex, ManifestError> {
        let kind = NodeKind::check(node.mode)?;
        let index = NodeIndex(self.nodes.len() as u64);
        let (xattrs_offset, xattrs_len) = self.add_xattrs(node.xattrs)?;
        let (mut size, mut content, mut nlink) = (0, 0, 1);
        match kind {
            NodeKind::File => {
                size = node.size;
                self.counts.files += 1;
                self.counts.bytes = self.counts.bytes.saturating_add(size);
            }
            NodeKind::Folder => {
                nlink = 2;
                self.counts.folders += 1;
            }
            NodeKind::Symlink => {
                (content, size) = (self.blob.len() as u64, node.target.len() as u64);
                if !(1..=layout::TARGET_LEN_MAX).contains(&size) || node.target.contains(&0) {
                    return Err(ManifestError::Malformed("a symlink's target that is empty or too long"));
                }
                self.blob.extend_from_slice(&node.target);
                self.counts.symlinks += 1;
            }
            NodeKind::Pipe | NodeKind::Socket | NodeKind::CharDevice | NodeKind::BlockDevice => {
                self.counts.others += 1;
            }
        }
        self.nodes.push(Record {
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            nlink,
            size,
            mtime: node.mtime,
            rdev: node.rdev,
            xattrs_len,
            xattrs_offset,
            content,
            content_count: 0,
            home,
            root_hash: Vec::new(),
        });
        Ok(index)
    }

    fn add_xattrs(&mut self, mut xattrs: Vec<Xattr>) -> Result<(u64, u32), ManifestError> {
        if xattrs.is_empty() {
            return Ok((0, 0));
        }
        let too_long = ManifestError::Malformed("too many bytes of extended attributes");
        xattrs.sort();
        let mut bytes = Vec::new();
        for Xattr { name, value } in &xattrs {
            let name_len = u8::try_from(name.len()).map_err(|_| too_long.clone())?;
            let value_len = u32::try_from(value.len()).map_err(|_| too_long.clone())?;
            bytes.push(name_len);
            bytes.extend_from_slice(&value_len.to_le_bytes());
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(value);
        }
        let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= XATTRS_LEN_MAX).ok_or(too_long)?;
        let end = self.blob.len() as u64;
        let offset = *self.xattrs.entry(bytes).or_insert_with_key(|bytes| {
            self.blob.extend_from_slice(bytes);
            end
        });
        Ok((offset, len))
    }

    fn record(&mut self, index: NodeIndex) -> Result<&mut Record, ManifestError> {
        let record = usize::try_from(index.0).ok().and_then(|index| self.nodes.get_mut(index));
        record.ok_or(ManifestError::Malformed("a node beyond the last"))
    }
}

fn spill(batch: &mut Vec<u8>, to: &mut dyn Write) -> io::Result<()> {
    if batch.len() >= BATCH_LEN {
        to.write_all(batch)?;
        batch.clear();
    }
    Ok(())
}
