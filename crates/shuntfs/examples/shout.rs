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
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{
    Access, Attr, AttrReply, Backing, ByteRange, CacheHint, Cx, Delegation, DirSink, Entry, Errno, FileType,
    Filesystem, Filled, Listed, LowerFile, MountOptions, Name, NodeId, OpSet, OpenFlags, Opened, OpenedDir,
    ReadReply, Result, SessionOptions, SetAttr,
};

const NAME: &str = "file";
/// The one file's node; the root is 1.
const FILE: NodeId = NodeId::new(2).expect("not zero");

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
            NodeId::ROOT => Attr::new(1, FileType::Directory, 0o755),
            FILE => Attr { ino: 2, nlink: 1, ..std::fs::metadata(&self.lower)?.into() },
            _ => return Err(Errno::STALE),
        };
        Ok(attr.valid_for(Duration::ZERO))
    }

    fn open_lower(&self, write: bool) -> Result<File> {
        Ok(File::options().read(true).write(write).open(&self.lower)?)
    }
}

impl Filesystem for Shout {
    type File = File;
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN.union(OpSet::FSYNC);

    /// What WRITEs are moved to; asked for once an open.
    fn lower_file(&self, _: NodeId, _: &File, _: Access) -> Result<Arc<LowerFile>> {
        Ok(Arc::new(LowerFile::new(self.open_lower(true)?.into())))
    }

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        if name.as_bytes() != NAME.as_bytes() {
            return Ok(Entry::negative(Duration::MAX));
        }
        Ok(Entry::new(FILE, self.attr(FILE)?).with_ttl(Duration::MAX))
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&File>) -> Result<AttrReply> {
        self.attr(node)
    }

    async fn setattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&File>, set: SetAttr) -> Result<AttrReply> {
        if let Some(size) = set.size {
            self.open_lower(true)?.set_len(size)?;
        }
        self.attr(node)
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, flags: OpenFlags) -> Result<Opened<File>> {
        if flags.contains(OpenFlags::TRUNCATE) {
            self.open_lower(true)?.set_len(0)?;
        }
        let delegation = Delegation::split(Delegation::Served, Delegation::Splice(Backing::OfNode));
        Ok(Opened::new(self.open_lower(false)?, delegation).with_cache(CacheHint::Direct))
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
        Ok(if data_only { file.sync_data() } else { file.sync_all() }?)
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
    let (Some(lower), Some(path)) = (args.next(), args.next()) else {
        return Err("usage: shout FILE MNT".into());
    };
    let mount = MountOptions { source: "shout".into(), ..MountOptions::default() };
    let shout = Shout::new(std::path::absolute(lower)?);
    let status = shuntfs::serve(shout, Path::new(&path), &mount, &SessionOptions::default())?;
    println!("{}", serde_json::to_string_pretty(&status)?);
    Ok(())
}
