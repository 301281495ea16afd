//! Datagrams that carry descriptors, to a socket that has a name.

use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg_addr,
    socket_with,
};

use crate::{OsError, Result};

/// How many descriptors a datagram carries at most: `SCM_MAX_FD` of the kernel.
pub const PASSED_MAX: usize = 253;

/// A socket that sends to a name.
#[derive(Debug)]
pub struct Datagrams {
    socket: OwnedFd,
    to: SocketAddrUnix,
}

impl Datagrams {
    /// To the socket at a path, or where that begins with `@`, to the abstract one of that name. Nobody needs to be there yet. A datagram
    /// waits for room for `limit` at most.
    ///
    /// # Errors
    /// ENAMETOOLONG and EINVAL for what is no name; EMFILE at the descriptor limit.
    pub fn to(name: &OsStr, limit: Duration) -> Result<Self> {
        let to = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
            _ => SocketAddrUnix::new(name)?,
        };
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
        Ok(Self { socket, to })
    }

    /// Sends bytes, and duplicates of descriptors with them.
    ///
    /// # Errors
    /// EINVAL for more than [`PASSED_MAX`] descriptors; ENOENT and ECONNREFUSED where nobody is there, EAGAIN where there was no room in time.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if fds.len() > PASSED_MAX || (!fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)))
        {
            return Err(OsError::INVAL);
        }
        let bytes = [IoSlice::new(bytes)];
        retry_on_intr(|| sendmsg_addr(&self.socket, &self.to, &bytes, &mut control, SendFlags::NOSIGNAL))
            .map(drop)
    }
}

/// Waits for a datagram; how many bytes it has, and the descriptors that came with it.
///
/// # Errors
/// What recvmsg(2) gives.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    Ok((received.bytes, fds))
}

#[cfg(test)]
mod test {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};

    use super::*;

    #[test]
    fn descriptors_come_with_the_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let socket = UnixDatagram::bind(&path).expect("binds");
        let to = Datagrams::to(path.as_os_str(), Duration::from_secs(1)).expect("a name");
        let (mut here, there) = UnixStream::pair().expect("a pair");
        to.send(b"two", &[there.as_fd(), there.as_fd()]).expect("sends");
        to.send(b"none", &[]).expect("sends");
        drop(there);
        let mut bytes = [0; 16];
        let (len, fds) = receive(socket.as_fd(), &mut bytes).expect("is there");
        assert_eq!((&bytes[..len], fds.len()), (&b"two"[..], 2));
        for fd in fds {
            UnixStream::from(fd).write_all(b"x").expect("is the other end");
        }
        let mut read = Vec::new();
        here.read_to_end(&mut read).expect("both are closed");
        assert_eq!(read, b"xx");
        let (len, fds) = receive(socket.as_fd(), &mut bytes).expect("is there");
        assert_eq!((&bytes[..len], fds.len()), (&b"none"[..], 0));
    }

    #[test]
    fn who_is_not_there_or_does_not_read_is_not_waited_for() {
        let nobody = Datagrams::to(OsStr::new("/nonexistent/socket"), Duration::from_secs(1));
        assert_eq!(nobody.expect("a name").send(b"x", &[]), Err(OsError::NOENT));
        let name = format!("@shuntfs-passing-{}", std::process::id());
        let to = Datagrams::to(OsStr::new(&name), Duration::from_millis(20)).expect("a name");
        assert_eq!(to.send(b"x", &[]), Err(OsError::CONNREFUSED));
        let address = SocketAddr::from_abstract_name(&name[1..]).expect("a name");
        let _silent = UnixDatagram::bind_addr(&address).expect("binds");
        let refused = (0..100_000).find_map(|_| to.send(&[0; 1000], &[]).err());
        assert_eq!(refused, Some(OsError::AGAIN));
    }
}
