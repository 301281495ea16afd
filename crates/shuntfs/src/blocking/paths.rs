//! From nodes to paths.
//!
//! The key of a node is its folder's node and its name there, so a folder that moves takes with it all that lies below. A node
//! whose name is removed has no path any more; what is still open of it is reached by its open files.
//!
//! The kernel locks the folders that a name is looked up, made or removed in, but not those above them, and none for what is done to a
//! file. So the names on a path are kept where they are until the call that uses it has returned, and the table knows what it changed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shuntfs_wire::{ByteRange, Errno, LockOwner, LookupCount, NodeId, Result};

use super::filesystem::{BlockingFilesystem, Caller, DirEntry, New};
use super::name_locks::{NameLock, NameLocks, Names};
use super::path_filesystem::{PathFilesystem, Place};
use crate::args::{CopyFileRange, Fallocate, Ioctl, LockRange, LockRequest, OpSet, SetAttr, Whence};
use crate::attr::{Attr, AttrReply, Birth, Entry, Statfs};
use crate::delegation::Opened;
use crate::file_type::FileType;
use crate::init::{InitError, Offered, Wanted};
use crate::node_table::NodeTable;
use crate::open_flags::OpenFlags;
use crate::poll::{Poll, PollEvents};
use crate::trace::NodePlace;

const RENAME_EXCHANGE: u32 = 2;

type Key = (NodeId, OsString);
type NewName = New<(NodeId, OsString)>;
/// A node, or a name in a folder.
type Where<'a> = (NodeId, Option<&'a OsStr>);

/// Makes a [`BlockingFilesystem`] of a [`PathFilesystem`]: `shuntfs::serve(Blocking::new(Paths::new(fs)), ...)`.
#[derive(Debug)]
pub struct Paths<P: PathFilesystem> {
    fs: P,
    nodes: NodeTable<Key, Files<P::File>>,
    locks: NameLocks<Key>,
}

/// The open files of a node.
type Files<F> = Mutex<Vec<Weak<F>>>;

/// A path that holds until this is dropped.
struct Held<'p> {
    path: PathBuf,
    _lock: NameLock<'p, Key>,
}

/// What a node is asked about by.
enum Asked<'p, F> {
    Path(Held<'p>),
    Open(Arc<F>),
}

impl<F> Asked<'_, F> {
    fn place(&self) -> Place<'_, F> {
        match self {
            Self::Path(held) => Place::Path(&held.path),
            Self::Open(file) => Place::Open(file),
        }
    }
}

impl<P: PathFilesystem> Paths<P> {
    /// The file system to be served.
    pub fn new(fs: P) -> Self {
        let nodes = NodeTable::new((NodeId::ROOT, OsString::new()), Mutex::default());
        Self { fs, nodes, locks: NameLocks::default() }
    }

    /// The names that lead to a place, the last one first.
    fn names(&self, (node, name): Where<'_>) -> Result<Vec<Key>> {
        let mut names: Vec<Key> = name.map(|name| (node, name.to_owned())).into_iter().collect();
        self.nodes.climb(node, |key| {
            names.push(key.clone());
            key.0
        })?;
        Ok(names)
    }

    /// The paths of places, which hold until the lock is dropped; `changes` where the call moves, removes or replaces what exists.
    fn lock<const N: usize>(
        &self,
        places: [Where<'_>; N],
        changes: bool,
    ) -> Result<([PathBuf; N], NameLock<'_, Key>)> {
        self.locks.lock(|| {
            let mut names = Names { keeps: Vec::new(), changes: Vec::new() };
            let mut paths = [(); N].map(|()| PathBuf::new());
            for (place, path) in places.iter().zip(&mut paths) {
                let mut found = self.names(*place)?;
                *path = found.iter().rev().map(|(_, name)| name).collect();
                if changes {
                    names.changes.extend(found.drain(..1));
                }
                names.keeps.append(&mut found);
            }
            Ok((paths, names))
        })
    }

    fn held(&self, place: Where<'_>) -> Result<Held<'_>> {
        let ([path], lock) = self.lock([place], false)?;
        Ok(Held { path, _lock: lock })
    }

    fn node(&self, node: NodeId) -> Result<Held<'_>> {
        self.held((node, None))
    }

    fn name(&self, parent: NodeId, name: &OsStr) -> Result<Held<'_>> {
        self.held((parent, Some(name)))
    }

