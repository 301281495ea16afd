//! A file that swallows what is written to it and gives zeroes: what is left is the cost of the way here.
//!
//! ```text
//! cargo run --release --example null -- [-o OPTIONS] MNT
//! fio --name=null --filename=MNT/null --rw=read --bs=1M --size=8g
//! ```
//!
//! READ and WRITE bypass the page cache, so that each one reaches the file system.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, DirSink, Entry, Errno, FileType, Filesystem, Filled, Listed,
    MountOptions, Name, NodeId, OpSet, OpenFlags, Opened, OpenedDir, ReadReply, Result, SessionOptions,
    SetAttr, WriteData, Written,
};

const NAME: &str = "null";
/// The size that the file shows.
const SIZE: u64 = 1 << 40;
/// The one file's node; the root is 1.
const FILE: NodeId = NodeId::new(2).expect("not zero");

/// The file system: it has no state at all.
#[derive(Debug)]
pub(crate) struct Null;

fn attr(node: NodeId) -> Result<AttrReply> {
    let attr = match node {
        NodeId::ROOT => Attr::new(1, FileType::Directory, 0o755),
        // It has no blocks.
        FILE => Attr { size: SIZE, ..Attr::new(2, FileType::Regular, 0o666) },
        _ => return Err(Errno::STALE),
    };
    Ok(attr.valid_for(Duration::MAX))
}

impl Filesystem for Null {
    type File = ();
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN;

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        let found = name.as_bytes() == NAME.as_bytes();
        if found { Ok(Entry::new(FILE, attr(FILE)?)) } else { Ok(Entry::negative(Duration::MAX)) }
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        attr(node)
    }

    /// Everything is accepted and nothing changes, so that `> null` and `truncate` work.
    async fn setattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>, _: SetAttr) -> Result<AttrReply> {
        attr(node)
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        Ok(Opened::served(()).with_cache(CacheHint::Direct))
    }

    async fn read<'q>(&self, _: &Cx<'_>, (): &(), at: ByteRange, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let left = SIZE.saturating_sub(at.offset);
        let mut out = reply.cursor();
        out.zeroes(out.left().min(usize::try_from(left).unwrap_or(usize::MAX)))?;
        Ok(out.finish())
    }

    async fn write(&self, _: &Cx<'_>, (): &(), _: u64, data: WriteData<'_>) -> Result<Written> {
        Ok(data.written())
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
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (options, path) = match &args[..] {
        [path] => ("fsname=null", path),
        [minus_o, options, path] if minus_o == "-o" => (options.as_str(), path),
        _ => return Err("usage: null [-o OPTIONS] MNT".into()),
    };
    let mount: MountOptions = options.parse()?;
    let status = shuntfs::serve(Null, Path::new(path), &mount, &SessionOptions::default())?;
    println!("{}", serde_json::to_string_pretty(&status)?);
    Ok(())
}
