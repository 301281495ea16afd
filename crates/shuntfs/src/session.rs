//! A mount and its life.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shuntfs_sys::OsError;
use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::mount::Lifeline;
use shuntfs_transport::{KeptRings, Prepared, Running};
use shuntfs_wire::NodeId;

use crate::args::OpSet;
use crate::backing::{Backings, Registrar};
use crate::choose::{self, Chosen};
use crate::counters::Counters;
use crate::delegation::Flows;
use crate::dispatch::dispatch;
use crate::filesystem::Filesystem;
use crate::handshake;
use crate::init::Offered;
use crate::mount::{self, AbortError, MountError, MountPoint, MountedBy, UnmountError};
use crate::negotiate::{Negotiated, Terms, negotiate};
use crate::nodes::Nodes;
use crate::notify::{Notifier, Retrievals};
use crate::options::{MountOptions, SessionOptions};
use crate::server::{Core, Local, Server};
use crate::stalls::{StallCounts, StallLog};
use crate::status::{Status, TransportStatus};
use crate::takeover::{Keeps, Requests};
use crate::trace::{Hub, Observed, Trace, TraceError, TraceFilter};

/// A mounted file system being served.
///
/// Dropping it unmounts; where files are still open, it detaches the mount from the tree, and they are served
/// on until they are closed or the process ends.
pub struct Session {
    core: Arc<Core>,
    /// The server, for as long as its threads serve.
    observed: Weak<dyn Observed>,
    running: Running,
    transport: TransportStatus,
    source: String,
    connection: Option<u32>,
    mounted: Mutex<Option<MountPoint>>,
    point: MountPoint,
    /// What unmounts where this process cannot any more. Goes last.
    lifeline: Option<Lifeline>,
    /// Rings that another server can take over.
    pub(crate) rings: Option<Arc<KeptRings>>,
}

impl Session {
    /// Mounts `fs` on `path` and serves it, in threads of its own. Returns when the mount answers. `/dev/fd/N` as
    /// the path stands for a device that is mounted already.
    ///
    /// Threads inherit the signal mask of the caller.
    ///
    /// # Errors
    /// [`MountError`]; nothing is then left mounted.
    pub fn mount<F: Filesystem>(
        fs: Arc<F>,
        path: &Path,
        mount: &MountOptions,
        options: &SessionOptions,
    ) -> Result<Self, MountError> {
        mount::check_identity()?;
        let (device, point, lifeline) = mount::mount(path, mount, fs.root_type())?;
        let mut session = Self::connect(fs, device, point, (mount.source.clone(), options))?;
        session.lifeline = lifeline;
        Ok(session)
    }