    /// The node's path, else an open file of it.
    fn asked(&self, node: NodeId) -> Result<Asked<'_, P::File>> {
        match self.node(node) {
            Ok(held) => Ok(Asked::Path(held)),
            Err(errno) => {
                let files = self.nodes.get(node)?;
                let open = files.lock().iter().find_map(Weak::upgrade);
                open.map(Asked::Open).ok_or(errno)
            }
        }
    }

    fn reply(&self, node: NodeId, attr: Attr) -> AttrReply {
        Attr { ino: node.get(), ..attr }.valid_for(self.fs.ttl())
    }

    /// The entry of a name that is there, at a path that holds; raises its lookup count.
    fn entry(&self, caller: &Caller, parent: NodeId, name: &OsStr, path: &Path) -> Result<Entry> {
        let attr = self.fs.getattr(caller, Place::Path(path))?;
        let (node, _) = self.nodes.enter((parent, name.to_owned()), Mutex::default)?;
        Ok(Entry::new(node, self.reply(node, attr)))
    }

    /// Makes something by `make`; its entry.
    fn make<T>(
        &self,
        caller: &Caller,
        new: &NewName,
        make: impl FnOnce(&New<PathBuf>) -> Result<T>,
    ) -> Result<(Entry, T)> {
        let (parent, name) = (new.place.0, &new.place.1);
        let Held { path, _lock } = self.name(parent, name)?;
        let new = New { place: path, mode: new.mode, umask: new.umask };
        let made = make(&new)?;
        Ok((self.entry(caller, parent, name, &new.place)?, made))
    }

    /// Removes a name by `remove`.
    fn remove(&self, parent: NodeId, name: &OsStr, remove: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let ([path], _lock) = self.lock([(parent, Some(name))], true)?;
        remove(&path)?;
        self.nodes.detach(&(parent, name.to_owned()));
        Ok(())
    }

    fn opened(&self, node: NodeId, opened: Opened<P::File>) -> Result<Opened<Arc<P::File>>> {
        let Opened { file, delegation, cache, flush } = opened;
        let file = Arc::new(file);
        let files = self.nodes.get(node)?;
        let mut files = files.lock();
        files.retain(|open| open.strong_count() > 0);
        files.push(Arc::downgrade(&file));
        Ok(Opened { file, delegation, cache, flush })
    }
}

impl<P: PathFilesystem> BlockingFilesystem for Paths<P> {
    type File = Arc<P::File>;

    // Those that need nodes have no methods here.
    const OPS: OpSet = P::OPS.difference(OpSet::EXPORT.union(OpSet::TMPFILE));

    fn init(&self, offered: &Offered) -> std::result::Result<Wanted, InitError> {
        self.fs.init(offered)
    }

    fn root_type(&self) -> FileType {
        self.fs.root_type()
    }

    fn forget(&self, node: NodeId, lookups: LookupCount) {
        self.nodes.forget(node, lookups);
    }

    fn place_of(&self, node: NodeId) -> Option<NodePlace> {
        // The table alone is asked: what a call below holds is locked elsewhere.
        let names = self.names((node, None)).ok()?;
        let path: PathBuf = names.iter().rev().map(|(_, name)| name).collect();
        Some(NodePlace::new(path.into_os_string().into_encoded_bytes()))
    }

    fn lookup(&self, caller: &Caller, parent: NodeId, name: &OsStr) -> Result<Entry> {
        let held = self.name(parent, name)?;
        self.entry(caller, parent, name, &held.path)
    }

