//! What a server gets from its keeper.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use shuntfs::takeover::{
    Deaths, Handover, KeptMount, LeftBehind, LeftDescriptors, Stateless, Surviving, TakeoverError,
};
use shuntfs::{FuseDevice, Session, SessionOptions};
use shuntfs_sys::{limits, spawn};

use crate::channel::{Channel, Line, Said};
use crate::filling;

/// Descriptors that a server with state leaves to the next one, which opens its own while the table has those of the dead one, too.
const SPARE: u64 = 256;
const SPARE_PER_CPU: u64 = 16;

/// What was told of the connection, with the keeper's duplicates of its clones and of the state.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) handover: Handover,
    pub(crate) clones: Vec<OwnedFd>,
    /// Of a file system that has some.
    pub(crate) state: Option<OwnedFd>,
}

/// The place of a server: a connection that must be begun, or gone on with.
#[derive(Debug)]
pub struct Seat<'k> {
    pub(crate) mount: &'k KeptMount,
    pub(crate) told: Option<&'k Told>,
    pub(crate) channel: &'k Channel,
    pub(crate) keeper: u32,
    pub(crate) predecessors: u64,
    pub(crate) taken_back: Option<&'k str>,
    pub(crate) deaths: Deaths,
    /// What they had open, where there is state that may name it.
    pub(crate) left: RefCell<LeftDescriptors>,
}

impl Seat<'_> {
    /// How many servers this connection had before.
    #[must_use]
    pub fn predecessors(&self) -> u64 {
        self.predecessors
    }

    /// Why another program that was to go on did not, or did for too short a time; `None` where there was none, or it goes on.
    #[must_use]
    pub fn taken_back(&self) -> Option<&str> {
        self.taken_back
    }

    /// The connection's number, as in `/sys/fs/fuse/connections`; `None` where it is not known.
    #[must_use]
    pub fn connection(&self) -> Option<u32> {
        self.mount.connection()
    }

    /// The keeper's process.
    #[must_use]
    pub fn keeper(&self) -> u32 {
        self.keeper
    }

    /// Whether the keeper lives. A server whose keeper died goes on alone.
    #[must_use]
    pub fn has_keeper(&self) -> bool {
        std::os::unix::process::parent_id() == self.keeper
    }

    /// Asks the keeper to end, as a signal to it does: for a server that takes such signals itself. What reaches both of them (Ctrl-C) counts
    /// once.
    ///
    /// # Errors
    /// Those of sending a datagram.
    pub fn ask_to_end(&self) -> io::Result<()> {
        self.channel.say(&Said::AskedToEnd)
    }

    /// A way to the keeper, for another thread.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit.
    pub fn line(&self) -> io::Result<Line> {
        self.channel.line()
    }

    /// Serves `fs` until the connection ends. Each server makes a value of its own, as the first one did.
    ///
    /// # Errors
    /// [`TakeoverError`].
    pub fn serve<F: Stateless>(&self, fs: F, options: &SessionOptions) -> Result<(), TakeoverError> {
        let session = self.begin(Arc::new(fs), options)?;
        self.ready().map_err(TakeoverError::Untold)?;
        session.wait();
        Ok(())
    }

    /// As [`Seat::serve`], for a file system with state: nodes, open files and passthrough survive, and what was done and not answered is not
    /// done again.
    ///
    /// # Errors
    /// [`TakeoverError`].
    pub fn serve_surviving<F: Surviving>(
        &self,
        fs: F,
        options: &SessionOptions,
    ) -> Result<(), TakeoverError> {
        let session = self.begin_surviving(Arc::new(fs), options)?;
        self.ready().map_err(TakeoverError::Untold)?;
        session.wait();
        Ok(())
    }

    /// As [`Seat::begin`], for a file system with state. Lowers this process's limit on open descriptors by 256 and 16 for each CPU, at most by a
    /// quarter: the next server needs them to begin.
    ///
    /// # Errors
    /// [`TakeoverError`].
    pub fn begin_surviving<F: Surviving>(
        &self,
        fs: Arc<F>,
        options: &SessionOptions,
    ) -> Result<Session, TakeoverError> {
        let session = self.begin_in_shared_table(fs, options)?;
        if let Some(rings) = session.kept_rings() {
            let path = self.mount.path().to_owned();
            let attends = self.line().and_then(|line| filling::attend(Arc::clone(rings), line, path));
            attends.map_err(TakeoverError::Untold)?;
        }
        // Nodes and open files may need all that there are, and this server's stay open until the next one has begun.
        let queues = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        limits::spare_nofile(SPARE + SPARE_PER_CPU * queues);
        Ok(session)
    }

    fn begin_in_shared_table<F: Surviving>(
        &self,
        fs: Arc<F>,
        options: &SessionOptions,
    ) -> Result<Session, TakeoverError> {
        let device = duplicate(self.mount.device())?;
        let Some(Told { handover, clones, state }) = self.told else {
            return Session::serve_surviving(fs, device, options, |handover, clones, state| {
                self.tell(handover, clones, Some(state))
            });
        };
        let state = state.as_ref().ok_or(TakeoverError::NoState)?;
        let state = spawn::inherited_fd(state.as_raw_fd()).map_err(TakeoverError::Descriptor)?;
        let clones = clones.iter().map(duplicate).collect::<Result<Vec<_>, _>>()?;
        let descriptors = self.left.replace(LeftDescriptors::none());
        let left = LeftBehind { device, clones, state, descriptors, deaths: self.deaths };
        Session::take_over_surviving(fs, left, handover, options)
    }

    /// Begins to serve, in threads. For servers that do something besides; [`Seat::ready`] is then to be called, and the
    /// session to be waited for ([`Session::wait`]). [`Session::unmount`] cannot be used: the mount is the keeper's.
    ///
    /// # Errors
    /// [`TakeoverError`].
    pub fn begin<F: Stateless>(
        &self,
        fs: Arc<F>,
        options: &SessionOptions,
    ) -> Result<Session, TakeoverError> {
        let device = duplicate(self.mount.device())?;
        let Some(Told { handover, clones, .. }) = self.told else {
            return Session::serve_lasting(fs, device, options, |handover, clones| {
                self.tell(handover, clones, None)
            });
        };
        let clones = clones.iter().map(duplicate).collect::<Result<Vec<_>, _>>()?;
        Session::take_over(fs, device, clones, handover, options)
    }

    /// Says that callers are served.
    ///
    /// # Errors
    /// Those of sending a datagram.
    pub fn ready(&self) -> io::Result<()> {
        self.channel.say(&Said::Ready)
    }

    /// The keeper makes duplicates of the clones and of the state, which stay open in its table until then, whatever becomes of this process.
    fn tell(
        &self,
        handover: &Handover,
        clones: &[BorrowedFd<'_>],
        state: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let numbers = clones.iter().map(AsRawFd::as_raw_fd).collect();
        let state = state.map(|state| state.as_raw_fd());
        self.channel.say(&Said::Handover(handover.clone(), numbers, state))
    }
}

/// A descriptor of the keeper's stays the keeper's: what a server closes is closed for both.
fn duplicate(fd: &impl AsFd) -> Result<FuseDevice, TakeoverError> {
    let copy = spawn::inherited_fd(fd.as_fd().as_raw_fd());
    copy.and_then(FuseDevice::from_fd).map_err(TakeoverError::Descriptor)
}
