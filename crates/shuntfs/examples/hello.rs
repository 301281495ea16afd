//! One file in memory, read-only: the smallest file system there is.
//!
//! ```text
//! cargo run --example hello -- MNT      # then: cat MNT/hello; Ctrl-C ends it
//! ```
//!
//! It answers no OPEN and no OPENDIR: the kernel then asks neither, and caches the listing and the text.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, Delegation, DirSink, Entry, Errno, Filesystem, Filled,
    InitError, Listed, LookupCount, MountOptions, Name, NodeId, Offered, OpSet, OpenFlags, Opened, OpenedDir,
    ReadReply, Result, Session, SessionOptions, Signals, Statfs, Wanted,
};

const NAME: &[u8] = b"hello";
const TEXT: &[u8] = b"Hello, world!\n";
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const DT_DIR: u8 = 4;
const DT_REG: u8 = 8;

/// The file system: it has no state at all.
#[derive(Debug, Default)]
pub(crate) struct Hello;

/// The one file's node; the root is 1.
fn file() -> NodeId {
    NodeId::new(2).expect("not zero")
}

/// Nothing ever changes, so the kernel may believe everything for ever.
fn attr(node: NodeId) -> Result<AttrReply> {
    let attr = match node {
        NodeId::ROOT => Attr { ino: 1, mode: S_IFDIR | 0o555, nlink: 2, ..Attr::default() },
        node if node == file() => {
            let size = TEXT.len() as u64;
            Attr { ino: 2, mode: S_IFREG | 0o444, nlink: 1, size, blocks: 1, ..Attr::default() }
        }
        _ => return Err(Errno::STALE),
    };
    Ok(AttrReply { attr, ttl: Duration::MAX })
}

impl Filesystem for Hello {
    type File = ();
    type Dir = ();

    const OPS: OpSet = OpSet::empty();

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
        Ok(Wanted::default())
    }

    fn forget(&self, _: NodeId, _: LookupCount) {}

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        if parent != NodeId::ROOT || name.as_bytes() != NAME {
            return Ok(Entry::negative(Duration::MAX));
        }
        Ok(Entry { node: Some(file()), ttl: Duration::MAX, attr: attr(file())? })
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        attr(node)
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        Ok(Opened { file: (), delegation: Delegation::Served, cache: CacheHint::Keep, flush: false })
    }

    async fn read<'q>(&self, _: &Cx<'_>, (): &(), at: ByteRange, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let start = usize::try_from(at.offset).unwrap_or(usize::MAX).min(TEXT.len());
        let len = reply.capacity().min(TEXT.len() - start);
        reply.copy_from_slice(&TEXT[start..start + len])
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
        // A record's cookie names the place after it.
        if cookie < 1 && !out.push(1, 1, DT_DIR, b".") {
            return Ok(out.finish());
        }
        if cookie < 2 && !out.push(1, 2, DT_DIR, b"..") {
            return Ok(out.finish());
        }
        if cookie < 3 {
            if out.wants_entries() {
                let name = Name::new(c"hello").ok_or(Errno::IO)?;
                let entry = Entry { node: Some(file()), ttl: Duration::MAX, attr: attr(file())? };
                out.push_entry(&entry, 3, name);
            } else {
                out.push(2, 3, DT_REG, NAME);
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
            eprintln!("hello: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> std::result::Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: hello MNT")?;
    // Before the mount starts its threads, so that the signals come here.
    let signals = Signals::block()?;
    let mount = MountOptions { source: "hello".into(), read_only: true, ..MountOptions::default() };
    let session = Session::mount(Arc::new(Hello), Path::new(&path), &mount, &SessionOptions::default())?;
    session.run(&signals)?;
    Ok(())
}
