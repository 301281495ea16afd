//! From nodes to paths.
//!
//! The key of a node is its folder's node and its name there, so a folder that moves takes with it all that lies below. A node
//! whose name is removed has no path any more; what is still open of it is reached by its open files.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shuntfs_wire::{ByteRange, Errno, LockOwner, LookupCount, NodeId, Result};

use super::filesystem::{BlockingFilesystem, Caller, DirEntry, New};
use super::path_filesystem::{PathFilesystem, Place};
use crate::args::{CopyFileRange, Fallocate, Ioctl, LockRange, LockRequest, OpSet, SetAttr, Whence};
use crate::attr::{Attr, AttrReply, Birth, Entry, Statfs};
use crate::delegation::Opened;
use crate::file_type::FileType;
use crate::init::{InitError, Offered, Wanted};
use crate::node_table::NodeTable;
use crate::open_flags::OpenFlags;
use crate::poll::{Poll, PollEvents};

const RENAME_EXCHANGE: u32 = 2;

type Key = (NodeId, OsString);
type NewName = New<(NodeId, OsString)>;

/// Makes a [`BlockingFilesystem`] of a [`PathFilesystem`]: `shuntfs::serve(Blocking::new(Paths::new(fs)), ...)`.
#[derive(Debug)]
pub struct Paths<P: PathFilesystem> {
    fs: P,
    nodes: NodeTable<Key, Files<P::File>>,
}

/// The open files of a node.
type Files<F> = Mutex<Vec<Weak<F>>>;

/// What a node is asked about by.
enum Held<F> {
    Path(PathBuf),
    Open(Arc<F>),
}

impl<F> Held<F> {
    fn place(&self) -> Place<'_, F> {
        match self {
            Self::Path(path) => Place::Path(path),
            Self::Open(file) => Place::Open(file),
        }
    }
}

impl<P: PathFilesystem> Paths<P> {
    /// The file system to be served.
    pub fn new(fs: P) -> Self {
        Self { fs, nodes: NodeTable::new((NodeId::ROOT, OsString::new()), Mutex::default()) }
    }

    fn path(&self, node: NodeId) -> Result<PathBuf> {
        let mut names = Vec::new();
        self.nodes.climb(node, |(parent, name)| {
            names.push(name.clone());
            *parent
        })?;
        Ok(names.iter().rev().collect())
    }

    fn path_of(&self, parent: NodeId, name: &OsStr) -> Result<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    /// The node's path, else an open file of it.
    fn held(&self, node: NodeId) -> Result<Held<P::File>> {
        match self.path(node) {
            Ok(path) => Ok(Held::Path(path)),
            Err(errno) => {
                let files = self.nodes.get(node)?;
                let open = files.lock().iter().find_map(Weak::upgrade);
                open.map(Held::Open).ok_or(errno)
            }
        }
    }

    fn reply(&self, node: NodeId, attr: Attr) -> AttrReply {
        Attr { ino: node.get(), ..attr }.valid_for(self.fs.ttl())
    }

    /// The entry of a name that is there; raises its lookup count.
    fn entry(&self, caller: &Caller, parent: NodeId, name: &OsStr) -> Result<Entry> {
        let path = self.path_of(parent, name)?;
        let attr = self.fs.getattr(caller, Place::Path(&path))?;
        let (node, _) = self.nodes.enter((parent, name.to_owned()), Mutex::default)?;
        Ok(Entry::new(node, self.reply(node, attr)))
    }

