//! A file system in memory, honest but for the bug that a test plants.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Create, Cx, Delegation, DirSink, Entry, Errno, Filesystem, Filled,
    Link, Listed, LookupCount, Mkdir, Name, NodeId, OpSet, OpenFlags, Opened, OpenedDir, ReadReply, Rename,
    Result, SetAttr, SetXattr, Symlink, Timestamp, WriteData, Written,
};

/// What is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Bug {
    #[default]
    None,
    /// A second lookup is not counted.
    LosesLookups,
    /// RELEASE has no end.
    NeverReleases,
    /// All records of a listing have the same cookie.
    ListsOneCookie,
    /// A listing starts anew instead of ending.
    ListsForEver,
    /// A listing has inode numbers of its own.
    ListsOtherInodes,
    /// A second name makes a second node.
    LinksApart,
    /// A change of the size changes nothing.
    KeepsSize,
    /// A file is a folder at its second look.
    ChangesType,
    /// The value of an attribute is longer than was said.
    GrowsXattrs,
    /// An operation panics.
    Panics,
}

/// Names and attributes hold for an hour: everything goes through the mount.
pub(crate) const TTL: Duration = Duration::from_secs(3600);
const SIZE_MAX: usize = 4 << 20;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;

#[derive(Clone, Debug, Default)]
struct Node {
    mode: u32,
    nlink: u32,
    data: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    mtime: u64,
    lookups: u64,
    opens: u64,
}

#[derive(Debug)]
struct State {
    nodes: BTreeMap<u64, Node>,
    last: u64,
    tick: u64,
}

/// The file system.
#[derive(Debug)]
pub(crate) struct Mem {
    state: Mutex<State>,
    bug: Bug,
    pub(crate) cache: CacheHint,
}

impl Mem {
    pub(crate) fn new(bug: Bug) -> Self {
        let root = Node { mode: S_IFDIR | 0o755, nlink: 2, lookups: 1, ..Node::default() };
        let state = State { nodes: BTreeMap::from([(1, root)]), last: 1, tick: 0 };
        Self { state: Mutex::new(state), bug, cache: CacheHint::Keep }
    }

    /// How many nodes there are, the root among them, named or held.
    pub(crate) fn node_count(&self) -> usize {
        self.state().nodes.len()
    }

    /// Changes a file behind the kernel's back.
    pub(crate) fn change_behind(&self, node: NodeId, bytes: &[u8]) {
        if let Some(node) = self.state().nodes.get_mut(&node.get()) {
            node.data = bytes.to_vec();
        }
    }

    /// Gives a name of the root to another node, behind the kernel's back.
    pub(crate) fn swap_behind(&self, one: &str, other: &str) {
        let mut state = self.state();
        let names = &mut state.nodes.get_mut(&1).expect("the root").names;
        let (first, second) = (names[one.as_bytes()], names[other.as_bytes()]);
        names.insert(one.into(), second);
        names.insert(other.into(), first);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, parent: NodeId, name: Name<'_>, node: Node) -> Result<Entry> {
        let mut state = self.state();
        if state.at(parent)?.names.contains_key(name.as_bytes()) {
            return Err(Errno::EXIST);
        }
        state.last += 1;
        let id = state.last;
        let is_dir = node.mode & S_IFDIR == S_IFDIR;
        let mtime = state.tick();
        state.nodes.insert(id, Node { lookups: 1, mtime, ..node });
        let folder = state.at(parent)?;
        folder.names.insert(name.as_bytes().to_vec(), id);
        folder.nlink += u32::from(is_dir);
        folder.mtime = mtime;
        Ok(state.entry(id))
    }

    fn opened(&self, node: u64) -> Opened<u64> {
        Opened { file: node, delegation: Delegation::Served, cache: self.cache, flush: false }
    }

