//! `shunt slow`: shows a folder, to be read only, and takes its time for each READ, as a device or a network far away
//! does. For `shunt bench`.

use std::fs::{self, File, Metadata};
use std::future::poll_fn;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, Delegation, DirSink, Entry, Errno, Filesystem, Filled,
    InitError, Listed, LookupCount, LowerFile, MountOptions, Name, NodeId, Offered, OpSet, OpenFlags, Opened,
    OpenedDir, ReadReply, Result, Session, SessionOptions, SetAttr, Signals, Statfs, Timestamp, Wanted,
};

use crate::cli::SlowArgs;
use crate::failure::Failure;

/// A folder that is read slowly.
struct Slow {
    /// The paths of the nodes that were looked up, the root's first: node 1. They stay for as long as the mount.
    paths: Mutex<Vec<PathBuf>>,
    delay: Duration,
    /// To the thread that waits, for all READs at once: a thread for each would take more processor time than what is measured.
    alarms: Sender<(Instant, Arc<Mutex<Alarm>>)>,
}

/// What one READ waits for.
#[derive(Default)]
struct Alarm {
    has_rung: bool,
    waker: Option<Waker>,
}

/// Rings the alarms, which come in the order of their times.
fn ring(alarms: &Receiver<(Instant, Arc<Mutex<Alarm>>)>) {
    for (at, alarm) in alarms {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let mut alarm = alarm.lock().unwrap_or_else(PoisonError::into_inner);
        alarm.has_rung = true;
        if let Some(waker) = alarm.waker.take() {
            waker.wake();
        }
    }
}

impl Slow {
    async fn wait(&self) -> Result<()> {
        let alarm = Arc::new(Mutex::new(Alarm::default()));
        let at = Instant::now() + self.delay;
        self.alarms.send((at, Arc::clone(&alarm))).map_err(|_| Errno::IO)?;
        poll_fn(|cx| {
            let mut alarm = alarm.lock().unwrap_or_else(PoisonError::into_inner);
            alarm.waker = Some(cx.waker().clone());
            if alarm.has_rung { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

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
    type File = Arc<LowerFile>;
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

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Arc<LowerFile>>) -> Result<AttrReply> {
        let found = fs::symlink_metadata(self.path(node)?).map_err(|error| errno(&error))?;
        Ok(attr(node, &found))
    }

    async fn setattr(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        _: Option<&Arc<LowerFile>>,
        _: SetAttr,
    ) -> Result<AttrReply> {
        Err(Errno::ROFS)
    }

    async fn open(&self, _: &Cx<'_>, node: NodeId, flags: OpenFlags) -> Result<Opened<Arc<LowerFile>>> {
        if flags.may_write() {
            return Err(Errno::ROFS);
        }
        let file = File::open(self.path(node)?).map_err(|error| errno(&error))?;
        Ok(Opened {
            file: Arc::new(LowerFile::new(file.into())),
            delegation: Delegation::Served,
            cache: CacheHint::Keep,
            flush: false,
        })
    }

    async fn read<'q>(
        &self,
        cx: &Cx<'_>,
        file: &Arc<LowerFile>,
        at: ByteRange,
        reply: ReadReply<'q>,
    ) -> Result<Filled<'q>> {
        self.wait().await?;
        let len = u32::try_from(reply.capacity()).map_or(at.len, |room| at.len.min(room));
        let draft = reply.draft_from(cx, file, ByteRange { offset: at.offset, len }).await?;
        Ok(draft.keep(0..len as usize))
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

/// Mounts and serves until told to end.
///
/// # Errors
/// Where it cannot be mounted, or the connection ended by an error.
pub(crate) fn run(args: &SlowArgs) -> std::result::Result<(), Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Failure::new(format!("cannot {what}: {error}"));
    let root = fs::canonicalize(&args.folder).map_err(|error| failed("find the folder", &error))?;
    let signals = Signals::block().map_err(|error| failed("take signals", &error))?;
    let mount = MountOptions { source: "slow".into(), ..MountOptions::default() };
    let (alarms, waiting) = mpsc::channel();
    std::thread::spawn(move || ring(&waiting));
    let slow = Slow { paths: Mutex::new(vec![root]), delay: Duration::from_millis(args.delay_ms), alarms };
    let session = Session::mount(Arc::new(slow), &args.mountpoint, &mount, &SessionOptions::default())
        .map_err(|error| failed("mount", &error))?;
    session.run(&signals).map_err(|error| failed("serve", &error))
}
