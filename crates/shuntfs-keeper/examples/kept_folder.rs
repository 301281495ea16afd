//! A folder shown again, whose server may die: files stay open, what is in passthrough stays there, and whoever makes, moves or removes a
//! name does not see it.
//!
//! ```text
//! cargo run --example kept_folder -- MNT SRC [device|cloned] [CRASHES]     # then: kill -9 the server, as often as you like
//! ```
//!
//! A node is an `O_PATH` descriptor of the lower file. The table of descriptors is the keeper's, too, so they stay open when the server dies;
//! which node each of them is, and how often the kernel has looked that up, is in [`KeptNodes`]. An open file is its node and its flags, which
//! the library keeps beside its own notes ([`Surviving::keep_file`]); an open folder is a descriptor.
//!
//! More than CRASHES servers (5 by default) that die within a minute are too many: the mount is given up. Ctrl-C ends it.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use shuntfs::takeover::{
    FileIdentity, KeptMount, KeptNode, KeptNodes, KeptOpen, LeftNode, LeftNodes, LeftOpen, NodePlace,
    NotTaken, Surviving,
};
use shuntfs::{
    Access, Attr, AttrReply, Backing, Create, Cx, Delegation, DirSink, Entry, Errno, FileType, Filesystem,
    Filled, InitError, Listed, LookupCount, LowerFile, Mkdir, MountOptions, Name, NodeId, Offered, OpSet,
    OpenFlags, Opened, OpenedDir, ReadReply, Rename, Result, SessionOptions, SetAttr, SetTime, Statfs,
    Symlink, Timestamp, Transport, Wanted,
};
use shuntfs_keeper::{Limits, Seat, keep};
use shuntfs_sys::attrs::{self, TimeSet};
use shuntfs_sys::identity::{self, Caller};
use shuntfs_sys::stat::{self, Stat, Time};
use shuntfs_sys::{DirReader, OsError, data, names, open};

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

/// Nothing may be believed for any time, so that each call comes to the server.
const TTL: Duration = Duration::ZERO;

/// A mirror of one folder.
#[derive(Debug)]
struct Mirror {
    root: OwnedFd,
    kept: OnceLock<KeptNodes>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<NodeId, Arc<Node>>,
    by_identity: HashMap<FileIdentity, NodeId>,
    last: u64,
}

/// A node other than the root.
#[derive(Debug)]
struct Node {
    file: OwnedFd,
    identity: FileIdentity,
    /// Taken when the kernel has forgotten it.
    place: Mutex<Option<NodePlace>>,
}

/// An open file: its node, and how it was opened.
#[derive(Debug)]
struct OpenFile {
    node: Arc<Node>,
    flags: OpenFlags,
}

/// An open folder, and what its descriptor leads to.
#[derive(Debug)]
struct OpenDir {
    reader: Mutex<DirReader>,
    /// The reader's, once more: it is kept under this number.
    file: OwnedFd,
    identity: FileIdentity,
}

/// A descriptor of a node, or of the root.
enum Lower<'m> {
    Root(BorrowedFd<'m>),
    Node(Arc<Node>),
}

impl AsFd for Lower<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(root) => *root,
            Self::Node(node) => node.file.as_fd(),
        }
    }
}

impl Mirror {
    fn new(root: OwnedFd) -> Self {
        let table = Table { last: NodeId::ROOT.get(), ..Table::default() };
        Self { root, kept: OnceLock::new(), table: Mutex::new(table) }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> Result<&KeptNodes> {
        self.kept.get().ok_or(Errno::IO)
    }

    fn node(&self, node: NodeId) -> Result<Arc<Node>> {
        self.table().by_number.get(&node).map(Arc::clone).ok_or(Errno::STALE)
    }

    fn lower(&self, node: NodeId) -> Result<Lower<'_>> {
        if node == NodeId::ROOT {
            Ok(Lower::Root(self.root.as_fd()))
        } else {
            self.node(node).map(Lower::Node)
        }
    }