    fn remove(&self, parent: NodeId, name: Name<'_>, dir: bool) -> Result<()> {
        let mut state = self.state();
        let id = *state.at(parent)?.names.get(name.as_bytes()).ok_or(Errno::NOENT)?;
        let node = state.nodes.get(&id).ok_or(Errno::IO)?;
        match (node.mode & S_IFDIR == S_IFDIR, dir) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            _ if !node.names.is_empty() => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        let mtime = state.tick();
        let folder = state.at(parent)?;
        folder.names.remove(name.as_bytes());
        folder.nlink = folder.nlink.saturating_sub(u32::from(dir));
        folder.mtime = mtime;
        state.unname(id);
        Ok(())
    }
}

impl State {
    fn at(&mut self, node: NodeId) -> Result<&mut Node> {
        self.nodes.get_mut(&node.get()).ok_or(Errno::STALE)
    }

    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// A node lost a name.
    fn unname(&mut self, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.nlink = if node.mode & S_IFDIR == S_IFDIR { 0 } else { node.nlink - 1 };
        }
        self.drop_if_gone(id);
    }

    fn drop_if_gone(&mut self, id: u64) {
        if self.nodes.get(&id).is_some_and(|node| node.nlink == 0 && node.lookups == 0 && node.opens == 0) {
            self.nodes.remove(&id);
        }
    }

    fn attr(&self, id: u64) -> AttrReply {
        let node = &self.nodes[&id];
        let size = node.data.len() as u64;
        let mtime = Timestamp { secs: node.mtime.cast_signed(), nanos: 0 };
        let Node { mode, nlink, .. } = *node;
        let attr = Attr { ino: id, mode, nlink, size, mtime, ..Attr::default() };
        AttrReply { attr, ttl: TTL }
    }

    fn entry(&self, id: u64) -> Entry {
        Entry::new(NodeId::new(id).expect("counted from 1"), self.attr(id))
    }
}

impl Filesystem for Mem {
    type File = u64;
    type Dir = ();

    const OPS: OpSet =
        OpSet::OPEN.union(OpSet::CREATE).union(OpSet::LINK).union(OpSet::RENAME2).union(OpSet::XATTR);

