//! A folder shown again, whose files' bytes the kernel moves by itself.
//!
//! ```text
//! cargo run --release --example passthrough -- SRC MNT
//! ```
//!
//! A node is an `O_PATH` descriptor of the lower file. An open answers with [`Delegation::Passthrough`], and
//! the library asks for the lower file when it has to register it, or to move the bytes itself where passthrough
//! is not available. What a full mirror has beyond this (links, xattrs, locks, limits on descriptors), the
//! `shunt` command has.

use std::error::Error;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shuntfs::{
    Access, Attr, AttrReply, Backing, Create, Cx, Delegation, DirSink, Entry, Errno, FileType, Filesystem,
    Filled, InitError, Listed, LookupCount, LowerFile, Mkdir, MountOptions, Name, NodeId, NodeTable, Offered,
    OpSet, OpenFlags, Opened, OpenedDir, ReadReply, Rename, Result, SessionOptions, SetAttr, SetTime, Statfs,
    Symlink, Timestamp, Wanted,
};
use shuntfs_sys::attrs::{self, TimeSet};
use shuntfs_sys::identity::{self, Caller};
use shuntfs_sys::stat::{self, Device, Stat, Time};
use shuntfs_sys::{DirReader, OsError, data, names, open};

/// How long the kernel may believe what it was told. Changes made below show after this long.
const TTL: Duration = Duration::from_secs(1);

/// A mirror of one folder.
#[derive(Debug)]
pub(crate) struct Mirror {
    nodes: NodeTable<Key, OwnedFd>,
}

/// What a lower file is, as long as a descriptor keeps its inode number from being reused.
type Key = (Device, u64);

/// An open file: its node's descriptor, and how it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    node: Arc<OwnedFd>,
    flags: OpenFlags,
}

impl Mirror {
    /// A mirror of the folder at `source`.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn new(source: &Path) -> std::io::Result<Self> {
        let root = open::open_folder(source)?;
        let found = stat::stat_of(&root)?;
        Ok(Self { nodes: NodeTable::new((found.dev, found.ino), root) })
    }

    fn node(&self, node: NodeId) -> Result<Arc<OwnedFd>> {
        self.nodes.get(node)
    }

    /// The entry of a name that is there; raises the lookup count.
    fn entry(&self, parent: &OwnedFd, name: &CStr) -> Result<Entry> {
        self.adopt(open::open_path_at(parent, name).map_err(lower)?)
    }

    fn adopt(&self, fd: OwnedFd) -> Result<Entry> {
        let found = stat::stat_of(&fd).map_err(lower)?;
        let (node, _) = self.nodes.enter((found.dev, found.ino), || fd)?;
        Ok(Entry::new(node, attr(&found)))
    }

    fn opened(&self, node: Arc<OwnedFd>, flags: OpenFlags) -> Opened<OpenFile> {
        // The library keeps one registration a node, and asks for the lower file only when it needs it.
        let flags = flags.without(OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE);
        Opened::new(OpenFile { node, flags }, Delegation::Passthrough(Backing::OfNode))
    }
}

fn lower(error: OsError) -> Errno {
    Errno::from_lower(error.raw_os_error())
}

fn attr(found: &Stat) -> AttrReply {
    let time = |time: Time| Timestamp { secs: time.secs, nanos: time.nanos };
    let attr = Attr {
        ino: found.ino,
        size: found.size,
        blocks: found.blocks,
        atime: time(found.atime),
        mtime: time(found.mtime),
        ctime: time(found.ctime),
        mode: found.mode,
        nlink: found.nlink,
        uid: found.uid,
        gid: found.gid,
        rdev: stat::encode_dev(found.rdev.major, found.rdev.minor),
        blksize: found.blksize,
    };
    AttrReply { attr, ttl: TTL }
}

/// Does `work` as whoever asked, so that what it makes belongs to them.
fn as_caller<R>(cx: &Cx<'_>, umask: u32, work: impl FnOnce() -> shuntfs_sys::Result<R>) -> Result<R> {
    let caller = Caller { uid: cx.uid(), gid: cx.gid(), group: cx.supp_group(), umask };
    identity::as_caller(&caller, work).map_err(lower)
}

impl Filesystem for Mirror {
    type File = OpenFile;
    type Dir = Mutex<DirReader>;

