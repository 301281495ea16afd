//! A file that swallows what is written to it and gives zeroes: what is left is the cost of the way here.
//!
//! ```text
//! cargo run --release --example null -- MNT
//! fio --name=null --filename=MNT/null --rw=read --bs=1M --size=8g
//! ```
//!
//! READ and WRITE bypass the page cache, so that each one reaches the file system.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, Delegation, DirSink, Entry, Errno, Filesystem, Filled,
    InitError, Listed, LookupCount, MountOptions, Name, NodeId, Offered, OpSet, OpenFlags, Opened, OpenedDir,
    ReadReply, Result, Session, SessionOptions, SetAttr, Signals, Statfs, Wanted, WriteData, Written,
};

const NAME: &[u8] = b"null";
/// The size that the file shows.
const SIZE: u64 = 1 << 40;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const DT_DIR: u8 = 4;
const DT_REG: u8 = 8;

/// The file system: it has no state at all.
#[derive(Debug, Default)]
pub(crate) struct Null;

/// The one file's node; the root is 1.
fn file() -> NodeId {
    NodeId::new(2).expect("not zero")
}

fn attr(node: NodeId) -> Result<AttrReply> {
    let attr = match node {
        NodeId::ROOT => Attr { ino: 1, mode: S_IFDIR | 0o755, nlink: 2, ..Attr::default() },
        node if node == file() => {
            Attr { ino: 2, mode: S_IFREG | 0o666, nlink: 1, size: SIZE, ..Attr::default() }
        }
        _ => return Err(Errno::STALE),
    };
    Ok(AttrReply { attr, ttl: Duration::MAX })
}

impl Filesystem for Null {
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
        Ok(Entry { node: Some(file()), ttl: Duration::MAX, attr: attr(file())? })
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        attr(node)
    }

    /// Everything is accepted and nothing changes, so that `> null` and `truncate` work.
    async fn setattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>, _: SetAttr) -> Result<AttrReply> {
        attr(node)
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        Ok(Opened { file: (), delegation: Delegation::Served, cache: CacheHint::Direct, flush: false })
    }

    async fn read<'q>(&self, _: &Cx<'_>, (): &(), at: ByteRange, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        let left = SIZE.saturating_sub(at.offset);
        let mut out = reply.cursor();
        out.zeroes(out.left().min(usize::try_from(left).unwrap_or(usize::MAX)))?;
        Ok(out.finish())
    }

    async fn write(&self, _: &Cx<'_>, (): &(), _: u64, data: WriteData<'_>) -> Result<Written> {
        u32::try_from(data.as_slice().len()).map(Written).map_err(|_| Errno::INVAL)
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
        // Records without entries raise no lookup count; the kernel looks the name up when it needs it.
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
            eprintln!("null: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> std::result::Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: null MNT")?;
    let signals = Signals::block()?;
    let mount = MountOptions { source: "null".into(), ..MountOptions::default() };
    let session = Session::mount(Arc::new(Null), Path::new(&path), &mount, &SessionOptions::default())?;
    session.run(&signals)?;
    println!("{}", serde_json::to_string_pretty(&session.status())?);
    Ok(())
}
