//! Reads a manifest, block by block, through a trait; does no I/O of its own.
//!
//! What is read may be hostile even where it is signed: a key may sign what a faulty program made. So everything is
//! checked where it is used: places against the manifest's length, names against what the kernel takes for one
//! component of a path, and folders against loops. A folder's number is always greater than that of the folder it is
//! in, and it has exactly one entry, its *home*; so a walk down or up ends.

use std::sync::Arc;

use shuntfs_verity::{Descriptor, Digest, Params};

use super::layout::{
    self, Counts, ENTRY_LEN, EntryRecord, HEADER_LEN, Header, NODE_LEN_MAX, Reader, Record, TARGET_LEN_MAX,
};
use super::node::{Entry, Node, NodeIndex, NodeKind, Xattr};
use crate::ManifestError;

/// Where the bytes of a manifest come from.
pub trait Blocks {
    /// Length of the manifest in bytes.
    fn len(&self) -> u64;

    /// Whether there is nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of every block but the last, in bytes: not 0.
    fn block_size(&self) -> u32;

    /// One block; the last may be short.
    ///
    /// # Errors
    /// The block cannot be read, or is not what it was.
    fn block(&self, index: u64) -> Result<Arc<[u8]>, ManifestError>;
}

/// A manifest, whatever its blocks come from.
#[derive(Debug)]
pub struct Codec<B> {
    blocks: B,
    header: Header,
}

impl<B: Blocks> Codec<B> {
    /// Reads the header: one block.
    ///
    /// # Errors
    /// It is no manifest, or of a version that this code does not know, or its length is wrong.
    pub fn new(blocks: B) -> Result<Self, ManifestError> {
        let mut head = [0; HEADER_LEN];
        read(&blocks, 0, &mut head)?;
        let header = Header::parse(&head, blocks.len())?;
        let codec = Self { blocks, header };
        let root = codec.record(NodeIndex::ROOT)?;
        if NodeKind::check(root.mode)? != NodeKind::Folder {
            return Err(ManifestError::Malformed("its root is no folder"));
        }
        Ok(codec)
    }