    /// Serves `fs` on a device that somebody else has mounted, or that stands in for one in a test. Whoever mounted it
    /// is to unmount it; [`Session::path`] then tells no place in the tree.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn serve<F: Filesystem>(
        fs: Arc<F>,
        device: FuseDevice,
        options: &SessionOptions,
    ) -> Result<Self, MountError> {
        mount::check_identity()?;
        let point = MountPoint::handed_over(&device);
        Self::connect(fs, device, point, (MountOptions::default().source, options))
    }

    fn connect<F: Filesystem>(
        fs: Arc<F>,
        device: FuseDevice,
        point: MountPoint,
        (source, options): (String, &SessionOptions),
    ) -> Result<Self, MountError> {
        let guard = Guard::of(point);
        let device = Arc::new(device);
        let greeting = handshake::greet(&device)?;
        let offered = Offered { minor: greeting.init.minor, flags: greeting.init.offered() };
        let wanted = fs.init(&offered)?;
        let ops = F::OPS & wanted.ops.unwrap_or(F::OPS);
        let terms = Terms::before_transport(options);
        // Refusals come before anything is set up; what the transport adds cannot cause one.
        negotiate(&greeting.init, &wanted, ops, &terms)?;
        let chosen = choose::choose(&device, greeting.init.offered(), options)?;
        let terms = terms.with_transport(&chosen.prepared, options);
        let negotiated = negotiate(&greeting.init, &wanted, ops, &terms)?;
        let parts =
            Parts { fs, device: Arc::clone(&device), negotiated, chosen, guard, source, keeping: None };
        Self::begin(parts, options, |_| handshake::agree(&device, &greeting, &negotiated))
    }

    /// Serves, as soon as `agree` has opened the way for requests: by an answer to INIT, or to another server's successor.
    pub(crate) fn begin<F: Filesystem, E: From<MountError>>(
        parts: Parts<F>,
        options: &SessionOptions,
        agree: impl FnOnce(&Server<F>) -> Result<(), E>,
    ) -> Result<Self, E> {
        // The guard goes last.
        let Parts { guard, fs, device, negotiated, chosen, source, keeping } = parts;
        let (keeps, requests) = keeping.unzip();
        let registrar: Arc<dyn Registrar> = match &keeps {
            Some(keeps) => keeps.registrar(&device),
            None => Arc::clone(&device) as Arc<dyn Registrar>,
        };
        let core = core(&device, negotiated, &chosen.prepared, (registrar, options));
        let counters = Counters::kept(keeps.as_ref().and_then(Keeps::counters));
        let core = Arc::new(Core { requests, counters, ..core });
        fs.mounted(Notifier::new(Arc::downgrade(&core)));
        let ops = OpSet::from_bits_retain(negotiated.ops);
        let server = Arc::new(Server::new(fs, ops, Arc::clone(&core), keeps));
        agree(&server)?;
        let mut transport = TransportStatus::of(&chosen);
        let Chosen { mut prepared, .. } = chosen;
        let (zero_copy, pinned) = (Arc::clone(prepared.zero_copy()), Arc::clone(prepared.pinned()));
        let observed = observed(&server);
        if let Some(limit) = options.stall_after {
            let log = StallLog::new(Weak::clone(&observed), Arc::clone(&core.stalls));
            prepared.watch_stalls(limit, Arc::new(log));
        }
        let running = start(prepared, server)?;
        if let Some(error) = running.refused() {
            tracing::warn!(%error, "the kernel refused the rings; requests come through the device");
            transport.fell_back(error);
            core.nodes.without_ring();
        }
        transport.settled(&zero_copy, &pinned, running.refused().is_some());
        let point = guard.keep();
        let connection = point.connection(&device);
        if let (Some(bytes), Some(connection)) = (options.readahead, connection) {
            set_readahead(connection, bytes);
        }
        let mounted = Mutex::new(Some(point.clone()));
        Ok(Self {
            core,
            observed,
            running,
            transport,
            source,
            connection,
            mounted,
            point,
            lifeline: None,
            rings: None,
        })
    }

    /// Waits until the connection has ended: unmounted, by whomever, or aborted.
    pub fn wait(&self) {
        self.running.wait();
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.point.path
    }

    /// What was agreed at INIT.
    #[must_use]
    pub fn negotiated(&self) -> Negotiated {
        self.core.negotiated
    }

    /// The connection's number, as in `/sys/fs/fuse/connections`; `None` where it is not known.
    #[must_use]
    pub fn connection(&self) -> Option<u32> {
        self.connection
    }

    /// Why the kernel refused the rings, where it did.
    pub(crate) fn rings_refused(&self) -> Option<OsError> {
        self.running.refused()
    }

    /// The rings, where another server can take them over: before this one is killed for that, they must be full ([`KeptRings::fill`]).
    #[must_use]
    pub fn kept_rings(&self) -> Option<&Arc<KeptRings>> {
        self.rings.as_ref()
    }

    /// Unmounts. [`Session::wait`] then returns soon.
    ///
    /// # Errors
    /// [`UnmountError::Busy`] where files are open; it stays mounted.
    pub fn unmount(&self) -> Result<(), UnmountError> {
        self.take_down(false)
    }

    /// Detaches the mount from the tree at once; open files are served on until they are closed.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn unmount_lazily(&self) -> Result<(), UnmountError> {
        self.take_down(true)
    }

    /// Ends the connection by force: every waiting caller gets an error, and so does every later one. The mount may go
    /// with it. That the connection has ended already is as good.
    ///
    /// # Errors
    /// [`AbortError`].
    pub fn abort(&self) -> Result<(), AbortError> {
        self.point.abort(self.connection)
    }

    /// What has been done so far.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(&self.core, &self.transport, (&self.point.path, &self.source), self.connection)
    }

    /// Looks at each request as it is answered, until what is returned is dropped. Up to 8 may look at once. While nobody does, a request costs one
    /// load of a flag more than without; while somebody does, a few system calls and allocations. What the kernel moves by itself
    /// (passthrough) is no request.
    ///
    /// ```no_run
    /// # fn look(session: &shuntfs::Session) -> Result<(), shuntfs::TraceError> {
    /// use shuntfs::{TraceFilter, Traced};
    ///
    /// for traced in session.trace(TraceFilter { errors: true, ..TraceFilter::default() })? {
    ///     match traced {
    ///         Traced::Record(record) => println!("{:?} {:?}", record.operation(), record.errno),
    ///         Traced::Dropped(count) => println!("{count} more"),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn trace(&self, filter: TraceFilter) -> Result<Trace, TraceError> {
        self.core.hub.attach(self.transport.queues, filter, &self.observed)
    }

    /// How the bytes of an open node flow, and why; `None` for one that is neither open nor has a backing id.
    #[must_use]
    pub fn flow_of(&self, node: NodeId) -> Option<Flows> {
        self.core.nodes.flow_of(node)
    }

    /// Lets go of a node's registered lower file, because the node is to have another one: at once, or with its
    /// last close where it is open in passthrough. Operations have [`crate::Cx::drop_backing`].
    pub fn drop_backing(&self, node: NodeId) {
        self.core.nodes.drop_backing(node);
    }

    /// What tells the kernel of changes behind its back.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::downgrade(&self.core))
    }

    fn take_down(&self, lazy: bool) -> Result<(), UnmountError> {
        let mut mounted = self.mounted.lock();
        let Some(point) = mounted.as_ref() else { return Ok(()) };
        if point.by == MountedBy::Other || point.is_mounted(self.connection) {
            point.unmount(lazy)?;
        }
        *mounted = None;
        Ok(())
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("core", &self.core)
            .field("running", &self.running)
            .field("transport", &self.transport)
            .field("source", &self.source)
            .field("connection", &self.connection)
            .field("point", &self.point)
            .finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        match self.unmount() {
            Ok(()) | Err(UnmountError::NotOurs) => {}
            Err(UnmountError::Busy { .. }) => {
                if let Err(error) = self.unmount_lazily() {
                    tracing::warn!(%error, "the mount stays");
                }
            }
            Err(error) => tracing::warn!(%error, "the mount stays"),
        }
    }
}