    const OPS: OpSet = OpSet::OPEN.union(OpSet::OPENDIR).union(OpSet::CREATE).union(OpSet::FSYNC);

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
        Ok(Wanted { readdirplus: false, dont_mask: true, supp_group: true, ..Wanted::default() })
    }

    fn forget(&self, node: NodeId, lookups: LookupCount) {
        self.nodes.forget(node, lookups);
    }

    fn lower_file(&self, _: NodeId, file: &OpenFile, access: Access) -> Result<Arc<LowerFile>> {
        let fd = match access {
            Access::Register => open::duplicate(&*file.node),
            // WRITE says where to write; a descriptor that appends would not listen.
            _ => open::reopen(&*file.node, file.flags.without(OpenFlags::APPEND).0),
        };
        fd.map(|fd| Arc::new(LowerFile::new(fd))).map_err(lower)
    }

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        match self.entry(&*self.node(parent)?, name.as_c_str()) {
            Err(Errno::NOENT) => Ok(Entry::negative(TTL)),
            other => other,
        }
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&OpenFile>) -> Result<AttrReply> {
        stat::stat_of(&*self.node(node)?).map(|found| attr(&found)).map_err(lower)
    }

    async fn setattr(
        &self,
        _: &Cx<'_>,
        node: NodeId,
        _: Option<&OpenFile>,
        set: SetAttr,
    ) -> Result<AttrReply> {
        let fd = self.node(node)?;
        if set.uid.is_some() || set.gid.is_some() {
            attrs::chown(&*fd, set.uid, set.gid).map_err(lower)?;
        }
        if let Some(mode) = set.mode {
            identity::with_fsetid(|| attrs::chmod(&*fd, mode)).map_err(lower)?;
        }
        if let Some(size) = set.size {
            open::reopen(&*fd, OpenFlags::READ_WRITE.0)
                .and_then(|file| attrs::truncate(&file, size))
                .map_err(lower)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let time = |time| match time {
                None => TimeSet::Omit,
                Some(SetTime::Now) => TimeSet::Now,
                Some(SetTime::At(time)) => TimeSet::At(Time { secs: time.secs, nanos: time.nanos }),
            };
            attrs::set_times(&*fd, time(set.atime), time(set.mtime)).map_err(lower)?;
        }
        stat::stat_of(&*fd).map(|found| attr(&found)).map_err(lower)
    }

    async fn readlink<'q>(&self, _: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let fd = self.node(node)?;
        let mut out = reply.cursor();
        out.with(out.left(), |room| names::readlink_of(&*fd, room).map_err(lower))?;
        Ok(out.finish())
    }

    async fn mkdir(&self, cx: &Cx<'_>, op: Mkdir<'_>) -> Result<Entry> {
        let parent = self.node(op.parent)?;
        as_caller(cx, op.umask, || names::mkdir_at(&*parent, op.name.as_c_str(), op.mode))?;
        self.entry(&parent, op.name.as_c_str())
    }

    async fn symlink(&self, cx: &Cx<'_>, op: Symlink<'_>) -> Result<Entry> {
        let parent = self.node(op.parent)?;
        as_caller(cx, 0, || names::symlink_at(op.target, &*parent, op.name.as_c_str()))?;
        self.entry(&parent, op.name.as_c_str())
    }

    async fn unlink(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        names::unlink_at(&*self.node(parent)?, name.as_c_str()).map_err(lower)
    }

    async fn rmdir(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        names::rmdir_at(&*self.node(parent)?, name.as_c_str()).map_err(lower)
    }

    async fn rename(&self, _: &Cx<'_>, op: Rename<'_>) -> Result<()> {
        let (from, to) = (self.node(op.parent)?, self.node(op.new_parent)?);
        names::rename_at(&*from, op.name.as_c_str(), &*to, op.new_name.as_c_str(), op.flags).map_err(lower)
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, flags: OpenFlags) -> Result<Opened<OpenFile>> {
        // The kernel has checked the permissions (`default_permissions`); nothing has to be opened below yet.
        Ok(self.opened(self.node(node)?, flags))
    }

    async fn create(&self, cx: &Cx<'_>, op: Create<'_>) -> Result<(Entry, Opened<OpenFile>)> {
        let parent = self.node(op.parent)?;
        let kept = OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE | OpenFlags::ACCESS;
        let flags = (op.flags.only(kept) | OpenFlags::CREATE).0;
        let made = as_caller(cx, op.umask, || open::open_at(&*parent, op.name.as_c_str(), flags, op.mode))?;
        drop(made);
        let entry = self.entry(&parent, op.name.as_c_str())?;
        let node = self.node(entry.node.ok_or(Errno::IO)?)?;
        Ok((entry, self.opened(node, op.flags)))
    }

    async fn fsync(&self, _: &Cx<'_>, file: &OpenFile, data_only: bool) -> Result<()> {
        let file = open::reopen(&*file.node, file.flags.only(OpenFlags::ACCESS).0).map_err(lower)?;
        if data_only { data::sync_data(&file) } else { data::sync_all(&file) }.map_err(lower)
    }

    async fn opendir(&self, _: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<OpenedDir<Self::Dir>> {
        let fd = open::reopen(&*self.node(node)?, OpenFlags::DIRECTORY.0).map_err(lower)?;
        Ok(OpenedDir::new(Mutex::new(DirReader::new(fd))))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        dir: &Self::Dir,
        cookie: u64,
        mut out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let mut reader = dir.lock().unwrap_or_else(PoisonError::into_inner);
        reader.seek(cookie).map_err(lower)?;
        loop {
            let Some(record) = reader.peek().map_err(lower)? else {
                if reader.fill().map_err(lower)? {
                    continue;
                }
                return Ok(out.finish());
            };
            let kind = FileType::of_dirent(record.kind);
            if !out.push(record.ino, record.next, kind, record.name.to_bytes()) {
                return Ok(out.finish());
            }
            reader.advance().map_err(lower)?;
        }
    }

    async fn statfs(&self, _: &Cx<'_>, node: NodeId) -> Result<Statfs> {
        let found = stat::filesystem_of(&*self.node(node)?).map_err(lower)?;
        Ok(Statfs {
            blocks: found.blocks,
            bfree: found.bfree,
            bavail: found.bavail,
            files: found.files,
            ffree: found.ffree,
            bsize: found.bsize,
            namelen: found.namelen,
            frsize: found.frsize,
        })
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut args = std::env::args_os().skip(1);
    let (Some(source), Some(path)) = (args.next(), args.next()) else {
        return Err("usage: passthrough SRC MNT".into());
    };
    // Opened before the mount may cover it.
    let mirror = Mirror::new(Path::new(&source))?;
    let mount = MountOptions { source: source.to_string_lossy().into_owned(), ..MountOptions::default() };
    let status = shuntfs::serve(mirror, Path::new(&path), &mount, &SessionOptions::default())?;
    println!("{}", serde_json::to_string_pretty(&status)?);
    Ok(())
}