    /// How the files of the tree are hashed.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.header.params
    }

    /// What it holds, by its own account.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.header.counts
    }

    /// How many nodes there are.
    #[must_use]
    pub fn node_count(&self) -> u64 {
        self.header.nodes
    }

    /// Where the blocks come from.
    #[must_use]
    pub fn blocks(&self) -> &B {
        &self.blocks
    }

    /// What is said of a node.
    ///
    /// # Errors
    /// There is no such node, or what is said of it does not hold together.
    pub fn node(&self, index: NodeIndex) -> Result<Node, ManifestError> {
        let record = self.record(index)?;
        let kind = NodeKind::check(record.mode)?;
        let descriptor = match kind {
            NodeKind::File => Some(self.descriptor(&record)?),
            _ => None,
        };
        Ok(Node {
            index,
            kind,
            mode: record.mode,
            uid: record.uid,
            gid: record.gid,
            nlink: record.nlink,
            size: record.size,
            mtime: record.mtime,
            rdev: record.rdev,
            descriptor,
        })
    }

    /// What a name in a folder leads to.
    ///
    /// # Errors
    /// [`ManifestError::NotAFolder`], or the manifest does not hold together.
    pub fn lookup(&self, folder: NodeIndex, name: &[u8]) -> Result<Option<NodeIndex>, ManifestError> {
        let (mut start, mut end) = self.entries_of(folder)?;
        while start < end {
            let middle = start + (end - start) / 2;
            let entry = self.entry(middle, folder)?;
            match self.name(&entry)?.as_slice().cmp(name) {
                std::cmp::Ordering::Less => start = middle + 1,
                std::cmp::Ordering::Greater => end = middle,
                std::cmp::Ordering::Equal => return self.target(middle, &entry).map(Some),
            }
        }
        Ok(None)
    }

    /// The names of a folder in order, from a position on: 0, or what [`Entry::next`] said.
    ///
    /// # Errors
    /// [`ManifestError::NotAFolder`], or the manifest does not hold together.
    pub fn entries(&self, folder: NodeIndex, from: u64) -> Result<Entries<'_, B>, ManifestError> {
        let (start, end) = self.entries_of(folder)?;
        let next = start.saturating_add(from).min(end);
        Ok(Entries { codec: self, folder, start, next, end, last: None })
    }

    /// A node's extended attributes, sorted by name.
    ///
    /// # Errors
    /// The manifest does not hold together.
    pub fn xattrs(&self, index: NodeIndex) -> Result<Vec<Xattr>, ManifestError> {
        let record = self.record(index)?;
        let bytes = self.blob(record.xattrs_offset, record.xattrs_len.into())?;
        let mut from = Reader(&bytes);
        let mut found: Vec<Xattr> = Vec::new();
        while !from.0.is_empty() {
            let [name_len] = from.array::<1>()?;
            let value_len = usize::try_from(from.u32()?).unwrap_or(usize::MAX);
            let name = from.bytes(name_len.into())?.to_vec();
            if name.is_empty() || name.contains(&0) || found.last().is_some_and(|last| last.name >= name) {
                return Err(ManifestError::Malformed("extended attributes that are out of order"));
            }
            found.push(Xattr { name, value: from.bytes(value_len)?.to_vec() });
        }
        Ok(found)
    }

    /// Where a symlink leads.
    ///
    /// # Errors
    /// [`ManifestError::NotASymlink`], or the manifest does not hold together.
    pub fn link_target(&self, index: NodeIndex) -> Result<Vec<u8>, ManifestError> {
        let record = self.record(index)?;
        if NodeKind::check(record.mode)? != NodeKind::Symlink {
            return Err(ManifestError::NotASymlink);
        }
        if !(1..=TARGET_LEN_MAX).contains(&record.size) {
            return Err(ManifestError::Malformed("a symlink's target that is empty or too long"));
        }
        let target = self.blob(record.content, record.size)?;
        if target.contains(&0) {
            return Err(ManifestError::Malformed("a symlink's target with a NUL in it"));
        }
        Ok(target)
    }

    /// The folder that a node's home is in, and its name there; `None` for the root. Of several hard links the first is
    /// the home.
    ///
    /// # Errors
    /// The manifest does not hold together.
    pub fn home(&self, index: NodeIndex) -> Result<Option<(NodeIndex, Vec<u8>)>, ManifestError> {
        if index == NodeIndex::ROOT {
            return Ok(None);
        }
        let record = self.record(index)?;
        let entry = self.raw_entry(record.home)?;
        let folder = NodeIndex(entry.folder);
        let (start, end) = self.entries_of(folder)?;
        if entry.node != index.0 || !(start..end).contains(&record.home) {
            return Err(ManifestError::Malformed("a node and its home that disagree"));
        }
        let name = self.name(&entry)?;
        self.target(record.home, &entry)?;
        Ok(Some((folder, name)))
    }

    /// The folder that a node's home is in; of the root, the root.
    ///
    /// # Errors
    /// The manifest does not hold together.
    pub fn parent(&self, index: NodeIndex) -> Result<NodeIndex, ManifestError> {
        Ok(self.home(index)?.map_or(NodeIndex::ROOT, |(folder, _)| folder))
    }

    /// The names that lead from the root to a node; none for the root.
    ///
    /// # Errors
    /// The manifest does not hold together.
    pub fn path_of(&self, index: NodeIndex) -> Result<Vec<Vec<u8>>, ManifestError> {
        let mut path = Vec::new();
        let mut at = index;
        // A folder's number is less than those of what is in it, so this ends.
        while let Some((folder, name)) = self.home(at)? {
            path.push(name);
            at = folder;
        }
        path.reverse();
        Ok(path)
    }

    /// The node at a path below the root; empty components and `.` are skipped.
    ///
    /// # Errors
    /// The manifest does not hold together.
    pub fn find(&self, path: &[u8]) -> Result<Option<NodeIndex>, ManifestError> {
        let mut at = NodeIndex::ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            match self.lookup(at, name) {
                Ok(Some(found)) => at = found,
                Ok(None) | Err(ManifestError::NotAFolder) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(at))
    }

    fn descriptor(&self, record: &Record) -> Result<Descriptor, ManifestError> {
        let params = &self.header.params;
        let impossible = ManifestError::Malformed("a file that no tree can be over");
        let root_hash = Digest::new(params.algorithm(), &record.root_hash).map_err(|_| impossible.clone())?;
        Descriptor::new(params, record.size, root_hash).map_err(|_| impossible)
    }

    /// First and behind the last of a folder's entries.
    fn entries_of(&self, folder: NodeIndex) -> Result<(u64, u64), ManifestError> {
        let record = self.record(folder)?;
        if NodeKind::check(record.mode)? != NodeKind::Folder {
            return Err(ManifestError::NotAFolder);
        }
        let end = record.content.checked_add(record.content_count);
        match end.filter(|end| *end <= self.header.entries) {
            Some(end) => Ok((record.content, end)),
            None => Err(ManifestError::Malformed("a folder with entries beyond the last")),
        }
    }

    /// An entry that must be of this folder.
    fn entry(&self, index: u64, folder: NodeIndex) -> Result<EntryRecord, ManifestError> {
        let entry = self.raw_entry(index)?;
        if entry.folder != folder.0 {
            return Err(ManifestError::Malformed("an entry and its folder that disagree"));
        }
        Ok(entry)
    }

    fn raw_entry(&self, index: u64) -> Result<EntryRecord, ManifestError> {
        let mut bytes = [0; ENTRY_LEN];
        read(&self.blocks, self.header.entry_at(index)?, &mut bytes)?;
        EntryRecord::parse(&bytes)
    }

    fn name(&self, entry: &EntryRecord) -> Result<Vec<u8>, ManifestError> {
        let name = self.blob(entry.name_offset, entry.name_len.into())?;
        layout::check_name(&name, entry.folder == NodeIndex::ROOT.0)?;
        Ok(name)
    }

    /// The node that an entry leads to: a folder only from its home, and only downwards.
    fn target(&self, index: u64, entry: &EntryRecord) -> Result<NodeIndex, ManifestError> {
        let node = NodeIndex(entry.node);
        let record = self.record(node)?;
        if node == NodeIndex::ROOT {
            return Err(ManifestError::Malformed("the root inside of itself"));
        }
        let is_folder = NodeKind::check(record.mode)? == NodeKind::Folder;
        if is_folder && (record.home != index || entry.node <= entry.folder) {
            return Err(ManifestError::Malformed("a folder in two places, or inside of itself"));
        }
        Ok(node)
    }

    fn record(&self, index: NodeIndex) -> Result<Record, ManifestError> {
        let mut room = [0; NODE_LEN_MAX];
        let (bytes, _) = room.split_at_mut(self.header.node_len().min(NODE_LEN_MAX));
        read(&self.blocks, self.header.node_at(index.0)?, bytes)?;
        Record::parse(bytes)
    }

    /// Bytes of the blob; every caller has a bound for `len`.
    fn blob(&self, offset: u64, len: u64) -> Result<Vec<u8>, ManifestError> {
        let at = self.header.blob_at(offset, len)?;
        let len = usize::try_from(len).map_err(|_| ManifestError::Malformed("bytes beyond the blob"))?;
        let mut bytes = vec![0; len];
        read(&self.blocks, at, &mut bytes)?;
        Ok(bytes)
    }
}