    fn getattr(&self, caller: &Caller, node: NodeId, _: Option<&Self::File>) -> Result<AttrReply> {
        let attr = self.fs.getattr(caller, self.asked(node)?.place())?;
        Ok(self.reply(node, attr))
    }

    fn statx(&self, caller: &Caller, node: NodeId) -> Result<(AttrReply, Birth)> {
        let (attr, birth) = self.fs.statx(caller, self.asked(node)?.place())?;
        Ok((self.reply(node, attr), birth))
    }

    fn setattr(
        &self,
        caller: &Caller,
        node: NodeId,
        _: Option<&Self::File>,
        set: SetAttr,
    ) -> Result<AttrReply> {
        let asked = self.asked(node)?;
        self.fs.setattr(caller, asked.place(), set)?;
        let attr = self.fs.getattr(caller, asked.place())?;
        Ok(self.reply(node, attr))
    }

    fn readlink(&self, caller: &Caller, node: NodeId) -> Result<PathBuf> {
        self.fs.readlink(caller, &self.node(node)?.path)
    }

    fn mknod(&self, caller: &Caller, new: &NewName, rdev: u32) -> Result<Entry> {
        self.make(caller, new, |new| self.fs.mknod(caller, new, rdev)).map(|(entry, ())| entry)
    }

    fn mkdir(&self, caller: &Caller, new: &NewName) -> Result<Entry> {
        self.make(caller, new, |new| self.fs.mkdir(caller, new)).map(|(entry, ())| entry)
    }