/// What a session is made of, once it is known what will have been agreed to.
pub(crate) struct Parts<F: Filesystem> {
    pub(crate) fs: Arc<F>,
    pub(crate) device: Arc<FuseDevice>,
    pub(crate) negotiated: Negotiated,
    pub(crate) chosen: Chosen,
    pub(crate) guard: Guard,
    pub(crate) source: String,
    /// Where a successor is to find what it needs.
    pub(crate) keeping: Option<(Keeps<F>, Requests)>,
}

/// Takes a mount back that did not come to be served.
pub(crate) struct Guard(Option<MountPoint>);

impl Guard {
    pub(crate) fn of(point: MountPoint) -> Self {
        Self(Some(point))
    }

    /// The mount stays.
    fn keep(mut self) -> MountPoint {
        self.0.take().expect("taken only here and when dropped")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(point) = self.0.take() else { return };
        match point.unmount(true) {
            Ok(()) | Err(UnmountError::NotOurs) => {}
            Err(error) => tracing::warn!(%error, "a mount that failed stays"),
        }
    }
}

fn core(
    device: &Arc<FuseDevice>,
    negotiated: Negotiated,
    prepared: &Prepared,
    (registrar, options): (Arc<dyn Registrar>, &SessionOptions),
) -> Core {
    let backings = Backings::new(registrar, negotiated.passthrough_off);
    let ring = prepared.kind() == shuntfs_transport::TransportKind::Uring;
    Core {
        device: Arc::clone(device),
        negotiated,
        nodes: Nodes::new(backings, ring, options.backing_ids_kept).with_zero_copy(prepared.zero_copy()),
        counters: Counters::default(),
        retrievals: Retrievals::default(),
        hub: Arc::new(Hub::default()),
        stalls: Arc::new(StallCounts::new(options.stall_after)),
        requests: None,
    }
}

fn start<F: Filesystem>(prepared: Prepared, server: Arc<Server<F>>) -> Result<Running, MountError> {
    let running = prepared.start(move |queue| {
        let core = Arc::clone(&server.core);
        let counters = core.counters.add_queue(queue.index());
        let seat = Rc::new((
            Arc::clone(&server),
            Local { core, queue: queue.clone(), counters, notes: RefCell::default() },
        ));
        move |exchange| dispatch(Rc::clone(&seat), exchange)
    });
    Ok(running?)
}

/// The server without its type, and without keeping it.
fn observed<F: Filesystem>(server: &Arc<Server<F>>) -> Weak<dyn Observed> {
    let weak: Weak<Server<F>> = Arc::downgrade(server);
    weak
}

pub(crate) fn set_readahead(connection: u32, bytes: u64) {
    let path = format!("/sys/class/bdi/0:{connection}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, (bytes / 1024).to_string()) {
        tracing::warn!(path, %error, "the readahead stays as it is");
    }
}

impl Terms {
    /// What is known before a transport is chosen.
    pub(crate) fn before_transport(options: &SessionOptions) -> Self {
        let page_len = shuntfs_sys::limits::page_len();
        let payload_len = options.payload_len.max(8192).next_multiple_of(page_len);
        Self {
            payload_len: u32::try_from(payload_len).unwrap_or(u32::MAX),
            page_len: u32::try_from(page_len).unwrap_or(4096),
            max_background: options.max_background.unwrap_or(MAX_BACKGROUND_MIN),
            uring: false,
            passthrough: options.passthrough,
        }
    }

    pub(crate) fn with_transport(self, prepared: &Prepared, options: &SessionOptions) -> Self {
        let at_once = u16::try_from(prepared.queues() * prepared.depth()).unwrap_or(u16::MAX);
        Self {
            max_background: options.max_background.unwrap_or(at_once.max(MAX_BACKGROUND_MIN)),
            uring: prepared.kind() == shuntfs_transport::TransportKind::Uring,
            ..self
        }
    }
}

const MAX_BACKGROUND_MIN: u16 = 64;
