//! One file whose readers see it in capitals, while what is written goes straight to the lower file.
//!
//! ```text
//! cargo run --release --example shout -- FILE MNT      # then: echo hello >> MNT/file; cat MNT/file FILE
//! ```
//!
//! READ is answered by the file system, WRITE is delegated ([`Delegation::split`]): the library writes to the lower file
//! without asking. Opens bypass the page cache ([`CacheHint::Direct`]), because what was just written must not be read
//! back as it was written. A log whose readers may not see everything is built like this.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{
    Access, Attr, AttrReply, Backing, ByteRange, CacheHint, Cx, Delegation, DirSink, Entry, Errno,
    Filesystem, Filled, InitError, Listed, LookupCount, LowerFile, MountOptions, Name, NodeId, Offered,
    OpSet, OpenFlags, Opened, OpenedDir, ReadReply, Result, Session, SessionOptions, SetAttr, Signals,
    Statfs, Wanted,
};

const NAME: &[u8] = b"file";
const S_IFDIR: u32 = 0o040_000;
const DT_DIR: u8 = 4;
const DT_REG: u8 = 8;
const O_TRUNC: u32 = 0o1000;

/// The file system.
#[derive(Debug)]
pub(crate) struct Shout {
    lower: PathBuf,
}

impl Shout {
    /// Shows the file at `lower`.
    pub(crate) fn new(lower: PathBuf) -> Self {
        Self { lower }
    }

    /// Asked for anew each time: the lower file may be changed by others.
    fn attr(&self, node: NodeId) -> Result<AttrReply> {
        let attr = match node {
            NodeId::ROOT => Attr { ino: 1, mode: S_IFDIR | 0o755, nlink: 2, ..Attr::default() },
            node if node == file() => {
                let found = std::fs::metadata(&self.lower).map_err(|error| errno(&error))?;
                let (mode, uid, gid) = (found.mode(), found.uid(), found.gid());
                let (size, blocks) = (found.size(), found.blocks());
                Attr { ino: 2, mode, nlink: 1, uid, gid, size, blocks, ..Attr::default() }
            }
            _ => return Err(Errno::STALE),
        };
        Ok(AttrReply { attr, ttl: Duration::ZERO })
    }

    fn open_lower(&self, write: bool) -> Result<File> {
        File::options().read(true).write(write).open(&self.lower).map_err(|error| errno(&error))
    }
}

/// The one file's node; the root is 1.
fn file() -> NodeId {
    NodeId::new(2).expect("not zero")
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_lower(error.raw_os_error().unwrap_or(5))
}

impl Filesystem for Shout {
    type File = File;
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN.union(OpSet::FSYNC);

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
        let mut wanted = Wanted::default();
        wanted.ops = Self::OPS;
        Ok(wanted)
    }

    fn forget(&self, _: NodeId, _: LookupCount) {}

    /// What WRITEs are moved to; asked for once an open.
    fn lower_file(&self, _: NodeId, _: &File, _: Access) -> Result<Arc<LowerFile>> {
        Ok(Arc::new(LowerFile::new(self.open_lower(true)?.into())))
    }

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        if parent != NodeId::ROOT || name.as_bytes() != NAME {
            return Ok(Entry::negative(Duration::MAX));
        }
        Ok(Entry { node: Some(file()), ttl: Duration::MAX, attr: self.attr(file())? })
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&File>) -> Result<AttrReply> {
        self.attr(node)
    }

    async fn setattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&File>, set: SetAttr) -> Result<AttrReply> {
        if let Some(size) = set.size {
            self.open_lower(true)?.set_len(size).map_err(|error| errno(&error))?;
        }
        self.attr(node)
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, flags: OpenFlags) -> Result<Opened<File>> {
        if flags.0 & O_TRUNC != 0 {
            self.open_lower(true)?.set_len(0).map_err(|error| errno(&error))?;
        }
        let delegation = Delegation::split(Delegation::Served, Delegation::Splice(Backing::OfNode));
        Ok(Opened { file: self.open_lower(false)?, delegation, cache: CacheHint::Direct, flush: false })
    }

    async fn read<'q>(
        &self,
        _: &Cx<'_>,
        file: &File,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let mut out = reply.cursor();
        out.read_at(file, at.offset, at.len as usize)?;
        out.written_mut().make_ascii_uppercase();
        Ok(out.finish())
    }

    async fn fsync(&self, _: &Cx<'_>, file: &File, data_only: bool) -> Result<()> {
        if data_only { file.sync_data() } else { file.sync_all() }.map_err(|error| errno(&error))
    }

    async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<()>> {
        Ok(OpenedDir { dir: (), cache: true })
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        (): &(),
        cookie: u64,
        mut out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let records: [(u64, u8, &[u8]); 3] = [(1, DT_DIR, b"."), (1, DT_DIR, b".."), (2, DT_REG, NAME)];
        for (place, (ino, kind, name)) in (1..).zip(records) {
            if cookie < place && !out.push(ino, place, kind, name) {
                break;
            }
        }
        Ok(out.finish())
    }

    async fn statfs(&self, _: &Cx<'_>, _: NodeId) -> Result<Statfs> {
        Ok(Statfs { files: 2, bsize: 4096, frsize: 4096, namelen: 255, ..Statfs::default() })
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shout: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> std::result::Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(lower), Some(path)) = (args.next(), args.next()) else {
        return Err("usage: shout FILE MNT".into());
    };
    let signals = Signals::block()?;
    let mount = MountOptions { source: "shout".into(), ..MountOptions::default() };
    let shout = Arc::new(Shout::new(std::path::absolute(lower)?));
    let session = Session::mount(shout, Path::new(&path), &mount, &SessionOptions::default())?;
    session.run(&signals)?;
    println!("{}", serde_json::to_string_pretty(&session.status())?);
    Ok(())
}
