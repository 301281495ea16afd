//! A file system behind the fake kernel: mounted, used, and taken apart with its books checked.

use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use shuntfs::{Filesystem, FuseDevice, MountError, Session, SessionOptions, Transport, TransportKind};
use shuntfs_sys::{OsError, Peer};
use shuntfs_wire::{
    Errno, ForgetOne, GetattrIn, InitFlags, InitIn, InitOut, LookupCount, NodeId, Opcode, abi,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::books::ROOT;
use crate::breach::{Breach, Broken, Rule};
use crate::kernel::{Caller, FIRST, Kernel};
use crate::process::Process;
use crate::rings::{Lie, RingBooks, RingTotals, Rings};

/// How the fake kernel behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is offered at INIT beside [`Settings::rings`]. Default: what Linux 6.18 offers, without the writeback cache, which the fake does not
    /// have.
    pub offered: InitFlags,
    /// Whether what comes from a cache is asked for again and compared with the file system's answer. Default: yes. To
    /// be turned off where the file system changes by itself within the times that it promised.
    pub doubts: bool,
    /// Type and permissions of the root, which the mount says before the file system is asked. Default: a folder; that of
    /// a file system of one file is a regular file.
    pub root_mode: u32,
    /// How long an answer may take, in real time. Default: 30 seconds.
    pub limit: Duration,
    /// FUSE over io_uring, which is then offered. Default: none. The machine must have io_uring (Linux 6.10 or later).
    pub rings: Option<Rings>,
    /// The transport, queues and so on. Default: one queue that reads the device, of depth 8.
    pub session: SessionOptions,
}

impl Default for Settings {
    fn default() -> Self {
        let not_here = InitFlags::OVER_IO_URING
            | InitFlags::HAS_IO_URING_BUFPOOL
            | InitFlags::WRITEBACK_CACHE
            | InitFlags::RESERVED
            | InitFlags::FILE_OPS
            | InitFlags::MAP_ALIGNMENT
            | InitFlags::SUBMOUNTS
            | InitFlags::HAS_INODE_DAX
            | InitFlags::SECURITY_CTX;
        let session = SessionOptions {
            transport: Transport::Only(TransportKind::Device),
            queues: Some(1),
            depth: 8,
            ..SessionOptions::default()
        };
        Self {
            offered: InitFlags::all() - not_here,
            doubts: true,
            root_mode: 0o040_755,
            limit: Duration::from_secs(30),
            rings: None,
            session,
        }
    }
}

/// A file system on the fake kernel, and a [`Process`] that uses it: the one that this is, by user, group and number.
#[derive(Debug)]
pub struct Fake {
    process: Process,
    session: Option<Session>,
    listener: Option<JoinHandle<()>>,
}

/// What a run came to.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Totals {
    /// How many requests were sent.
    pub requests: u64,
    /// How many nodes the kernel held when it let all of them go.
    pub nodes: usize,
    /// How many backing ids were left.
    pub backing_ids: usize,
}

impl Fake {
    /// Mounts a file system, with [`Settings::default`].
    ///
    /// # Errors
    /// Those of [`Session::serve`].
    pub fn mount<F: Filesystem>(fs: F) -> Result<Self, MountError> {
        Self::mount_with(Arc::new(fs), &Settings::default())
    }

    /// Mounts a file system.
    ///
    /// # Errors
    /// Those of [`Session::serve`].
    pub fn mount_with<F: Filesystem>(fs: Arc<F>, settings: &Settings) -> Result<Self, MountError> {
        Self::mount_through(fs, settings, |peer| peer)
    }

    /// Mounts a file system whose answers `between` may see, and spoil, before the kernel gets them: for tests of the fake
    /// itself, and of what a transport makes of a refusal.
    ///
    /// # Errors
    /// Those of [`Session::serve`].
    pub fn mount_through<F: Filesystem>(
        fs: Arc<F>,
        settings: &Settings,
        between: impl FnOnce(Arc<dyn Peer>) -> Arc<dyn Peer>,
    ) -> Result<Self, MountError> {
        let (mut fake, device, init) = Self::connect(settings, between).map_err(MountError::Init)?;
        let session = Session::serve(fs, device, &settings.session);
        let session = match session {
            Ok(session) => session,
            Err(error) => {
                fake.shut();
                return Err(error);
            }
        };
        fake.session = Some(session);
        fake.greeted(settings, init).map_err(|_| MountError::NoInit("INIT was not answered"))?;
        Ok(fake)
    }

    /// The kernel without a server, and the device that a server of another make is to read and answer. INIT waits
    /// there; [`Fake::greet`] must be called when it is served.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit.
    pub fn bare(settings: &Settings) -> io::Result<(Self, FuseDevice)> {
        let (fake, device, _) = Self::connect(settings, |peer| peer)?;
        Ok((fake, device))
    }

