//! What a server gets from its keeper.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use shuntfs::takeover::{Handover, KeptMount, Stateless, TakeoverError};
use shuntfs::{FuseDevice, Session, SessionOptions};
use shuntfs_sys::spawn;

use crate::channel::{Channel, Said};

/// What was told of the connection, with the keeper's duplicates of its clones.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) handover: Handover,
    pub(crate) clones: Vec<OwnedFd>,
}

/// The place of a server: a connection that is to be begun, or gone on with.
#[derive(Debug)]
pub struct Seat<'k> {
    pub(crate) mount: &'k KeptMount,
    pub(crate) told: Option<&'k Told>,
    pub(crate) channel: &'k Channel,
    pub(crate) predecessors: u64,
}

impl Seat<'_> {
    /// How many servers this connection had before.
    #[must_use]
    pub fn predecessors(&self) -> u64 {
        self.predecessors
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
        let Some(Told { handover, clones }) = self.told else {
            return Session::serve_lasting(fs, device, options, |handover, clones| {
                self.tell(handover, clones)
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

    /// The keeper makes duplicates of the clones, which stay open in its table until then, whatever becomes of this process.
    fn tell(&self, handover: &Handover, clones: &[BorrowedFd<'_>]) -> io::Result<()> {
        let numbers = clones.iter().map(AsRawFd::as_raw_fd).collect();
        self.channel.say(&Said::Handover(handover.clone(), numbers))
    }
}

/// A descriptor of the keeper's stays the keeper's: what a server closes is closed for both.
fn duplicate(fd: &impl AsFd) -> Result<FuseDevice, TakeoverError> {
    let copy = spawn::inherited_fd(fd.as_fd().as_raw_fd());
    copy.and_then(FuseDevice::from_fd).map_err(TakeoverError::Descriptor)
}
