//! Files shown as one, each behind a line that names it; no byte of them is copied to make it, or to read it.
//!
//! ```text
//! cargo run --release --example concat -- MNT FILE...      # then: less MNT/all
//! ```
//!
//! The one file is composed of extents: the header lines are served from memory, everything else comes from the lower
//! files, by whatever is quickest on the transport ([`Delegation::PerRange`]). A list of extents without overlaps, gaps and
//! overflows is what [`Extents`] checks when it is made.

use std::error::Error;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, Delegation, DirSink, Entry, Errno, Extents, ExtentsError,
    Filesystem, Filled, InitError, Listed, LookupCount, LowerFile, MountOptions, Name, NodeId, Offered,
    OpSet, OpenFlags, Opened, OpenedDir, RangeSource, ReadReply, Result, Session, SessionOptions, Signals,
    Statfs, Wanted,
};

const NAME: &[u8] = b"all";
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const DT_DIR: u8 = 4;
const DT_REG: u8 = 8;

/// The file system, which is made once and never changes.
#[derive(Debug)]
pub(crate) struct Concat {
    map: Arc<Extents>,
    size: u64,
    /// What is served from memory, and where it lies in the composed file.
    headers: Vec<(u64, String)>,
}

impl Concat {
    /// These files as one.
    ///
    /// # Errors
    /// Those of opening them, and of composing a file that is too long.
    pub(crate) fn new(paths: &[PathBuf]) -> std::result::Result<Self, Box<dyn Error>> {
        let mut parts = Vec::new();
        let mut headers = Vec::new();
        let mut offset = 0;
        for path in paths {
            let file = File::open(path)?;
            let len = file.metadata()?.len();
            let header = format!("== {}, {len} bytes\n", path.display());
            parts.push((RangeSource::Served, header.len() as u64));
            let lower = Arc::new(LowerFile::new(file.into()));
            if len > 0 {
                parts.push((RangeSource::Lower(lower, 0), len));
            }
            let next = offset + header.len() as u64 + len;
            headers.push((std::mem::replace(&mut offset, next), header));
        }
        let map = Extents::concat(parts)?;
        let size = map.size().ok_or(ExtentsError::Endless { offset })?;
        Ok(Self { map: Arc::new(map), size, headers })
    }

    fn attr(&self, node: NodeId) -> Result<AttrReply> {
        let attr = match node {
            NodeId::ROOT => Attr { ino: 1, mode: S_IFDIR | 0o555, nlink: 2, ..Attr::default() },
            node if node == all() => {
                Attr { ino: 2, mode: S_IFREG | 0o444, nlink: 1, size: self.size, ..Attr::default() }
            }
            _ => return Err(Errno::STALE),
        };
        Ok(AttrReply { attr, ttl: Duration::MAX })
    }
}

/// The one file's node; the root is 1.
fn all() -> NodeId {
    NodeId::new(2).expect("not zero")
}

impl Filesystem for Concat {
    type File = ();
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN;

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
        let mut wanted = Wanted::default();
        wanted.ops = Self::OPS;
        Ok(wanted)
    }

    fn forget(&self, _: NodeId, _: LookupCount) {}

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        if parent != NodeId::ROOT || name.as_bytes() != NAME {
            return Ok(Entry::negative(Duration::MAX));
        }
        Ok(Entry { node: Some(all()), ttl: Duration::MAX, attr: self.attr(all())? })
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        self.attr(node)
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        let map = Arc::clone(&self.map);
        Ok(Opened { file: (), delegation: Delegation::PerRange(map), cache: CacheHint::Keep, flush: false })
    }

    /// Called for the headers alone: every other byte has a lower file.
    async fn read<'q>(&self, _: &Cx<'_>, (): &(), at: ByteRange, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let behind = self.headers.partition_point(|(offset, _)| *offset <= at.offset);
        let (offset, header) = self.headers.get(behind.wrapping_sub(1)).ok_or(Errno::IO)?;
        let into = usize::try_from(at.offset - offset).map_err(|_| Errno::IO)?;
        let rest = header.as_bytes().get(into..).ok_or(Errno::IO)?;
        reply.copy_from_slice(&rest[..rest.len().min(at.len as usize)])
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
            eprintln!("concat: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> std::result::Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = args.next().ok_or("usage: concat MNT FILE...")?;
    let files: Vec<PathBuf> = args.map(PathBuf::from).collect();
    let signals = Signals::block()?;
    let mount = MountOptions { source: "concat".into(), read_only: true, ..MountOptions::default() };
    let concat = Arc::new(Concat::new(&files)?);
    let session = Session::mount(concat, Path::new(&path), &mount, &SessionOptions::default())?;
    session.run(&signals)?;
    println!("{}", serde_json::to_string_pretty(&session.status())?);
    Ok(())
}