    fn by_path(&self, new: &NewName) -> Result<New<PathBuf>> {
        let place = self.path_of(new.place.0, &new.place.1)?;
        Ok(New { place, mode: new.mode, umask: new.umask })
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

    fn lookup(&self, caller: &Caller, parent: NodeId, name: &OsStr) -> Result<Entry> {
        self.entry(caller, parent, name)
    }

    fn getattr(&self, caller: &Caller, node: NodeId, _: Option<&Self::File>) -> Result<AttrReply> {
        let attr = self.fs.getattr(caller, self.held(node)?.place())?;
        Ok(self.reply(node, attr))
    }

    fn statx(&self, caller: &Caller, node: NodeId) -> Result<(AttrReply, Birth)> {
        let (attr, birth) = self.fs.statx(caller, self.held(node)?.place())?;
        Ok((self.reply(node, attr), birth))
    }

    fn setattr(
        &self,
        caller: &Caller,
        node: NodeId,
        _: Option<&Self::File>,
        set: SetAttr,
    ) -> Result<AttrReply> {
        let held = self.held(node)?;
        self.fs.setattr(caller, held.place(), set)?;
        let attr = self.fs.getattr(caller, held.place())?;
        Ok(self.reply(node, attr))
    }

    fn readlink(&self, caller: &Caller, node: NodeId) -> Result<PathBuf> {
        self.fs.readlink(caller, &self.path(node)?)
    }

    fn mknod(&self, caller: &Caller, new: &NewName, rdev: u32) -> Result<Entry> {
        self.fs.mknod(caller, &self.by_path(new)?, rdev)?;
        self.entry(caller, new.place.0, &new.place.1)
    }

    fn mkdir(&self, caller: &Caller, new: &NewName) -> Result<Entry> {
        self.fs.mkdir(caller, &self.by_path(new)?)?;
        self.entry(caller, new.place.0, &new.place.1)
    }

    fn symlink(&self, caller: &Caller, parent: NodeId, name: &OsStr, target: &Path) -> Result<Entry> {
        self.fs.symlink(caller, &self.path_of(parent, name)?, target)?;
        self.entry(caller, parent, name)
    }

    fn link(&self, caller: &Caller, node: NodeId, parent: NodeId, name: &OsStr) -> Result<Entry> {
        self.fs.link(caller, &self.path(node)?, &self.path_of(parent, name)?)?;
        self.entry(caller, parent, name)
    }

    fn unlink(&self, caller: &Caller, parent: NodeId, name: &OsStr) -> Result<()> {
        self.fs.unlink(caller, &self.path_of(parent, name)?)?;
        self.nodes.detach(&(parent, name.to_owned()));
        Ok(())
    }

    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &OsStr) -> Result<()> {
        self.fs.rmdir(caller, &self.path_of(parent, name)?)?;
        self.nodes.detach(&(parent, name.to_owned()));
        Ok(())
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        flags: u32,
    ) -> Result<()> {
        self.fs.rename(caller, &self.path_of(from.0, from.1)?, &self.path_of(to.0, to.1)?, flags)?;
        let (from, to) = ((from.0, from.1.to_owned()), (to.0, to.1.to_owned()));
        if flags & RENAME_EXCHANGE == 0 {
            self.nodes.rename(&from, to);
        } else {
            self.nodes.exchange(&from, &to);
        }
        Ok(())
    }

    fn open(&self, caller: &Caller, node: NodeId, flags: OpenFlags) -> Result<Opened<Self::File>> {
        let opened = self.fs.open(caller, &self.path(node)?, flags)?;
        self.opened(node, opened)
    }

    fn create(
        &self,
        caller: &Caller,
        new: &NewName,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened<Self::File>)> {
        let opened = self.fs.create(caller, &self.by_path(new)?, flags)?;
        let entry = self.entry(caller, new.place.0, &new.place.1)?;
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
            None => self.fs.ioctl(caller, Place::Path(&self.path(op.node)?), op),
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
        self.fs.fsyncdir(caller, &self.path(node)?, data_only)
    }

    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> Result<()> {
        self.fs.access(caller, &self.path(node)?, mask)
    }

    fn list(&self, caller: &Caller, node: NodeId) -> Result<Vec<DirEntry>> {
        let mut records = self.fs.list(caller, &self.path(node)?)?;
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
        self.fs.getxattr(caller, &self.path(node)?, name)
    }

    fn listxattr(&self, caller: &Caller, node: NodeId) -> Result<Vec<OsString>> {
        self.fs.listxattr(caller, &self.path(node)?)
    }

    fn setxattr(&self, caller: &Caller, node: NodeId, name: &OsStr, value: &[u8], flags: u32) -> Result<()> {
        self.fs.setxattr(caller, &self.path(node)?, name, value, flags)
    }

    fn removexattr(&self, caller: &Caller, node: NodeId, name: &OsStr) -> Result<()> {
        self.fs.removexattr(caller, &self.path(node)?, name)
    }
}