/// The names of a folder, in order.
#[derive(Debug)]
pub struct Entries<'a, B> {
    codec: &'a Codec<B>,
    folder: NodeIndex,
    start: u64,
    next: u64,
    end: u64,
    last: Option<Vec<u8>>,
}

impl<B: Blocks> Iterator for Entries<'_, B> {
    type Item = Result<Entry, ManifestError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let entry = self.step();
        if entry.is_err() {
            // Nothing behind it can be relied on.
            self.next = self.end;
        }
        Some(entry)
    }
}

impl<B: Blocks> Entries<'_, B> {
    fn step(&mut self) -> Result<Entry, ManifestError> {
        let index = self.next;
        let record = self.codec.entry(index, self.folder)?;
        let name = self.codec.name(&record)?;
        if self.last.as_ref().is_some_and(|last| *last >= name) {
            return Err(ManifestError::Malformed("names that are out of order"));
        }
        let node = self.codec.target(index, &record)?;
        self.next = index + 1;
        self.last = Some(name.clone());
        Ok(Entry { name, node, next: self.next - self.start })
    }
}

/// Fills `out` from an offset on.
fn read(blocks: &impl Blocks, offset: u64, out: &mut [u8]) -> Result<(), ManifestError> {
    let short = ManifestError::Malformed("it ends too early");
    let size = u64::from(blocks.block_size().max(1));
    let end = offset.checked_add(out.len() as u64).filter(|end| *end <= blocks.len());
    if end.is_none() {
        return Err(short);
    }
    let (mut rest, mut offset) = (out, offset);
    while !rest.is_empty() {
        let block = blocks.block(offset / size)?;
        let from = usize::try_from(offset % size).ok().and_then(|skip| block.get(skip..));
        let from =
            from.filter(|from| !from.is_empty()).ok_or(ManifestError::Malformed("it ends too early"))?;
        let len = from.len().min(rest.len());
        let (head, tail) = rest.split_at_mut(len);
        head.copy_from_slice(from.split_at(len).0);
        rest = tail;
        offset += len as u64;
    }
    Ok(())
}
