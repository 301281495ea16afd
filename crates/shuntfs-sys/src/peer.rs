//! What a test puts in the kernel's place behind a [`FuseDevice`].
//!
//! Requests come as packets through a socket, so that whatever waits for a device, polls it or reads it does the same
//! here. What the kernel answers at once (a reply that it takes or refuses, an ioctl) is a call.
//!
//! [`FuseDevice`]: crate::FuseDevice

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use crate::data::Pipe;
use crate::threads::MachineCpus;
use crate::uring::{RingEnd, RingPeer};
use crate::{OsError, Result};

/// What is called where the kernel would answer a system call on the device.
pub trait Peer: Send + Sync + fmt::Debug {
    /// Takes one reply or notification, whole; returns its length.
    ///
    /// # Errors
    /// Those of the kernel: [`crate::FuseDevice::write`].
    fn write(&self, message: &[IoSlice<'_>]) -> Result<usize>;

    /// A request was read, and is its reader's now. Default: nothing.
    fn was_read(&self, request: &[u8]) {
        let _ = request;
    }

    /// Registers a lower file.
    ///
    /// # Errors
    /// Those of the kernel: [`crate::FuseDevice::backing_open`].
    fn backing_open(&self, lower: BorrowedFd<'_>) -> Result<u32>;

    /// Gives up a backing id.
    ///
    /// # Errors
    /// Those of the kernel: [`crate::FuseDevice::backing_close`].
    fn backing_close(&self, id: u32) -> Result<()>;

    /// The CPUs of the machine that the kernel runs on. Default: those of this one.
    fn cpus(&self) -> MachineCpus {
        MachineCpus::now()
    }

    /// A ring is made for commands to the device. Default: the device takes none.
    ///
    /// # Errors
    /// EOPNOTSUPP.
    fn ring(self: Arc<Self>, end: RingEnd) -> Result<Arc<dyn RingPeer>> {
        drop(end);
        Err(OsError::OPNOTSUPP)
    }
}

/// The peer's end of a device.
#[derive(Debug)]
pub struct PeerEnd(OwnedFd);

/// How long a request may wait for room: only a server that has stopped reading lets it.
const SEND_LIMIT: Duration = Duration::from_secs(60);
/// Asked for; the kernel grants what `net.core.wmem_max` allows.
const SEND_BUFFER: usize = 4 << 20;

impl PeerEnd {
    pub(crate) fn pair() -> Result<(OwnedFd, Self)> {
        let kind = SocketType::SEQPACKET;
        let (device, peer) = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        set_socket_send_buffer_size(&peer, SEND_BUFFER)?;
        set_socket_timeout(&peer, Timeout::Send, Some(SEND_LIMIT))?;
        Ok((device, Self(peer)))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// EMSGSIZE for one that is longer than the socket's buffer (200 KiB always fit), EPIPE or ECONNRESET where every
    /// descriptor of the device is closed, EAGAIN where nobody reads.
    pub fn send(&self, request: &[u8]) -> Result<()> {
        rustix::net::send(&self.0, request, SendFlags::NOSIGNAL).map(drop)
    }

    /// Waits for a reply that was written to the socket itself, as a ring does; 0 at the end.
    ///
    /// # Errors
    /// What recv(2) gives.
    pub fn take(&self, reply: &mut [u8]) -> Result<usize> {
        rustix::net::recv(&self.0, reply, RecvFlags::empty()).map(|(len, _)| len)
    }

    /// Ends the connection, both ways: the device gives ENODEV when what was sent is read.
    pub fn end(&self) {
        // That the other end is gone already is as good.
        let _ended = rustix::net::shutdown(&self.0, Shutdown::Both);
    }
}

/// The peer, as a device has it.
pub(crate) struct StandIn {
    pub(crate) peer: Arc<dyn Peer>,
    /// The open socket is shared by all clones, so that whether a read waits is said with each read.
    nonblocking: AtomicBool,
}

impl StandIn {
    pub(crate) fn new(peer: Arc<dyn Peer>) -> Self {
        Self { peer, nonblocking: AtomicBool::new(false) }
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, socket: &OwnedFd, request: &mut [u8]) -> Result<usize> {
        let waits = !self.nonblocking.load(Ordering::Relaxed);
        let flags = if waits { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        match rustix::net::recv(socket, &mut *request, flags) {
            Ok((0, _)) | Err(OsError::CONNRESET) => Err(OsError::NODEV),
            Ok((len, _)) => {
                self.peer.was_read(request.get(..len).unwrap_or_default());
                Ok(len)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn take_from(&self, pipe: &Pipe, len: usize) -> Result<usize> {
        let mut reply = vec![0; len];
        let mut taken = 0;
        while taken < len {
            match pipe.read(&mut [IoSliceMut::new(&mut reply[taken..])])? {
                0 => return Err(OsError::INVAL),
                count => taken += count,
            }
        }
        self.peer.write(&[IoSlice::new(&reply)])
    }
}

#[cfg(test)]
mod test {
    use std::os::fd::AsFd;
    use std::sync::Mutex;

    use super::*;
    use crate::FuseDevice;

    #[derive(Debug, Default)]
    struct Seen(Mutex<Vec<Vec<u8>>>);

    impl Peer for Seen {
        fn write(&self, message: &[IoSlice<'_>]) -> Result<usize> {
            let bytes: Vec<u8> = message.iter().flat_map(|piece| piece.iter().copied()).collect();
            let len = bytes.len();
            self.0.lock().unwrap().push(bytes);
            Ok(len)
        }

        fn backing_open(&self, _: BorrowedFd<'_>) -> Result<u32> {
            Ok(7)
        }

        fn backing_close(&self, id: u32) -> Result<()> {
            if id == 7 { Ok(()) } else { Err(OsError::NOENT) }
        }
    }

    #[test]
    fn a_peer_answers_in_the_kernels_place() {
        let seen = Arc::new(Seen::default());
        let (device, end) = FuseDevice::of_peer(seen.clone()).unwrap();
        let clone = device.clone_of().unwrap();
        clone.set_nonblocking(true).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(clone.read(&mut buffer), Err(OsError::AGAIN), "a clone has a mode of its own");
        end.send(b"one").unwrap();
        end.send(b"two more").unwrap();
        assert_eq!((device.read(&mut buffer), &buffer[..3]), (Ok(3), &b"one"[..]));
        assert_eq!(clone.read(&mut buffer), Ok(8), "each request is read once");
        assert_eq!(device.write(&[IoSlice::new(b"an"), IoSlice::new(b"swer")]), Ok(6));
        assert_eq!(seen.0.lock().unwrap().pop().as_deref(), Some(&b"answer"[..]));
        assert_eq!(device.backing_open(device.as_fd()), Ok(7));
        assert_eq!((device.backing_close(7), device.backing_close(8)), (Ok(()), Err(OsError::NOENT)));
        rustix::io::write(&device, b"by a ring").unwrap();
        assert_eq!((end.take(&mut buffer), &buffer[..9]), (Ok(9), &b"by a ring"[..]));
        end.end();
        assert_eq!(device.read(&mut buffer), Err(OsError::NODEV));
        assert_eq!(clone.read(&mut buffer), Err(OsError::NODEV));
    }

    #[test]
    fn a_reply_in_a_pipe_reaches_the_peer_whole() {
        let seen = Arc::new(Seen::default());
        let (device, _end) = FuseDevice::of_peer(seen.clone()).unwrap();
        let pipe = Pipe::new(1 << 16).unwrap();
        pipe.write(b"header").unwrap();
        pipe.write(b"and pages").unwrap();
        assert_eq!(device.splice(&pipe, 15), Ok(15));
        assert_eq!(seen.0.lock().unwrap().pop().as_deref(), Some(&b"headerand pages"[..]));
    }
}