    /// The entry of a name that is there; counts a lookup.
    fn entry(&self, parent: &Lower<'_>, name: &CStr) -> Result<Entry> {
        let file = open::open_path_at(parent, name).map_err(lower)?;
        let found = stat::stat_of(&file).map_err(lower)?;
        let identity = FileIdentity::of(&file).map_err(lower)?;
        let node = self.look_up(file, identity)?;
        Ok(Entry::new(node, attr(&found)))
    }

    fn look_up(&self, file: OwnedFd, identity: FileIdentity) -> Result<NodeId> {
        let kept = self.kept()?;
        let mut table = self.table();
        if let Some(number) = table.by_identity.get(&identity).copied() {
            let node = table.by_number.get(&number).ok_or(Errno::IO)?;
            let place = node.place.lock().unwrap_or_else(PoisonError::into_inner);
            kept.raise(place.as_ref().ok_or(Errno::IO)?, LookupCount(1));
            return Ok(number);
        }
        table.last += 1;
        let number = NodeId::new(table.last).ok_or(Errno::NFILE)?;
        let place =
            kept.keep(&KeptNode { node: number, file: Some((file.as_fd(), identity)), words: [0; 8] })?;
        table.insert(number, Node { file, identity, place: Mutex::new(Some(place)) });
        Ok(number)
    }

    fn opened(node: Arc<Node>, flags: OpenFlags) -> Opened<OpenFile> {
        let flags = flags.without(OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE);
        Opened::new(OpenFile { node, flags }, DELEGATION)
    }
}

const DELEGATION: Delegation = Delegation::Passthrough(Backing::OfNode);

impl Table {
    fn insert(&mut self, number: NodeId, node: Node) {
        self.last = self.last.max(number.get());
        self.by_identity.insert(node.identity, number);
        self.by_number.insert(number, Arc::new(node));
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

/// What a change comes to. Where a server had begun it and died, `done` is how it fails that was done already.
fn once(cx: &Cx<'_>, done: Errno, outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(errno) if errno == done && cx.is_begun() => Ok(()),
        outcome => outcome,
    }
}

impl Filesystem for Mirror {
    type File = OpenFile;
    type Dir = OpenDir;

    const OPS: OpSet =
        OpSet::OPEN.union(OpSet::OPENDIR).union(OpSet::CREATE).union(OpSet::FSYNC).union(OpSet::RENAME2);

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
        Ok(Wanted { readdirplus: false, dont_mask: true, supp_group: true, ..Wanted::default() })
    }