    fn symlink(&self, caller: &Caller, parent: NodeId, name: &OsStr, target: &Path) -> Result<Entry> {
        let held = self.name(parent, name)?;
        self.fs.symlink(caller, &held.path, target)?;
        self.entry(caller, parent, name, &held.path)
    }

    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &OsStr) -> Result<Entry> {
        let ([existing, new], _lock) = self.lock([(node, None), (parent, Some(name))], false)?;
        self.fs.link(caller, &existing, &new)?;
        self.entry(caller, parent, name, &new)
    }

    fn unlink(&self, caller: &Caller, parent: NodeId, name: &OsStr) -> Result<()> {
        self.remove(parent, name, |path| self.fs.unlink(caller, path))
    }

    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &OsStr) -> Result<()> {
        self.remove(parent, name, |path| self.fs.rmdir(caller, path))
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        flags: u32,
    ) -> Result<()> {
        let ([old, new], _lock) = self.lock([(from.0, Some(from.1)), (to.0, Some(to.1))], true)?;
        self.fs.rename(caller, &old, &new, flags)?;
        let (from, to) = ((from.0, from.1.to_owned()), (to.0, to.1.to_owned()));
        if flags & RENAME_EXCHANGE == 0 {
            self.nodes.rename(&from, to);
        } else {
            self.nodes.exchange(&from, &to);
        }
        Ok(())
    }

    fn open(&self, caller: &Caller, node: NodeId, flags: OpenFlags) -> Result<Opened<Self::File>> {
        let held = self.node(node)?;
        let opened = self.fs.open(caller, &held.path, flags)?;
        self.opened(node, opened)
    }

    fn create(
        &self,
        caller: &Caller,
        new: &NewName,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened<Self::File>)> {
        let (entry, opened) = self.make(caller, new, |new| self.fs.create(caller, new, flags))?;
        let opened = self.opened(entry.node.ok_or(Errno::IO)?, opened)?;
        Ok((entry, opened))
    }

    fn read(&self, caller: &Caller, file: &Self::File, at: ByteRange) -> Result<Vec<u8>> {
        self.fs.read(caller, file, at)
    }

    fn write(&self, caller: &Caller, file: &Self::File, at: u64, data: &[u8]) -> Result<usize> {
        self.fs.write(caller, file, at, data)
    }

    fn flush(&self, caller: &Caller, file: &Self::File, owner: LockOwner) -> Result<()> {
        self.fs.flush(caller, file, owner)
    }

    fn release(&self, caller: &Caller, _: NodeId, file: &Self::File, flock_owner: Option<LockOwner>) {
        self.fs.release(caller, file, flock_owner);
    }

    fn fsync(&self, caller: &Caller, file: &Self::File, data_only: bool) -> Result<()> {
        self.fs.fsync(caller, file, data_only)
    }

    fn fallocate(&self, caller: &Caller, file: &Self::File, op: Fallocate) -> Result<()> {
        self.fs.fallocate(caller, file, op)
    }

    fn lseek(&self, caller: &Caller, file: &Self::File, offset: u64, whence: Whence) -> Result<u64> {
        self.fs.lseek(caller, file, offset, whence)
    }

    fn copy_file_range(&self, caller: &Caller, op: CopyFileRange<'_, Self::File>) -> Result<u64> {
        let CopyFileRange { from_node, from, from_offset, to_node, to, to_offset, len, flags } = op;
        let op = CopyFileRange {
            from_node,
            from: &**from,
            from_offset,
            to_node,
            to: &**to,
            to_offset,
            len,
            flags,
        };
        self.fs.copy_file_range(caller, op)
    }

    fn ioctl(&self, caller: &Caller, file: Option<&Self::File>, op: Ioctl<'_>) -> Result<(i32, Vec<u8>)> {
        match file {
            Some(file) => self.fs.ioctl(caller, Place::Open(&**file), op),
            None => self.fs.ioctl(caller, Place::Path(&self.node(op.node)?.path), op),
        }
    }

    fn getlk(&self, caller: &Caller, _: NodeId, file: &Self::File, lock: LockRequest) -> Result<LockRange> {
        self.fs.getlk(caller, file, lock)
    }

    fn setlk(&self, caller: &Caller, _: NodeId, file: &Self::File, lock: LockRequest) -> Result<()> {
        self.fs.setlk(caller, file, lock)
    }

    fn poll(&self, caller: &Caller, file: &Self::File, op: Poll) -> Result<PollEvents> {
        self.fs.poll(caller, file, op)
    }

    fn fsyncdir(&self, caller: &Caller, node: NodeId, data_only: bool) -> Result<()> {
        self.fs.fsyncdir(caller, &self.node(node)?.path, data_only)
    }

    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> Result<()> {
        self.fs.access(caller, &self.node(node)?.path, mask)
    }

    fn list(&self, caller: &Caller, node: NodeId) -> Result<Vec<DirEntry>> {
        let mut records = self.fs.list(caller, &self.node(node)?.path)?;
        for record in &mut records {
            // A node that the kernel does not know has no number yet. Zero would hide the record from some programs.
            let known = self.nodes.find(&(node, record.name.clone()));
            record.ino = known.map_or(u64::MAX, NodeId::get);
        }
        Ok(records)
    }

    fn statfs(&self, caller: &Caller, _: NodeId) -> Result<Statfs> {
        self.fs.statfs(caller)
    }

    fn getxattr(&self, caller: &Caller, node: NodeId, name: &OsStr) -> Result<Vec<u8>> {
        self.fs.getxattr(caller, &self.node(node)?.path, name)
    }

    fn listxattr(&self, caller: &Caller, node: NodeId) -> Result<Vec<OsString>> {
        self.fs.listxattr(caller, &self.node(node)?.path)
    }

    fn setxattr(&self, caller: &Caller, node: NodeId, name: &OsStr, value: &[u8], flags: u32) -> Result<()> {
        self.fs.setxattr(caller, &self.node(node)?.path, name, value, flags)
    }

    fn removexattr(&self, caller: &Caller, node: NodeId, name: &OsStr) -> Result<()> {
        self.fs.removexattr(caller, &self.node(node)?.path, name)
    }
}

#[cfg(test)]
mod test;
