//! `shunt-bench slow`: shows a folder, to be read only, and takes its time for each READ, as a device or a network far away
//! does. The table `verity` is measured on it.

use std::fs::{self, File, Metadata};
use std::future::poll_fn;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use shuntfs::{
    Attr, AttrReply, ByteRange, CacheHint, Cx, DirSink, Entry, Errno, Filesystem, Filled, Listed, LowerFile,
    MountOptions, Name, NodeId, OpSet, OpenFlags, Opened, OpenedDir, ReadReply, Result, Session,
    SessionOptions, SetAttr, Signals,
};

use crate::cli::SlowArgs;

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

fn attr(node: NodeId, found: &Metadata) -> AttrReply {
    Attr { ino: node.get(), nlink: 1, ..found.into() }.valid_for(Duration::MAX)
}

impl Filesystem for Slow {
    type File = Arc<LowerFile>;
    type Dir = ();

    const OPS: OpSet = OpSet::OPEN;

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let path = self.path(parent)?.join(std::ffi::OsStr::from_bytes(name.as_bytes()));
        match fs::symlink_metadata(&path) {
            Ok(found) => {
                let node = self.node(&path).ok_or(Errno::STALE)?;
                Ok(Entry::new(node, attr(node, &found)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Entry::negative(Duration::MAX)),
            Err(error) => Err(error.into()),
        }
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&Arc<LowerFile>>) -> Result<AttrReply> {
        let found = fs::symlink_metadata(self.path(node)?)?;
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
        let file = File::open(self.path(node)?)?;
        Ok(Opened::served(Arc::new(LowerFile::new(file.into()))).with_cache(CacheHint::Keep))
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
        Ok(OpenedDir::cached(()))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        node: NodeId,
        (): &(),
        cookie: u64,
        mut out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let found = fs::read_dir(self.path(node)?)?;
        for (place, entry) in (1..).zip(found) {
            let entry = entry?;
            // The kind is not told: whoever needs it looks the name up.
            if cookie < place && !out.push(entry.ino(), place, None, entry.file_name().as_bytes()) {
                break;
            }
        }
        Ok(out.finish())
    }
}

/// Mounts and serves until told to end.
///
/// # Errors
/// Where it cannot be mounted, or the connection ended by an error.
pub(crate) fn run(args: &SlowArgs) -> anyhow::Result<()> {
    let root = fs::canonicalize(&args.folder).context("cannot find the folder")?;
    let signals = Signals::block().context("cannot block signals")?;
    let mount = MountOptions { source: "slow".into(), ..MountOptions::default() };
    let (alarms, waiting) = mpsc::channel();
    std::thread::spawn(move || ring(&waiting));
    let slow = Slow { paths: Mutex::new(vec![root]), delay: Duration::from_millis(args.delay_ms), alarms };
    let session = Session::mount(Arc::new(slow), &args.mountpoint, &mount, &SessionOptions::default())
        .context("cannot mount")?;
    session.run(&signals).context("cannot serve")
}