    fn forget(&self, number: NodeId, lookups: LookupCount) {
        let (Ok(kept), mut table) = (self.kept(), self.table()) else { return };
        let Some(node) = table.by_number.get(&number).map(Arc::clone) else { return };
        let mut place = node.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|place| kept.lower(place, lookups) == LookupCount(0)) {
            // Before the descriptor is closed, which it is when the last open file of the node is.
            place.take().into_iter().for_each(|place| kept.let_go(place));
            table.by_number.remove(&number);
            table.by_identity.remove(&node.identity);
        }
    }

    fn lower_file(&self, _: NodeId, file: &OpenFile, access: Access) -> Result<Arc<LowerFile>> {
        let fd = match access {
            Access::Register => open::duplicate(&file.node.file),
            // WRITE says where to write; a descriptor that appends would not listen.
            _ => open::reopen(&file.node.file, file.flags.without(OpenFlags::APPEND).0),
        };
        fd.map(|fd| Arc::new(LowerFile::new(fd))).map_err(lower)
    }

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        match self.entry(&self.lower(parent)?, name.as_c_str()) {
            Err(Errno::NOENT) => Ok(Entry::negative(TTL)),
            other => other,
        }
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&OpenFile>) -> Result<AttrReply> {
        stat::stat_of(&self.lower(node)?).map(|found| attr(&found)).map_err(lower)
    }

    async fn setattr(
        &self,
        _: &Cx<'_>,
        node: NodeId,
        _: Option<&OpenFile>,
        set: SetAttr,
    ) -> Result<AttrReply> {
        let fd = self.lower(node)?;
        if set.uid.is_some() || set.gid.is_some() {
            attrs::chown(&fd, set.uid, set.gid).map_err(lower)?;
        }
        if let Some(mode) = set.mode {
            identity::with_fsetid(|| attrs::chmod(&fd, mode)).map_err(lower)?;
        }
        if let Some(size) = set.size {
            open::reopen(&fd, OpenFlags::READ_WRITE.0)
                .and_then(|file| attrs::truncate(&file, size))
                .map_err(lower)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let time = |time| match time {
                None => TimeSet::Omit,
                Some(SetTime::Now) => TimeSet::Now,
                Some(SetTime::At(time)) => TimeSet::At(Time { secs: time.secs, nanos: time.nanos }),
            };
            attrs::set_times(&fd, time(set.atime), time(set.mtime)).map_err(lower)?;
        }
        stat::stat_of(&fd).map(|found| attr(&found)).map_err(lower)
    }

    async fn readlink<'q>(&self, _: &Cx<'_>, node: NodeId, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let fd = self.lower(node)?;
        let mut out = reply.cursor();
        out.with(out.left(), |room| names::readlink_of(&fd, room).map_err(lower))?;
        Ok(out.finish())
    }

    async fn mkdir(&self, cx: &Cx<'_>, op: Mkdir<'_>) -> Result<Entry> {
        let parent = self.lower(op.parent)?;
        let made = as_caller(cx, op.umask, || names::mkdir_at(&parent, op.name.as_c_str(), op.mode));
        once(cx, Errno::EXIST, made)?;
        self.entry(&parent, op.name.as_c_str())
    }

    async fn symlink(&self, cx: &Cx<'_>, op: Symlink<'_>) -> Result<Entry> {
        let parent = self.lower(op.parent)?;
        let made = as_caller(cx, 0, || names::symlink_at(op.target, &parent, op.name.as_c_str()));
        once(cx, Errno::EXIST, made)?;
        self.entry(&parent, op.name.as_c_str())
    }

    async fn unlink(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        let removed = names::unlink_at(&self.lower(parent)?, name.as_c_str()).map_err(lower);
        once(cx, Errno::NOENT, removed)
    }

    async fn rmdir(&self, cx: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        let removed = names::rmdir_at(&self.lower(parent)?, name.as_c_str()).map_err(lower);
        once(cx, Errno::NOENT, removed)
    }

    async fn rename(&self, cx: &Cx<'_>, op: Rename<'_>) -> Result<()> {
        let (from, to) = (self.lower(op.parent)?, self.lower(op.new_parent)?);
        let (name, new_name) = (op.name.as_c_str(), op.new_name.as_c_str());
        if op.flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 {
            return Err(Errno::INVAL);
        }
        if op.flags & RENAME_EXCHANGE != 0 {
            // Once more would undo it, so it is noted which of them has which name.
            let inode = |folder, name| stat::stat_at(folder, name).map(|stat| stat.ino).map_err(lower);
            let now = [inode(&from, name)?, inode(&to, new_name)?];
            match cx.begun_note() {
                Some([one, other]) if now == [other, one] && one != other => return Ok(()),
                Some(_) => {}
                None => cx.note_begun(now),
            }
        }
        let moved = names::rename_at(&from, name, &to, new_name, op.flags).map_err(lower);
        once(cx, Errno::NOENT, moved)?;
        // It is only done if it arrived.
        stat::stat_at(&to, new_name).map(drop).map_err(lower)
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, flags: OpenFlags) -> Result<Opened<OpenFile>> {
        // The kernel has checked the permissions (`default_permissions`); nothing has to be opened below yet.
        Ok(Self::opened(self.node(node)?, flags))
    }

    async fn create(&self, cx: &Cx<'_>, op: Create<'_>) -> Result<(Entry, Opened<OpenFile>)> {
        let parent = self.lower(op.parent)?;
        let kept = OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE | OpenFlags::ACCESS;
        let mut flags = op.flags.only(kept) | OpenFlags::CREATE;
        if cx.is_begun() {
            // What exists was made by this request: nobody else could have.
            flags = flags.without(OpenFlags::EXCLUSIVE);
        }
        let made = as_caller(cx, op.umask, || open::open_at(&parent, op.name.as_c_str(), flags.0, op.mode))?;
        drop(made);
        let entry = self.entry(&parent, op.name.as_c_str())?;
        let node = self.node(entry.node.ok_or(Errno::IO)?)?;
        Ok((entry, Self::opened(node, op.flags)))
    }

    async fn fsync(&self, _: &Cx<'_>, file: &OpenFile, data_only: bool) -> Result<()> {
        let file = open::reopen(&file.node.file, file.flags.only(OpenFlags::ACCESS).0).map_err(lower)?;
        if data_only { data::sync_data(&file) } else { data::sync_all(&file) }.map_err(lower)
    }

    async fn opendir(&self, _: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<OpenedDir<OpenDir>> {
        let file = open::reopen(&self.lower(node)?, OpenFlags::DIRECTORY.0).map_err(lower)?;
        OpenDir::of(file).map(OpenedDir::new).map_err(lower)
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        dir: &OpenDir,
        cookie: u64,
        mut out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let mut reader = dir.reader.lock().unwrap_or_else(PoisonError::into_inner);
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
        let found = stat::filesystem_of(&self.lower(node)?).map_err(lower)?;
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

impl OpenDir {
    fn of(file: OwnedFd) -> shuntfs_sys::Result<Self> {
        let identity = FileIdentity::of(&file)?;
        // Both share a position, which each listing sets.
        let reader = Mutex::new(DirReader::new(open::duplicate(&file)?));
        Ok(Self { reader, file, identity })
    }
}

impl Surviving for Mirror {
    fn take_nodes(&self, nodes: KeptNodes, left: LeftNodes) -> std::result::Result<(), NotTaken> {
        let mut table = self.table();
        for left in left {
            let LeftNode { place, node, file, .. } = left?;
            let file = file.ok_or("a node has no descriptor")?;
            let identity = FileIdentity::of(&file)?;
            if table.by_number.contains_key(&node) || table.by_identity.contains_key(&identity) {
                return Err("a node is there twice".into());
            }
            table.insert(node, Node { file, identity, place: Mutex::new(Some(place)) });
        }
        self.kept.set(nodes).map_err(|_| "it has nodes already".into())
    }

    fn keep_file<'f>(&self, file: &'f OpenFile) -> KeptOpen<'f> {
        KeptOpen { file: None, words: [file.flags.0.into(), 0] }
    }

    fn take_file(
        &self,
        node: NodeId,
        left: LeftOpen,
    ) -> std::result::Result<Option<(OpenFile, Delegation)>, NotTaken> {
        let flags = OpenFlags(u32::try_from(left.words[0])?);
        Ok(self.node(node).ok().map(|node| (OpenFile { node, flags }, DELEGATION)))
    }

    fn keep_dir<'f>(&self, dir: &'f OpenDir) -> KeptOpen<'f> {
        KeptOpen { file: Some((dir.file.as_fd(), dir.identity)), words: [0; 2] }
    }

    fn take_dir(&self, _: NodeId, left: LeftOpen) -> std::result::Result<Option<OpenDir>, NotTaken> {
        Ok(Some(OpenDir::of(left.file.ok_or("a folder has no descriptor")?)?))
    }
}

fn run() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(source)) = (arguments.next(), arguments.next()) else {
        return Err("usage: kept_folder MNT SRC [device|cloned] [CRASHES]".into());
    };
    let transport: Transport = arguments.next().as_deref().unwrap_or("auto").parse()?;
    let mut limits = Limits::default();
    if let Some(crashes) = arguments.next() {
        limits.crashes = crashes.parse()?;
    }
    let options = SessionOptions { transport, ..SessionOptions::default() };
    // Opened before the mount may cover it, and by the keeper: each server has a duplicate.
    let root = open::open_folder(Path::new(&source))?;
    let mount = MountOptions { source, ..MountOptions::default() };
    let mount = KeptMount::mount(Path::new(&path), &mount, FileType::Directory)?;
    let serve = |seat: &Seat<'_>| -> std::result::Result<(), Box<dyn std::error::Error>> {
        Ok(seat.serve_surviving(Mirror::new(open::duplicate(&root)?), &options)?)
    };
    keep(mount, &limits, serve)?;
    Ok(())
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kept_folder: {error}");
            ExitCode::FAILURE
        }
    }
}
