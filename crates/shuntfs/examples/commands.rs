//! Files whose text is what commands print, each time they are opened: a file system without async, whose `open` takes its time.
//!
//! ```text
//! cargo run --example commands -- MNT NAME=COMMAND...      # as in: /mnt uptime=uptime disks='df -h'; then: cat /mnt/disks
//! ```
//!
//! A command that hangs holds up its own readers and nobody else: each method runs on a thread of the offload pool.

use std::error::Error;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, Blocking, BlockingFilesystem, ByteRange, CacheHint, Caller, DirEntry, Entry, Errno,
    FileType, MountOptions, NodeId, OpSet, OpenFlags, Opened, Result, SessionOptions,
};

/// The file system: the node of the first command is 2.
#[derive(Debug)]
pub(crate) struct Commands(Vec<(String, String)>);

impl Commands {
    /// Files by these names, with what these commands print.
    pub(crate) fn new(commands: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(commands.into_iter().collect())
    }

    fn node(&self, name: &OsStr) -> Option<NodeId> {
        let place = self.0.iter().position(|(known, _)| name == known.as_str())?;
        NodeId::new(place as u64 + 2)
    }

    fn attr(&self, node: NodeId) -> AttrReply {
        let attr = match node {
            NodeId::ROOT => Attr::new(1, FileType::Directory, 0o555),
            // How long the text will be, nobody knows before.
            node => Attr::new(node.get(), FileType::Regular, 0o444),
        };
        attr.valid_for(Duration::MAX)
    }
}

impl BlockingFilesystem for Commands {
    type File = Vec<u8>;

    const OPS: OpSet = OpSet::OPEN;

    fn lookup(&self, _: &Caller, _: NodeId, name: &OsStr) -> Result<Entry> {
        let node = self.node(name).ok_or(Errno::NOENT)?;
        Ok(Entry::new(node, self.attr(node)))
    }

    fn getattr(&self, _: &Caller, node: NodeId, _: Option<&Vec<u8>>) -> Result<AttrReply> {
        Ok(self.attr(node))
    }

    fn open(&self, _: &Caller, node: NodeId, _: OpenFlags) -> Result<Opened<Vec<u8>>> {
        let place = usize::try_from(node.get() - 2).map_err(|_| Errno::ISDIR)?;
        let (_, command) = self.0.get(place).ok_or(Errno::STALE)?;
        let output = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).output()?;
        // Past the page cache, which would believe the size of zero.
        Ok(Opened::served(output.stdout).with_cache(CacheHint::Direct))
    }

    fn read(&self, _: &Caller, text: &Vec<u8>, at: ByteRange) -> Result<Vec<u8>> {
        Ok(at.of(text).to_vec())
    }

    fn list(&self, _: &Caller, _: NodeId) -> Result<Vec<DirEntry>> {
        let records = (2..).zip(&self.0).map(|(ino, (name, _))| DirEntry {
            ino,
            kind: Some(FileType::Regular),
            name: name.into(),
        });
        Ok(records.collect())
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: commands MNT NAME=COMMAND...")?;
    let commands = args.map(|arg| arg.split_once('=').map(|(name, command)| (name.into(), command.into())));
    let commands: Option<Vec<_>> = commands.collect();
    let commands = Commands::new(commands.ok_or("a command has no name: NAME=COMMAND")?);
    let mount = MountOptions { source: "commands".into(), read_only: true, ..MountOptions::default() };
    shuntfs::serve(Blocking::new(commands), Path::new(&path), &mount, &SessionOptions::default())?;
    Ok(())
}
