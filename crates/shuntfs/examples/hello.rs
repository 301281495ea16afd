//! One file in memory, read-only: the smallest file system there is.
//!
//! ```text
//! cargo run --example hello -- MNT      # then: cat MNT/hello; Ctrl-C ends it
//! ```
//!
//! It answers no OPEN and no OPENDIR: the kernel then asks neither, and caches the listing and the text.

use std::path::Path;
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, ByteRange, Cx, DirSink, Entry, FileType, Filesystem, Filled, Listed, MountOptions, Name,
    NodeId, OpenFlags, Opened, OpenedDir, ReadReply, Result, SessionOptions,
};

const NAME: &str = "hello";
const TEXT: &[u8] = b"Hello, world!\n";
/// The one file's node; the root is 1.
const FILE: NodeId = NodeId::new(2).expect("not zero");

/// The file system: it has no state at all.
#[derive(Debug)]
pub(crate) struct Hello;

/// Nothing ever changes, so the kernel may believe everything forever.
fn attr(node: NodeId) -> AttrReply {
    let attr = match node {
        FILE => Attr::new(2, FileType::Regular, 0o444).with_size(TEXT.len() as u64),
        _ => Attr::new(1, FileType::Directory, 0o555),
    };
    attr.valid_for(Duration::MAX)
}

impl Filesystem for Hello {
    type File = ();
    type Dir = ();

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        let found = name.as_bytes() == NAME.as_bytes();
        if found { Ok(Entry::new(FILE, attr(FILE))) } else { Ok(Entry::negative(Duration::MAX)) }
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        Ok(attr(node))
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        Ok(Opened::served(()))
    }

    async fn read<'q>(&self, _: &Cx<'_>, (): &(), at: ByteRange, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        reply.copy_from_slice(at.of(TEXT))
    }

    async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<()>> {
        Ok(OpenedDir::cached(()))
    }

    /// Without "." and "..", which nobody needs but who looks for them in the listing.
    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        (): &(),
        cookie: u64,
        out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        Ok(out.list(cookie, [(2, FileType::Regular, NAME)]))
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let path = std::env::args_os().nth(1).ok_or("usage: hello MNT")?;
    let mount = MountOptions { source: "hello".into(), read_only: true, ..MountOptions::default() };
    shuntfs::serve(Hello, Path::new(&path), &mount, &SessionOptions::default())?;
    Ok(())
}
