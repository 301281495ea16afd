//! A disk that hangs at one name, and nowhere before: a file system of the test's own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use shuntfs::{
    Attr, AttrReply, Cx, DirSink, Entry, Errno, FileType, Filesystem, Listed, MountOptions, Name, NodeId,
    OpenFlags, Opened, OpenedDir, Result, Session, SessionOptions, Statfs,
};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::skipped;
use shuntfs_testkit::supervisor::Supervisor;

const LIMIT: Duration = Duration::from_secs(100);

/// The folder `both`.
const BOTH: u64 = 2;

/// Who looks for `hangs` in it waits here.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_held: bool,
    is_open: bool,
}

impl Gate {
    /// Whether somebody has come.
    pub(crate) fn is_held(&self) -> bool {
        self.state.lock().is_held
    }

    /// Lets all go on.
    pub(crate) fn open(&self) {
        self.state.lock().is_open = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock();
        state.is_held = true;
        self.opened.wait_while(&mut state, |state| !state.is_open);
    }
}

/// An empty folder `both`.
struct Disk(Arc<Gate>);

impl Disk {
    fn attr(node: NodeId) -> AttrReply {
        Attr::new(node.get(), FileType::Directory, 0o755).valid_for(Duration::ZERO)
    }
}

impl Filesystem for Disk {
    type File = ();
    type Dir = ();

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        if parent == NodeId::ROOT && name.as_bytes() == b"both" {
            let both = NodeId::new(BOTH).ok_or(Errno::IO)?;
            return Ok(Entry::new(both, Self::attr(both)));
        }
        if name.as_bytes() == b"hangs" {
            self.0.pass();
        }
        Err(Errno::NOENT)
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        Ok(Self::attr(node))
    }

    async fn statfs(&self, _: &Cx<'_>, _: NodeId) -> Result<Statfs> {
        Ok(Statfs { blocks: 1 << 20, bfree: 1 << 20, bavail: 1 << 20, ..Statfs::default() })
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        Err(Errno::NOENT)
    }

    async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<()>> {
        Ok(OpenedDir::new(()))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        node: NodeId,
        (): &(),
        cookie: u64,
        out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let names: &[&[u8]] = if node == NodeId::ROOT { &[b"both"] } else { &[] };
        Ok(out.list(cookie, names.iter().map(|name| (BOTH, None, name))))
    }
}

/// A mount of it, by way of a server of its own, because a pool takes no branch that its own process serves. Whatever happens, nobody waits for it in
/// the end.
pub(crate) struct Hanging {
    pub(crate) gate: Arc<Gate>,
    shown: Option<Mounted>,
    session: Session,
    _supervisor: Supervisor,
    _top: tempfile::TempDir,
}

impl Hanging {
    /// `None` where nothing can be mounted, and then the reason was said.
    pub(crate) fn start() -> Option<Self> {
        let (gate, top) = (Arc::<Gate>::default(), tempfile::tempdir().unwrap());
        let how = MountOptions { allow_other: true, ..MountOptions::default() };
        let disk = Arc::new(Disk(Arc::clone(&gate)));
        let session = match Session::mount(disk, top.path(), &how, &SessionOptions::default()) {
            Ok(session) => session,
            Err(error) => {
                skipped(&format!("cannot mount here: {error}"));
                return None;
            }
        };
        let supervisor = Supervisor::of(top.path(), LIMIT).unwrap();
        let spec = MountSpec::new(top.path(), Transport::Device, Flow::Served);
        let shown = Mounted::start(&spec.args(&["--cache", "none"])).unwrap();
        let hanging = Self { gate, shown, session, _supervisor: supervisor, _top: top };
        hanging.shown.is_some().then_some(hanging)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.shown.as_ref().unwrap().path()
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.gate.open();
        drop(self.shown.take());
        if let Err(error) = self.session.unmount_lazily() {
            eprintln!("the mount is left to its supervisor: {error}");
        }
    }
}
