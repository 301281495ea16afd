//! `shunt slow`: shows a folder, to be read only, and takes its time for each READ, as a device or a network far away
//! does. For `shunt bench`.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirEntryExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, Delegation, DirSink, Entry, Errno, Filesystem, Filled,
    InitError, Listed, LookupCount, MountOptions, Name, NodeId, Offered, OpSet, OpenFlags, Opened, OpenedDir,
    ReadReply, Result, Session, SessionOptions, SetAttr, Signals, Statfs, Timestamp, Wanted,
};

use crate::cli::SlowArgs;
use crate::failure::Failure;

/// As many READs wait at the same time as the kernel sends.
const READS_AT_ONCE: usize = 64;

/// A folder that is read slowly.
struct Slow {
    /// The paths of the nodes that were looked up, the root's first: node 1. They stay for as long as the mount.
    paths: Mutex<Vec<PathBuf>>,
    delay: Duration,
}

impl Slow {
    fn path(&self, node: NodeId) -> Result<PathBuf> {
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(node.get() - 1).map_err(|_| Errno::STALE)?;
        paths.get(at).cloned().ok_or(Errno::STALE)
    }

    fn node(&self, path: &Path) -> Option<NodeId> {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        let at = paths.iter().position(|known| known == path).unwrap_or_else(|| {
            paths.push(path.to_owned());
            paths.len() - 1
        });
        NodeId::new(at as u64 + 1)
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_lower(error.raw_os_error().unwrap_or(0))
}

fn attr(node: NodeId, found: &Metadata) -> AttrReply {
    let time = |secs, nanos: i64| Timestamp { secs, nanos: u32::try_from(nanos).unwrap_or(0) };
    let attr = Attr {
        ino: node.get(),
        size: found.size(),
        blocks: found.blocks(),
        atime: time(found.atime(), found.atime_nsec()),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        mode: found.mode(),
        nlink: 1,
        uid: found.uid(),
        gid: found.gid(),
        ..Attr::default()
    };
    AttrReply { attr, ttl: Duration::MAX }
}

impl Filesystem for Slow {
    type File = Arc<File>;
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN;

    fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
        let mut wanted = Wanted::default();
        wanted.ops = Self::OPS;
        Ok(wanted)
    }

    fn forget(&self, _: NodeId, _: LookupCount) {}

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let path = self.path(parent)?.join(std::ffi::OsStr::from_bytes(name.as_bytes()));
        match fs::symlink_metadata(&path) {
            Ok(found) => {
                let node = self.node(&path).ok_or(Errno::STALE)?;
                Ok(Entry { node: Some(node), ttl: Duration::MAX, attr: attr(node, &found) })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Entry::negative(Duration::MAX)),
            Err(error) => Err(errno(&error)),
        }
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Arc<File>>) -> Result<AttrReply> {
        let found = fs::symlink_metadata(self.path(node)?).map_err(|error| errno(&error))?;
        Ok(attr(node, &found))
    }

    async fn setattr(&self, _: &Cx<'_>, _: NodeId, _: Option<&Arc<File>>, _: SetAttr) -> Result<AttrReply> {
        Err(Errno::ROFS)
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, flags: OpenFlags) -> Result<Opened<Arc<File>>> {
        if flags.may_write() {
            return Err(Errno::ROFS);
        }
        let file = Arc::new(File::open(self.path(node)?).map_err(|error| errno(&error))?);
        Ok(Opened { file, delegation: Delegation::Served, cache: CacheHint::Keep, flush: false })
    }

    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        file: &Arc<File>,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        let (file, delay) = (Arc::clone(file), self.delay);
        let mut bytes = vec![0; (at.len as usize).min(reply.capacity())];
        let bytes = cx.offload(move || {
            std::thread::sleep(delay);
            let len = read_whole(&file, &mut bytes, at.offset)?;
            bytes.truncate(len);
            Ok(bytes)
        });
        let bytes = bytes.await.map_err(|error: io::Error| errno(&error))?;
        reply.copy_from_slice(&bytes)
    }

    async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<()>> {
        Ok(OpenedDir { dir: (), cache: true })
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        node: NodeId,
        (): &(),
        cookie: u64,
        mut out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        // The kind is not told: whoever needs it looks the name up.
        const DT_UNKNOWN: u8 = 0;
        let found = fs::read_dir(self.path(node)?).map_err(|error| errno(&error))?;
        for (place, entry) in (1..).zip(found) {
            let entry = entry.map_err(|error| errno(&error))?;
            if cookie < place && !out.push(entry.ino(), place, DT_UNKNOWN, entry.file_name().as_bytes()) {
                break;
            }
        }
        Ok(out.finish())
    }

    async fn statfs(&self, _: &Cx<'_>, _: NodeId) -> Result<Statfs> {
        Ok(Statfs { bsize: 4096, frsize: 4096, namelen: 255, ..Statfs::default() })
    }
}

/// Reads until the buffer is full or the file ends.
fn read_whole(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    Ok(done)
}

/// Mounts and serves until told to end.
///
/// # Errors
/// Where it cannot be mounted, or the connection ended by an error.
pub(crate) fn run(args: &SlowArgs) -> std::result::Result<(), Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Failure::new(format!("cannot {what}: {error}"));
    let root = fs::canonicalize(&args.folder).map_err(|error| failed("find the folder", &error))?;
    let signals = Signals::block().map_err(|error| failed("take signals", &error))?;
    let mount = MountOptions { source: "slow".into(), ..MountOptions::default() };
    let options = SessionOptions { offload_threads: READS_AT_ONCE, ..SessionOptions::default() };
    let slow = Slow { paths: Mutex::new(vec![root]), delay: Duration::from_millis(args.delay_ms) };
    let session = Session::mount(Arc::new(slow), &args.mountpoint, &mount, &options)
        .map_err(|error| failed("mount", &error))?;
    session.run(&signals).map_err(|error| failed("serve", &error))
}
