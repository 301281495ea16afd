//! Several folders shown as one, by a server that only chooses where a new file goes.
//!
//! ```text
//! cargo run --release --example union -- MNT BRANCH...
//! ```
//!
//! A name is looked for in one branch after the other; a new file goes to the branch with the most room. From then on the
//! kernel moves its bytes by itself ([`Delegation::Passthrough`]): a read or a write through the union costs what it costs
//! below. To stay short it shows the files of each folder, and no folders in them; `examples/passthrough.rs` has those.

use std::collections::HashSet;
use std::error::Error;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{
    Access, Attr, AttrReply, Backing, Create, Cx, Delegation, DirSink, Entry, Errno, FileType, Filesystem,
    InitError, Listed, LookupCount, LowerFile, MountOptions, Name, NodeId, NodeTable, Offered, OpSet,
    OpenFlags, Opened, OpenedDir, Result, SessionOptions, SetAttr, Statfs, Timestamp, Wanted,
};
use shuntfs_sys::identity::{self, Caller};
use shuntfs_sys::stat::{self, Device, Stat, Time};
use shuntfs_sys::{DirReader, OsError, attrs, names, open};

/// How long the kernel may believe what it was told. Changes made below show after this long.
const TTL: Duration = Duration::from_secs(1);

/// Chooses the branch of a new file, by its name and the branches' room in bytes.
pub(crate) type Choose = fn(&[u8], &[u64]) -> usize;

/// The file system.
#[derive(Debug)]
pub(crate) struct Union {
    branches: Vec<OwnedFd>,
    choose: Choose,
    /// Files, each held by a descriptor, so that its inode number is not given to another. The root is the first branch.
    nodes: NodeTable<Key, OwnedFd>,
}

type Key = (Device, u64);

/// An open file: its node's descriptor, and how it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    node: Arc<OwnedFd>,
    flags: OpenFlags,
}

impl Union {
    /// These folders as one; the first that has a name shows its file.
    ///
    /// # Errors
    /// Those of opening them.
    pub(crate) fn new(branches: &[PathBuf], choose: Choose) -> std::io::Result<Self> {
        let branches: Vec<_> =
            branches.iter().map(|path| Ok(open::open_folder(path)?)).collect::<std::io::Result<_>>()?;
        let first = branches.first().ok_or(std::io::ErrorKind::InvalidInput)?;
        let found = stat::stat_of(first)?;
        let nodes = NodeTable::new((found.dev, found.ino), open::duplicate(first)?);
        Ok(Self { branches, choose, nodes })
    }

    /// The branch with the most room.
    pub(crate) fn most_room(_: &[u8], room: &[u64]) -> usize {
        (0..room.len()).max_by_key(|index| (room[*index], std::cmp::Reverse(*index))).unwrap_or(0)
    }

    fn node(&self, node: NodeId) -> Result<Arc<OwnedFd>> {
        self.nodes.get(node)
    }

    /// The first branch that has the name, and its file.
    fn find(&self, name: Name<'_>) -> Result<(&OwnedFd, OwnedFd)> {
        for branch in &self.branches {
            match open::open_path_at(branch, name.as_c_str()) {
                Ok(fd) => return Ok((branch, fd)),
                Err(OsError::NOENT) => {}
                Err(error) => return Err(lower(error)),
            }
        }
        Err(Errno::NOENT)
    }

    /// The entry of a file; raises its lookup count.
    fn adopt(&self, fd: OwnedFd) -> Result<Entry> {
        let found = stat::stat_of(&fd).map_err(lower)?;
        if FileType::of_mode(found.mode) != Some(FileType::Regular) {
            return Err(Errno::NOENT);
        }
        let (node, _) = self.nodes.enter((found.dev, found.ino), || fd)?;
        Ok(Entry::new(node, attr(&found)))
    }

    fn opened(node: Arc<OwnedFd>, flags: OpenFlags) -> Opened<OpenFile> {
        let flags = flags.without(OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE);
        Opened::new(OpenFile { node, flags }, Delegation::Passthrough(Backing::OfNode))
    }

    /// Where a new file of this name goes.
    fn branch_for(&self, name: &[u8]) -> Result<&OwnedFd> {
        let room = |branch| {
            stat::filesystem_of(branch).map(|found| found.bavail.saturating_mul(found.frsize.into()))
        };
        let room: Vec<u64> = self.branches.iter().map(|branch| room(branch).unwrap_or(0)).collect();
        self.branches.get((self.choose)(name, &room)).ok_or(Errno::NOSPC)
    }
}

fn lower(error: OsError) -> Errno {
    Errno::from_lower(error.raw_os_error())
}

/// Inode numbers are the branches' own: files of two file systems may show the same one.
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
        blksize: found.blksize,
        ..Attr::default()
    };
    AttrReply { attr, ttl: TTL }
}

/// The listing of all branches: each name once, with its inode number.
pub(crate) type Listing = Vec<(u64, Box<[u8]>)>;

impl Filesystem for Union {
    type File = OpenFile;
    type Dir = Listing;