    fn forget(&self, node: NodeId, lookups: LookupCount) {
        let mut state = self.state();
        let Some(held) = state.nodes.get_mut(&node.get()) else { return };
        held.lookups = held.lookups.saturating_sub(lookups.0);
        if self.bug == Bug::LosesLookups && held.lookups == 0 {
            // Found again by its name; a node that is held cannot be.
            let moved = held.clone();
            state.last += 1;
            let id = state.last;
            state.nodes.remove(&node.get());
            state.nodes.insert(id, moved);
            for folder in state.nodes.values_mut() {
                folder.names.values_mut().filter(|named| **named == node.get()).for_each(|named| *named = id);
            }
            return;
        }
        state.drop_if_gone(node.get());
    }

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let mut state = self.state();
        assert!(self.bug != Bug::Panics || name.as_bytes() != b"panic", "planted");
        let Some(id) = state.at(parent)?.names.get(name.as_bytes()).copied() else {
            return Ok(Entry::negative(TTL));
        };
        let lost = self.bug == Bug::LosesLookups && state.nodes[&id].lookups > 0;
        state.nodes.get_mut(&id).ok_or(Errno::IO)?.lookups += u64::from(!lost);
        Ok(state.entry(id))
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&u64>) -> Result<AttrReply> {
        let mut state = self.state();
        state.at(node)?;
        let mut reply = state.attr(node.get());
        if self.bug == Bug::ChangesType && node != NodeId::ROOT {
            reply.attr.mode = S_IFDIR | 0o755;
        }
        Ok(reply)
    }

    async fn setattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&u64>, set: SetAttr) -> Result<AttrReply> {
        let mut state = self.state();
        let tick = state.tick();
        let held = state.at(node)?;
        if let Some(mode) = set.mode {
            held.mode = held.mode & 0o170_000 | mode & 0o7777;
        }
        if let Some(size) = set.size.filter(|_| self.bug != Bug::KeepsSize) {
            let size = usize::try_from(size).ok().filter(|size| *size < SIZE_MAX).ok_or(Errno::FBIG)?;
            held.data.resize(size, 0);
            held.mtime = tick;
        }
        Ok(state.attr(node.get()))
    }

    async fn readlink<'q>(&self, _: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        reply.copy_from_slice(&self.state().at(node)?.data)
    }

    async fn mkdir(&self, _: &Cx<'_>, op: Mkdir<'_>) -> Result<Entry> {
        self.make(op.parent, op.name, Node { mode: S_IFDIR | op.mode & 0o7777, nlink: 2, ..Node::default() })
    }

    async fn symlink(&self, _: &Cx<'_>, op: Symlink<'_>) -> Result<Entry> {
        let data = op.target.to_bytes().to_vec();
        self.make(op.parent, op.name, Node { mode: S_IFLNK | 0o777, nlink: 1, data, ..Node::default() })
    }

    async fn link(&self, _: &Cx<'_>, op: Link<'_>) -> Result<Entry> {
        if self.bug == Bug::LinksApart {
            let copy = self.state().at(op.node)?.clone();
            return self.make(op.parent, op.name, copy);
        }
        let mut state = self.state();
        if state.at(op.node)?.mode & S_IFDIR == S_IFDIR {
            return Err(Errno::PERM);
        }
        if state.at(op.parent)?.names.contains_key(op.name.as_bytes()) {
            return Err(Errno::EXIST);
        }
        let tick = state.tick();
        let folder = state.at(op.parent)?;
        folder.names.insert(op.name.as_bytes().to_vec(), op.node.get());
        folder.mtime = tick;
        let node = state.at(op.node)?;
        node.nlink += 1;
        node.lookups += 1;
        Ok(state.entry(op.node.get()))
    }

    async fn unlink(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.remove(parent, name, false)
    }

    async fn rmdir(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.remove(parent, name, true)
    }

    async fn rename(&self, _: &Cx<'_>, op: Rename<'_>) -> Result<()> {
        let mut state = self.state();
        let moved = *state.at(op.parent)?.names.get(op.name.as_bytes()).ok_or(Errno::NOENT)?;
        let there = state.at(op.new_parent)?.names.get(op.new_name.as_bytes()).copied();
        if op.flags != 0 || there == Some(moved) {
            return if op.flags == 0 { Ok(()) } else { Err(Errno::INVAL) };
        }
        let is_dir =
            |state: &State, id: u64| state.nodes.get(&id).is_some_and(|node| node.mode & S_IFDIR == S_IFDIR);
        if let Some(there) = there {
            match (is_dir(&state, moved), is_dir(&state, there)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                _ if !state.nodes[&there].names.is_empty() => return Err(Errno::NOTEMPTY),
                _ => {}
            }
        }
        let tick = state.tick();
        let dir = u32::from(is_dir(&state, moved));
        let from = state.at(op.parent)?;
        from.names.remove(op.name.as_bytes());
        from.nlink = from.nlink.saturating_sub(dir);
        from.mtime = tick;
        let to = state.at(op.new_parent)?;
        to.names.insert(op.new_name.as_bytes().to_vec(), moved);
        to.nlink += dir - if there.is_some() { dir } else { 0 };
        to.mtime = tick;
        if let Some(there) = there {
            state.unname(there);
        }
        Ok(())
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<Opened<u64>> {
        self.state().at(node)?.opens += 1;
        Ok(self.opened(node.get()))
    }

    async fn create(&self, _: &Cx<'_>, op: Create<'_>) -> Result<(Entry, Opened<u64>)> {
        let entry = self.make(
            op.parent,
            op.name,
            Node { mode: S_IFREG | op.mode & 0o7777, nlink: 1, ..Node::default() },
        )?;
        let node = entry.node.ok_or(Errno::IO)?;
        self.state().at(node)?.opens += 1;
        Ok((entry, self.opened(node.get())))
    }

    async fn read<'q>(
        &self,
        _: &Cx<'_>,
        file: &u64,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let state = self.state();
        let data = &state.nodes.get(file).ok_or(Errno::STALE)?.data;
        reply.copy_from_slice(at.of(data))
    }

    async fn write(&self, _: &Cx<'_>, file: &u64, at: u64, data: WriteData<'_>) -> Result<Written> {
        let mut state = self.state();
        let tick = state.tick();
        let node = state.nodes.get_mut(file).ok_or(Errno::STALE)?;
        let start = usize::try_from(at).ok().filter(|start| *start < SIZE_MAX).ok_or(Errno::FBIG)?;
        let end = start + data.as_slice().len();
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[start..end].copy_from_slice(data.as_slice());
        node.mtime = tick;
        Ok(Written(u32::try_from(data.as_slice().len()).map_err(|_| Errno::IO)?))
    }

    async fn release(&self, _: &Cx<'_>, node: NodeId, _: Arc<u64>, _: Option<shuntfs::LockOwner>) {
        if self.bug == Bug::NeverReleases {
            std::future::pending::<()>().await;
        }
        let mut state = self.state();
        if let Ok(held) = state.at(node) {
            held.opens -= 1;
        }
        state.drop_if_gone(node.get());
    }

    async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<()>> {
        Ok(OpenedDir::cached(()))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        node: NodeId,
        _: &(),
        cookie: u64,
        mut out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let mut state = self.state();
        let names: Vec<(Vec<u8>, u64)> =
            state.at(node)?.names.iter().map(|(name, id)| (name.clone(), *id)).collect();
        let start = usize::try_from(cookie).unwrap_or(usize::MAX).min(names.len());
        for (place, (name, id)) in names.iter().enumerate().skip(start) {
            let name = std::ffi::CString::new(name.as_slice()).map_err(|_| Errno::IO)?;
            let name = Name::new(&name).ok_or(Errno::IO)?;
            if !out.fits(name.as_bytes().len()) {
                break;
            }
            let mut entry = state.entry(*id);
            entry.attr.ino += u64::from(self.bug == Bug::ListsOtherInodes) * 1000;
            let next = match self.bug {
                Bug::ListsOneCookie => names.len() as u64,
                // Where the end would be, the middle is.
                Bug::ListsForEver if place + 1 == names.len() => 1,
                _ => place as u64 + 1,
            };
            if out.push_entry(&entry, next, name) && out.wants_entries() {
                state.nodes.get_mut(id).ok_or(Errno::IO)?.lookups += 1;
            }
        }
        Ok(out.finish())
    }

    async fn getxattr<'q>(
        &self,
        _: &Cx<'_>,
        node: NodeId,
        name: &std::ffi::CStr,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let mut state = self.state();
        let value = state.at(node)?.xattrs.get(name.to_bytes()).ok_or(Errno::NODATA)?;
        let shorter = usize::from(self.bug == Bug::GrowsXattrs && reply.capacity() != 0);
        reply.copy_from_slice(&value[..value.len() - shorter])
    }

    async fn listxattr<'q>(&self, _: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let mut state = self.state();
        let names: Vec<u8> =
            state.at(node)?.xattrs.keys().flat_map(|name| [name, &b"\0"[..]].concat()).collect();
        reply.copy_from_slice(&names)
    }

    async fn setxattr(&self, _: &Cx<'_>, op: SetXattr<'_>) -> Result<()> {
        self.state().at(op.node)?.xattrs.insert(op.name.to_bytes().to_vec(), op.value.to_vec());
        Ok(())
    }

    async fn removexattr(&self, _: &Cx<'_>, node: NodeId, name: &std::ffi::CStr) -> Result<()> {
        self.state().at(node)?.xattrs.remove(name.to_bytes()).map(drop).ok_or(Errno::NODATA)
    }
}
