//! A mount and its life.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use shuntfs_sys::{FuseDevice, spawn};
use shuntfs_transport::{Settings, TransportKind};
use shuntfs_wire::InitFlags;

use crate::config::{Config, SessionACL};
use crate::dispatch::Door;
use crate::errno::Errno;
use crate::filesystem::Filesystem;
use crate::handshake::Greeting;
use crate::kernel_config::KernelConfig;
use crate::mount::Mount;
use crate::notify::Notifier;
use crate::request::Request;
use crate::serve::Shared;
use crate::transport::{Gate, Plan};

/// A file system that is told when it ends.
#[derive(Debug)]
pub(crate) struct Holder<FS: Filesystem>(FS);

impl<FS: Filesystem> Holder<FS> {
    pub(crate) fn fs(&self) -> &FS {
        &self.0
    }
}

impl<FS: Filesystem> Drop for Holder<FS> {
    fn drop(&mut self) {
        self.0.destroy();
    }
}

/// The mount, which several may take down.
#[derive(Clone, Debug, Default)]
struct Mounted(Arc<Mutex<Option<Mount>>>);

impl Mounted {
    fn take(&self) -> Option<Mount> {
        self.0.lock().take()
    }

    fn unmount(&self) -> io::Result<()> {
        // The lock is not held meanwhile.
        let mount = self.take();
        mount.map_or(Ok(()), Mount::unmount)
    }
}

/// A mounted file system that is not served yet. Dropping it unmounts.
#[derive(Debug)]
pub struct Session<FS: Filesystem> {
    holder: Holder<FS>,
    device: Arc<FuseDevice>,
    mounted: Mounted,
    door: Door,
    plan: Plan,
    kind: TransportKind,
    max_write: u32,
    long_setxattr: bool,
}

/// The longest read and write through a ring, in bytes.
const RING_PAYLOAD: u32 = 1 << 20;

impl<FS: Filesystem> Session<FS> {
    /// Mounts and agrees with the kernel. No thread is started before [`Session::run`].
    ///
    /// # Errors
    /// Contradicting options, what refuses the mount, what [`Filesystem::init`] says, and a transport that is not
    /// available.
    pub fn new<P: AsRef<Path>>(filesystem: FS, mountpoint: P, options: &Config) -> io::Result<Self> {
        options.check()?;
        let holder = Holder(filesystem);
        let plan = Plan::new(options)?;
        tracing::info!("mounting {}", mountpoint.as_ref().display());
        let (device, mount) = Mount::new(mountpoint.as_ref(), options)?;
        Self::greet((holder, plan), device, Some(mount), options.acl)
    }

    /// Serves a device that somebody else has mounted, and is to unmount. Options of the mount have no effect.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn from_fd(filesystem: FS, fd: OwnedFd, acl: SessionACL, config: Config) -> io::Result<Self> {
        let holder = Holder(filesystem);
        let plan = Plan::new(&config)?;
        Self::greet((holder, plan), Arc::new(FuseDevice::from_fd(fd)?), None, acl)
    }

    fn greet(
        (mut holder, plan): (Holder<FS>, Plan),
        device: Arc<FuseDevice>,
        mount: Option<Mount>,
        acl: SessionACL,
    ) -> io::Result<Self> {
        let greeting = Greeting::read(&device)?;
        let refused = |error: io::Error| {
            greeting.refuse(&device, Errno::from_i32(error.raw_os_error().unwrap_or(0)));
            error
        };
        let kind = plan.decide(greeting.init.offered()).map_err(refused)?;
        let mut config = KernelConfig::new(&greeting.init);
        holder.0.init(&Request::new(greeting.header), &mut config).map_err(refused)?;
        let uring = kind == TransportKind::Uring;
        if uring {
            config.limit_to(RING_PAYLOAD);
        }
        greeting.agree(&device, &config.reply(uring));
        Ok(Self {
            holder,
            device,
            mounted: Mounted(Arc::new(Mutex::new(mount))),
            door: Door { acl, owner: spawn::effective_uid() },
            plan,
            kind,
            max_write: config.max_write(),
            long_setxattr: greeting.init.offered().contains(InitFlags::SETXATTR_EXT),
        })
    }

    /// Serves in a thread of its own.
    ///
    /// # Errors
    /// What keeps a thread from being started.
    pub fn spawn(self) -> io::Result<BackgroundSession> {
        let device = Arc::clone(&self.device);
        let mount = self.mounted.take();
        let guard = thread::Builder::new().name("fuser-bg".into()).spawn(move || self.run())?;
        Ok(BackgroundSession { guard, device, mount })
    }

    /// Serves until the file system is unmounted.
    ///
    /// # Errors
    /// Those of starting the threads, and the first that ended one of them.
    pub fn run(self) -> io::Result<()> {
        let Self { holder, device, mounted: _unmounted_last, door, plan, kind, max_write, long_setxattr } =
            self;
        let uring = kind == TransportKind::Uring;
        let queues = plan.queues.unwrap_or(plan.calls);
        // Beside rings a thread reads the device.
        let gate = (uring || queues > plan.calls).then(|| Gate::new(plan.calls));
        let shared = Arc::new(Shared { holder, device, door, gate, max_write, long_setxattr });
        if uring {
            let payload_len = RING_PAYLOAD as usize;
            let settings =
                Settings { queues: plan.queues, payload_len, plain_threads: true, ..Settings::default() };
            return shared.serve_rings(&settings);
        }
        shared.serve_devices(kind == TransportKind::Cloned, queues)
    }

    /// Unmounts.
    ///
    /// # Errors
    /// EBUSY where files are open.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.mounted.unmount()
    }

    /// What unmounts, from any thread.
    pub fn unmount_callable(&mut self) -> SessionUnmounter {
        SessionUnmounter { mounted: self.mounted.clone() }
    }

    /// What tells the kernel of changes behind its back.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.device)
    }
}

impl<FS: Filesystem> AsFd for Session<FS> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Unmounts, from any thread.
#[derive(Debug)]
pub struct SessionUnmounter {
    mounted: Mounted,
}

impl SessionUnmounter {
    /// Unmounts.
    ///
    /// # Errors
    /// EBUSY where files are open.
    pub fn unmount(&mut self) -> io::Result<()> {
        self.mounted.unmount()
    }
}

/// A file system that is served by a thread of its own. Dropping it unmounts.
#[derive(Debug)]
pub struct BackgroundSession {
    /// The thread.
    pub guard: JoinHandle<io::Result<()>>,
    device: Arc<FuseDevice>,
    mount: Option<Mount>,
}

impl BackgroundSession {
    /// Unmounts and waits for the end.
    ///
    /// # Errors
    /// EBUSY where files are open, and as [`Session::run`].
    pub fn umount_and_join(mut self) -> io::Result<()> {
        if let Some(mount) = self.mount.take() {
            mount.unmount()?;
        }
        self.join()
    }

    /// What tells the kernel of changes behind its back.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.device)
    }

    /// Waits for the end, whoever unmounts.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn join(self) -> io::Result<()> {
        self.guard.join().unwrap_or_else(|_| Err(io::Error::other("the session's thread panicked")))
    }
}