    const OPS: OpSet = OpSet::OPEN.union(OpSet::OPENDIR).union(OpSet::CREATE);

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
        Ok(Wanted { readdirplus: false, dont_mask: true, supp_group: true, ..Wanted::default() })
    }

    fn forget(&self, node: NodeId, lookups: LookupCount) {
        self.nodes.forget(node, lookups);
    }

    /// What the kernel is given, once a file; or what the library moves bytes with, where passthrough is not available.
    fn lower_file(&self, _: NodeId, file: &OpenFile, access: Access) -> Result<Arc<LowerFile>> {
        let fd = match access {
            Access::Register => open::duplicate(&*file.node),
            _ => open::reopen(&*file.node, file.flags.without(OpenFlags::APPEND).0),
        };
        fd.map(|fd| Arc::new(LowerFile::new(fd))).map_err(lower)
    }

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        match self.find(name).and_then(|(_, fd)| self.adopt(fd)) {
            Err(Errno::NOENT) => Ok(Entry::negative(TTL)),
            other => other,
        }
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&OpenFile>) -> Result<AttrReply> {
        if node == NodeId::ROOT {
            let first = self.branches.first().ok_or(Errno::IO)?;
            let found = attr(&stat::stat_of(first).map_err(lower)?);
            let own = Attr {
                ino: 1,
                mode: FileType::Directory.mode_bits() | found.attr.mode & 0o7777,
                nlink: 2,
                ..found.attr
            };
            return Ok(AttrReply { attr: own, ..found });
        }
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
        if let Some(mode) = set.mode {
            attrs::chmod(&*fd, mode).map_err(lower)?;
        }
        if let Some(size) = set.size {
            open::reopen(&*fd, OpenFlags::READ_WRITE.0)
                .and_then(|file| attrs::truncate(&file, size))
                .map_err(lower)?;
        }
        stat::stat_of(&*fd).map(|found| attr(&found)).map_err(lower)
    }

    async fn unlink(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<()> {
        let (branch, _) = self.find(name)?;
        names::unlink_at(branch, name.as_c_str()).map_err(lower)
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, flags: OpenFlags) -> Result<Opened<OpenFile>> {
        // The kernel has checked the permissions; nothing has to be opened below.
        Ok(Self::opened(self.node(node)?, flags))
    }

    /// The one choice this server makes.
    async fn create(&self, cx: &Cx<'_>, op: Create<'_>) -> Result<(Entry, Opened<OpenFile>)> {
        let (branch, flags) = match self.find(op.name) {
            // The kernel did not know of it.
            Ok((branch, _)) if !op.flags.contains(OpenFlags::EXCLUSIVE) => (branch, OpenFlags::CREATE),
            Ok(_) => return Err(Errno::EXIST),
            Err(Errno::NOENT) => {
                (self.branch_for(op.name.as_bytes())?, OpenFlags::CREATE | OpenFlags::EXCLUSIVE)
            }
            Err(errno) => return Err(errno),
        };
        let caller = Caller { uid: cx.uid(), gid: cx.gid(), group: cx.supp_group(), umask: op.umask };
        let flags = (flags | op.flags.only(OpenFlags::TRUNCATE | OpenFlags::ACCESS)).0;
        let made = || open::open_at(branch, op.name.as_c_str(), flags, op.mode);
        drop(identity::as_caller(&caller, made).map_err(lower)?);
        let entry = self.adopt(open::open_path_at(branch, op.name.as_c_str()).map_err(lower)?)?;
        let node = self.node(entry.node.ok_or(Errno::IO)?)?;
        Ok((entry, Self::opened(node, op.flags)))
    }

    async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<Listing>> {
        let (mut seen, mut listing) = (HashSet::new(), Listing::new());
        for branch in &self.branches {
            let mut reader = DirReader::new(open::reopen(branch, OpenFlags::DIRECTORY.0).map_err(lower)?);
            while reader.fill().map_err(lower)? {
                while let Some(record) = reader.peek().map_err(lower)? {
                    let name: Box<[u8]> = record.name.to_bytes().into();
                    if FileType::of_dirent(record.kind) == Some(FileType::Regular)
                        && seen.insert(name.clone())
                    {
                        listing.push((record.ino, name));
                    }
                    reader.advance().map_err(lower)?;
                }
            }
        }
        Ok(OpenedDir::new(listing))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        listing: &Listing,
        cookie: u64,
        out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        Ok(out.list(cookie, listing.iter().map(|(ino, name)| (*ino, FileType::Regular, name))))
    }

    async fn statfs(&self, _: &Cx<'_>, _: NodeId) -> Result<Statfs> {
        let first = stat::filesystem_of(self.branches.first().ok_or(Errno::IO)?).map_err(lower)?;
        let (bsize, frsize, namelen) = (first.bsize, first.frsize, first.namelen);
        let mut sum = Statfs { bsize, frsize, namelen, ..Statfs::default() };
        for branch in &self.branches {
            let found = stat::filesystem_of(branch).map_err(lower)?;
            let scale = |blocks: u64| blocks.saturating_mul(found.frsize.into()) / u64::from(frsize.max(1));
            sum.blocks += scale(found.blocks);
            sum.bfree += scale(found.bfree);
            sum.bavail += scale(found.bavail);
            sum.files += found.files;
            sum.ffree += found.ffree;
        }
        Ok(sum)
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut args = std::env::args_os().skip(1);
    let path = args.next().ok_or("usage: union MNT BRANCH...")?;
    let branches: Vec<PathBuf> = args.map(PathBuf::from).collect();
    if branches.is_empty() {
        return Err("usage: union MNT BRANCH...".into());
    }
    // Opened before the mount may cover them.
    let union = Union::new(&branches, Union::most_room)?;
    let mount = MountOptions { source: "union".into(), ..MountOptions::default() };
    let status = shuntfs::serve(union, Path::new(&path), &mount, &SessionOptions::default())?;
    println!("{}", serde_json::to_string_pretty(&status)?);
    Ok(())
}