    /// Waits for the answer to INIT of a [`Fake::bare`] kernel.
    ///
    /// # Errors
    /// That of the answer; ETIMEDOUT where none came.
    pub fn greet(&mut self, settings: &Settings) -> Result<(), Errno> {
        self.greeted(settings, FIRST)
    }

    fn connect(
        settings: &Settings,
        between: impl FnOnce(Arc<dyn Peer>) -> Arc<dyn Peer>,
    ) -> Result<(Self, FuseDevice, u64), OsError> {
        let kernel = Arc::new(Kernel::new(settings.limit, settings.doubts, settings.root_mode));
        kernel.books().resends = settings.offered.contains(InitFlags::HAS_RESEND);
        if let Some(rings) = &settings.rings {
            kernel.books().rings = RingBooks::new(rings.clone())?;
        }
        let (device, end) = FuseDevice::of_peer(between(Arc::clone(&kernel) as Arc<dyn Peer>))?;
        kernel.connect(end);
        let listening = Arc::clone(&kernel);
        let listener = std::thread::Builder::new().name("fake-kernel".into());
        let listener = listener.spawn(move || listening.listen()).map_err(|_| OsError::AGAIN)?;
        let stat = std::fs::metadata("/proc/self").ok();
        let ids = stat.map(|stat| {
            use std::os::unix::fs::MetadataExt;
            (stat.uid(), stat.gid())
        });
        let (uid, gid) = ids.unwrap_or((0, 0));
        let caller = Caller { uid, gid, pid: std::process::id() };
        let nobody = Caller { uid: 0, gid: 0, pid: 0 };
        let init = kernel.send(nobody, (Opcode::Init.number(), 0), init_in(settings).as_bytes());
        let init = init.map_err(|_| OsError::PIPE)?;
        debug_assert!(device.as_raw_fd() >= 0 && init == FIRST);
        let process = Process { kernel, caller };
        Ok((Self { process, session: None, listener: Some(listener) }, device, init))
    }

    fn greeted(&mut self, settings: &Settings, init: u64) -> Result<(), Errno> {
        let answer = self.process.kernel.wait(init)?;
        let mut out = InitOut::new_zeroed();
        let len = answer.len().min(size_of::<InitOut>());
        out.as_mut_bytes()[..len].copy_from_slice(&answer[..len]);
        self.process.kernel.books().agree(&init_in(settings), &out);
        Ok(())
    }

    /// Another process.
    #[must_use]
    pub fn process(&self, caller: Caller) -> Process {
        Process { kernel: Arc::clone(&self.process.kernel), caller }
    }

    /// The session, whose status and notifier a test may want.
    ///
    /// # Panics
    /// For a [`Fake::bare`] kernel.
    #[must_use]
    pub fn session(&self) -> &Session {
        self.session.as_ref().expect("mounted with a file system")
    }

    /// Lets time pass for the caches: nobody waits.
    pub fn pass(&self, time: Duration) {
        let mut books = self.process.kernel.books();
        books.clock = books.clock.saturating_add(time);
    }

    /// How many requests of an operation were sent.
    #[must_use]
    pub fn sent(&self, opcode: Opcode) -> u64 {
        self.process.kernel.books().sent.get(&opcode).copied().unwrap_or(0)
    }

    /// What went by rings so far.
    #[must_use]
    pub fn ring_totals(&self) -> RingTotals {
        self.process.kernel.books().rings.totals()
    }

    /// Tells the server something untrue about the next request that goes by a ring.
    pub fn lie(&self, lie: Lie) {
        self.process.kernel.books().rings.lie(lie);
    }

    /// Makes the registration of lower files fail, or work again.
    pub fn refuse_backing(&self, error: Option<OsError>) {
        self.process.kernel.books().backings.refusal = error;
    }

    /// What was broken so far.
    #[must_use]
    pub fn breaches(&self) -> Vec<Breach> {
        self.process.kernel.books().breaches.clone()
    }

    /// Forgets every node that nothing uses, as under memory pressure: FORGETs are sent. With one queue they have been
    /// served when this returns.
    pub fn drop_caches(&self) {
        let gone = self.process.kernel.books().evict(None);
        self.forget(&gone);
    }

    /// Forgets one node where nothing uses it.
    pub fn forget_node(&self, node: NodeId) {
        let gone = self.process.kernel.books().evict(Some(node.get()));
        self.forget(&gone);
    }

