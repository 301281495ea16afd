//! /dev/fuse: the descriptor that requests come from and replies go to.
//!
//! # Safety
//! The ioctls are given structures of the layout that `include/uapi/linux/fuse.h` prescribes.
#![expect(unsafe_code, reason = "the ioctls of /dev/fuse have no safe form")]

use std::fmt;
use std::fs::File;
use std::io::{IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};

use crate::data::{Pipe, splice_from_pipe};
use crate::peer::{Peer, PeerEnd, StandIn};
use crate::threads::MachineCpus;
use crate::{OsError, Result, pulse, raw};

const IOC_CLONE: u32 = 0x8004_e500;
const IOC_BACKING_OPEN: u32 = 0x4010_e501;
const IOC_BACKING_CLOSE: u32 = 0x4004_e502;

/// `struct fuse_backing_map` of the kernel.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

const _: () = assert!(size_of::<BackingMap>() == 16);

/// An open /dev/fuse, or a socket to what stands in for the kernel in a test.
pub struct FuseDevice {
    fd: OwnedFd,
    stand_in: Option<StandIn>,
}

impl FuseDevice {
    /// Opens /dev/fuse, which has no connection until it is mounted.
    ///
    /// # Errors
    /// ENOENT or ENODEV without the kernel module, EACCES, EMFILE.
    pub fn open() -> Result<Self> {
        let fd = rustix::fs::openat(CWD, c"/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { fd, stand_in: None })
    }

    /// A device that talks to `peer` instead of the kernel, and the peer's end of it. For tests.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit.
    pub fn of_peer(peer: Arc<dyn Peer>) -> Result<(Self, PeerEnd)> {
        let (fd, end) = PeerEnd::pair()?;
        Ok((Self { fd, stand_in: Some(StandIn::new(peer)) }, end))
    }

    /// What stands in for the kernel.
    pub(crate) fn peer(&self) -> Option<Arc<dyn Peer>> {
        self.stand_in.as_ref().map(|stand_in| Arc::clone(&stand_in.peer))
    }

    /// The CPUs of the machine whose kernel this is.
    #[must_use]
    pub fn cpus(&self) -> MachineCpus {
        self.stand_in.as_ref().map_or_else(MachineCpus::now, |stand_in| stand_in.peer.cpus())
    }

    /// Takes over a descriptor that came from elsewhere: fusermount3, mount.fuse3, a predecessor.
    ///
    /// # Errors
    /// What fcntl(2) gives.
    pub fn from_fd(fd: OwnedFd) -> Result<Self> {
        // A child that inherited the device would keep a dead mount alive.
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        Ok(Self { fd, stand_in: None })
    }

    /// Opens another descriptor of the same connection, with its own table of requests being served.
    ///
    /// # Errors
    /// EPERM where this device is not mounted; what [`FuseDevice::open`] gives.
    pub fn clone_of(&self) -> Result<Self> {
        if let Some(stand_in) = &self.stand_in {
            let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?;
            return Ok(Self { fd, stand_in: Some(StandIn::new(Arc::clone(&stand_in.peer))) });
        }
        let clone = Self::open()?;
        let mut original = self.fd.as_raw_fd();
        // SAFETY: the argument is a 32-bit descriptor number, which the kernel reads.
        unsafe { raw::ioctl(clone.as_fd(), IOC_CLONE, (&raw mut original).cast()) }?;
        Ok(clone)
    }

    /// Takes the next request.
    ///
    /// # Errors
    /// EINTR by a signal, which is passed on so that a thread can be called back; EAGAIN where non-blocking and
    /// idle; ENOENT for a request that was taken back; ENODEV when the mount is gone, ECONNABORTED after an abort.
    pub fn read(&self, request: &mut [u8]) -> Result<usize> {
        let read = match &self.stand_in {
            None => rustix::io::read(&self.fd, request),
            Some(stand_in) => stand_in.read(&self.fd, request),
        };
        if read.is_ok() {
            pulse::beat();
        }
        read
    }

    /// Sends one reply or notification, whole.
    ///
    /// # Errors
    /// ENOENT where the request was aborted or came from another clone, EINVAL for a malformed reply, ENODEV.
    pub fn write(&self, reply: &[IoSlice<'_>]) -> Result<usize> {
        match &self.stand_in {
            None => rustix::io::writev(&self.fd, reply),
            Some(stand_in) => stand_in.peer.write(reply),
        }
    }

    /// Sends one reply that lies in a pipe, which has `len` bytes of it and nothing else.
    ///
    /// # Errors
    /// Those of [`FuseDevice::write`].
    pub fn splice(&self, pipe: &Pipe, len: usize) -> Result<usize> {
        match &self.stand_in {
            None => splice_from_pipe(pipe, self.as_fd(), None, len),
            Some(stand_in) => stand_in.take_from(pipe, len),
        }
    }

    /// Registers a lower file as backing file and gives its backing id; an `O_PATH` descriptor will do.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN in the first user namespace, before INIT, or where passthrough was not agreed on;
    /// EINVAL for what is no regular file, EISDIR for a folder, ELOOP where file systems are stacked too deep,
    /// ENOTTY before Linux 6.9.
    pub fn backing_open(&self, fd: impl AsFd) -> Result<u32> {
        if let Some(StandIn { peer, .. }) = &self.stand_in {
            return peer.backing_open(fd.as_fd());
        }
        let mut map = BackingMap { fd: fd.as_fd().as_raw_fd(), flags: 0, padding: 0 };
        // SAFETY: the argument is a `fuse_backing_map`, which the kernel reads.
        let id = unsafe { raw::ioctl(self.as_fd(), IOC_BACKING_OPEN, (&raw mut map).cast()) }?;
        u32::try_from(id).map_err(|_| OsError::IO)
    }

    /// Gives up a backing id; opens that use it go on.
    ///
    /// # Errors
    /// ENOENT for an id that is not registered.
    pub fn backing_close(&self, id: u32) -> Result<()> {
        if let Some(StandIn { peer, .. }) = &self.stand_in {
            return peer.backing_close(id);
        }
        let mut id = id;
        // SAFETY: the argument is a 32-bit id, which the kernel reads.
        unsafe { raw::ioctl(self.as_fd(), IOC_BACKING_CLOSE, (&raw mut id).cast()) }.map(drop)
    }

    /// Makes reads give EAGAIN instead of waiting; holds for every descriptor of the same open file.
    ///
    /// # Errors
    /// What fcntl(2) gives.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        if let Some(stand_in) = &self.stand_in {
            stand_in.set_nonblocking(nonblocking);
            return Ok(());
        }
        let flags = rustix::fs::fcntl_getfl(&self.fd)?;
        let wanted = if nonblocking { flags | OFlags::NONBLOCK } else { flags.difference(OFlags::NONBLOCK) };
        rustix::fs::fcntl_setfl(&self.fd, wanted)
    }

    /// The connection's number (its folder below `/sys/fs/fuse/connections`), `None` before the mount or where the
    /// kernel does not tell.
    ///
    /// # Errors
    /// What reading `/proc/self/fdinfo` gives.
    pub fn connection_id(&self) -> Result<Option<u32>> {
        let path = format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd());
        let mut text = String::new();
        let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
        read.map_err(|error| OsError::from_io_error(&error).unwrap_or(OsError::IO))?;
        let line = text.lines().find_map(|line| line.strip_prefix("fuse_connection:"));
        Ok(line.and_then(|number| number.trim().parse().ok()))
    }
}

impl AsFd for FuseDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for FuseDevice {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl From<FuseDevice> for OwnedFd {
    fn from(device: FuseDevice) -> Self {
        device.fd
    }
}

impl fmt::Debug for FuseDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fd, stand_in) = (self.as_raw_fd(), self.stand_in.is_some());
        f.debug_struct("FuseDevice").field("fd", &fd).field("stand_in", &stand_in).finish()
    }
}
