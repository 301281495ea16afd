//! A folder of files whose bytes follow from their names, and whose server may die: whoever reads does not see it.
//!
//! ```text
//! cargo run --example kept -- MNT [device|cloned] [CRASHES]     # then: kill -9 the server, as often as you like
//! ```
//!
//! Under a service manager that stores descriptors (`FileDescriptorStoreMax=`), the mount outlives the keeper, too.
//!
//! More than CRASHES servers (5 by default) that die within a minute are too many: the mount is given up. Ctrl-C ends it.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use shuntfs::takeover::{KeptMount, Stateless};
use shuntfs::{
    Attr, AttrReply, ByteRange, Cx, DirSink, Entry, Errno, FileType, Filesystem, Filled, Listed,
    MountOptions, Name, NodeId, OpenFlags, Opened, OpenedDir, ReadReply, Result, SessionOptions, Transport,
};
use shuntfs_keeper::{Limits, Seat, Stored, keep, keep_stored};

/// How many files there are: `0`, `1` and so on.
pub(crate) const FILES: u64 = 16;
/// How long each of them is, in bytes.
pub(crate) const SIZE: u64 = 1 << 20;
/// The node of the first file; the root is 1.
pub(crate) const FIRST: u64 = 2;

/// The file system. Everything follows from a node's number, and that from its name.
#[derive(Debug)]
pub(crate) struct Numbers;

/// What a node's file has at an offset.
pub(crate) fn byte_at(node: u64, offset: u64) -> u8 {
    let mixed = ((node << 32) ^ offset).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[0]
}

/// Nothing may be believed for any time, so that each call comes to the server.
fn attr(node: NodeId) -> Result<AttrReply> {
    let number = node.get();
    let attr = match number {
        1 => Attr::new(1, FileType::Directory, 0o555),
        _ if number < FIRST + FILES => Attr::new(number, FileType::Regular, 0o444).with_size(SIZE),
        _ => return Err(Errno::STALE),
    };
    Ok(attr.valid_for(Duration::ZERO))
}

impl Filesystem for Numbers {
    /// The node's number.
    type File = u64;
    type Dir = ();

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        let number = std::str::from_utf8(name.as_bytes()).ok().and_then(|name| name.parse::<u64>().ok());
        let number = number.filter(|number| *number < FILES).ok_or(Errno::NOENT)?;
        let node = NodeId::new(FIRST + number).ok_or(Errno::NOENT)?;
        Ok(Entry::new(node, attr(node)?))
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&u64>) -> Result<AttrReply> {
        attr(node)
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, _: OpenFlags) -> Result<Opened<u64>> {
        Ok(Opened::served(node.get()))
    }

    async fn read<'q>(
        &self,
        _: &Cx<'_>,
        node: &u64,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let end = SIZE.min(at.offset.saturating_add(u64::from(at.len)));
        let bytes: Vec<u8> = (at.offset..end).map(|offset| byte_at(*node, offset)).collect();
        reply.copy_from_slice(&bytes)
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
        let names: Vec<String> = (0..FILES).map(|number| number.to_string()).collect();
        Ok(out
            .list(cookie, (FIRST..).zip(&names).map(|(node, name)| (node, FileType::Regular, name.as_str()))))
    }
}

/// It has no state at all, and no number of an open file is given out: OPEN is not among its operations.
impl Stateless for Numbers {}

fn run() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: kept MNT [device|cloned] [CRASHES]")?;
    let transport: Transport = arguments.next().as_deref().unwrap_or("auto").parse()?;
    let mut limits = Limits::default();
    if let Some(crashes) = arguments.next() {
        limits.crashes = crashes.parse()?;
    }
    let options = SessionOptions { transport, ..SessionOptions::default() };
    let serve = |seat: &Seat<'_>| seat.serve(Numbers, &options);
    if let Some(stored) = Stored::take()? {
        keep_stored(stored, &limits, serve)?;
        return Ok(());
    }
    let mount = MountOptions { source: "kept".into(), read_only: true, ..MountOptions::default() };
    let mount = KeptMount::mount(Path::new(&path), &mount, FileType::Directory)?;
    keep(mount, &limits, serve)?;
    Ok(())
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kept: {error}");
            ExitCode::FAILURE
        }
    }
}