    /// Gives one lookup of a node back and keeps the others, as the kernel does after a race of two lookups.
    ///
    /// # Errors
    /// ENOENT where there is but one.
    pub fn give_back_one(&self, node: NodeId) -> Result<(), Errno> {
        let mut books = self.process.kernel.books();
        let inode = books.inodes.get_mut(&node.get()).filter(|inode| inode.lookups > 1);
        inode.ok_or(Errno::NOENT)?.lookups -= 1;
        drop(books);
        self.forget(&[(node.get(), 1)]);
        Ok(())
    }

    fn forget(&self, gone: &[(u64, u64)]) {
        let nobody = Caller { uid: 0, gid: 0, pid: 0 };
        // One alone, then the rest in batches, as the kernel sends them.
        if let Some((first, rest)) = gone.split_first() {
            let forgotten =
                self.process.kernel.send(nobody, (Opcode::Forget.number(), first.0), &first.1.to_ne_bytes());
            let batches = rest.chunks(64).map(|batch| {
                let mut body = [u32::try_from(batch.len()).unwrap_or(0), 0].as_bytes().to_vec();
                for (node, lookups) in batch {
                    let node = NodeId::new(*node).expect("the books hold no node 0");
                    body.extend_from_slice(ForgetOne::new(node, LookupCount(*lookups)).as_bytes());
                }
                self.process.kernel.send(nobody, (Opcode::BatchForget.number(), 0), &body)
            });
            // Where the connection is gone, nobody forgets, and nobody minds.
            let _sent: Vec<_> = std::iter::once(forgotten).chain(batches).collect();
        }
        // Nobody answers a FORGET; what is answered after it shows that it was read.
        let _fence = self.process.kernel.ask(
            self.process.caller,
            (Opcode::Getattr, ROOT),
            &[GetattrIn::default().as_bytes()],
        );
    }

    /// Closes what is open, forgets every node, ends the connection, and checks the books.
    ///
    /// # Errors
    /// Every rule that was broken.
    pub fn finish(mut self) -> Result<Totals, Broken> {
        let (totals, broken) = self.take_down();
        if broken.is_empty() { Ok(totals) } else { Err(Broken(broken)) }
    }

    /// As [`Fake::finish`], for tests.
    ///
    /// # Panics
    /// Where a rule was broken, with all of them.
    pub fn end(self) -> Totals {
        self.finish().unwrap_or_else(|broken| panic!("{broken}"))
    }

    fn take_down(&mut self) -> (Totals, Vec<Breach>) {
        let open: Vec<u64> = self.process.kernel.books().opens.keys().copied().collect();
        for id in open {
            self.process.kernel.close(self.process.caller, id);
        }
        let gone = self.process.kernel.books().evict(None);
        self.forget(&gone);
        if let Some(session) = &self.session {
            let status = session.status();
            let mut books = self.process.kernel.books();
            if status.panics > 0 {
                books.breach(Rule::Panics, format!("{} operations panicked", status.panics));
            }
            if status.nodes_open > 0 && !books.has_raw {
                let what =
                    format!("{} nodes are open for the server, and none for the kernel", status.nodes_open);
                books.breach(Rule::Handles, what);
            }
        }
        self.shut();
        let mut books = self.process.kernel.books();
        for request in books.requests.unanswered() {
            books.breach(Rule::AnsweredOnce, format!("{request} was never answered"));
        }
        if !books.buffers_are_back() {
            books.breach(Rule::Ring, "buffers of a pool did not come back");
        }
        let requests = books.sent.values().sum();
        let totals = Totals { requests, nodes: gone.len(), backing_ids: books.backings.count() };
        (totals, std::mem::take(&mut books.breaches))
    }

    fn shut(&mut self) {
        self.process.kernel.end();
        if let Some(session) = self.session.take() {
            session.wait();
        }
        if let Some(listener) = self.listener.take()
            && listener.join().is_err()
        {
            self.process.kernel.books().breach(Rule::AnsweredOnce, "the fake kernel itself panicked");
        }
    }
}

impl Deref for Fake {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if self.listener.is_none() {
            return;
        }
        // Whoever does not ask is told, too; a test that fails already has enough to say.
        let (_, broken) = self.take_down();
        if !broken.is_empty() && !std::thread::panicking() {
            panic!("{}", Broken(broken));
        }
    }
}

fn init_in(settings: &Settings) -> InitIn {
    let rings = settings.rings.as_ref().map_or(InitFlags::empty(), |rings| match rings.pools {
        true => InitFlags::OVER_IO_URING | InitFlags::HAS_IO_URING_BUFPOOL,
        false => InitFlags::OVER_IO_URING,
    });
    let bits = (settings.offered | rings).bits();
    let word = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
    InitIn {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: 0x2_0000,
        flags: word(bits),
        flags2: word(bits >> 32),
        ..InitIn::default()
    }
}
