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
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, Delegation, DirSink, Entry, Errno, Extents, ExtentsError,
    FileType, Filesystem, Filled, Listed, LowerFile, MountOptions, Name, NodeId, OpSet, OpenFlags, Opened,
    OpenedDir, RangeSource, ReadReply, Result, SessionOptions,
};

const NAME: &str = "all";
/// The one file's node; the root is 1.
const ALL: NodeId = NodeId::new(2).expect("not zero");

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
            NodeId::ROOT => Attr::new(1, FileType::Directory, 0o555),
            ALL => Attr::new(2, FileType::Regular, 0o444).with_size(self.size),
            _ => return Err(Errno::STALE),
        };
        Ok(attr.valid_for(Duration::MAX))
    }
}

impl Filesystem for Concat {
    type File = ();
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN;

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        let found = name.as_bytes() == NAME.as_bytes();
        if found { Ok(Entry::new(ALL, self.attr(ALL)?)) } else { Ok(Entry::negative(Duration::MAX)) }
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        self.attr(node)
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        let map = Arc::clone(&self.map);
        Ok(Opened::new((), Delegation::PerRange(map)).with_cache(CacheHint::Keep))
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
        Ok(OpenedDir::cached(()))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        (): &(),
        cookie: u64,
        out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let folder = FileType::Directory;
        Ok(out.list(cookie, [(1, folder, "."), (1, folder, ".."), (2, FileType::Regular, NAME)]))
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut args = std::env::args_os().skip(1);
    let path = args.next().ok_or("usage: concat MNT FILE...")?;
    let files: Vec<PathBuf> = args.map(PathBuf::from).collect();
    let mount = MountOptions { source: "concat".into(), read_only: true, ..MountOptions::default() };
    let concat = Concat::new(&files)?;
    let status = shuntfs::serve(concat, Path::new(&path), &mount, &SessionOptions::default())?;
    println!("{}", serde_json::to_string_pretty(&status)?);
    Ok(())
}
