//! What a server needs of the system to live in the background, and to know who talks to it.
#![expect(unsafe_code, reason = "takes over a descriptor by its number, which std can only do unsafely")]

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use crate::Result;

/// Who is at the other end of a Unix socket, as the kernel noted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The process that connected, or that listened.
    pub pid: u32,
    /// Its effective uid.
    pub uid: u32,
    /// Its effective gid.
    pub gid: u32,
}

/// Leaves the caller's session and controlling terminal behind, and its working folder, which would otherwise
/// stay busy. For a process that was started as a child: the leader of a process group cannot.
///
/// # Errors
/// `EPERM` where this process leads its process group.
pub fn detach_session() -> Result<()> {
    rustix::process::setsid()?;
    rustix::process::chdir("/")
}

/// A duplicate, closed on exec, of a descriptor that this process was started with.
///
/// # Errors
/// `EBADF` where there is no such descriptor.
pub fn inherited_fd(number: RawFd) -> Result<OwnedFd> {
    if number < 0 {
        return Err(rustix::io::Errno::BADF);
    }
    // SAFETY: the number is not -1, and the borrow ends within this function, where nothing else can close
    // it; if it is not open, the duplication fails with EBADF and nothing happened.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
}

/// The credentials of the other end of a socket.
///
/// # Errors
/// `ENOTCONN` and others of `SO_PEERCRED`.
pub fn peer_of(socket: &UnixStream) -> Result<Peer> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or(0);
    Ok(Peer { pid, uid: peer.uid.as_raw(), gid: peer.gid.as_raw() })
}

/// What a process can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Push {
    /// To end, cleanly (SIGTERM).
    End,
    /// To go on, where it was stopped (SIGCONT).
    GoOn,
    /// To be no more (SIGKILL).
    Die,
}

/// Sends a signal to another process.
///
/// # Errors
/// `ESRCH` where it is gone, `EPERM` where it is someone else's, `EINVAL` for what is no process number.
pub fn push(pid: u32, push: Push) -> Result<()> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(rustix::process::Pid::from_raw);
    let signal = match push {
        Push::End => rustix::process::Signal::TERM,
        Push::GoOn => rustix::process::Signal::CONT,
        Push::Die => rustix::process::Signal::KILL,
    };
    rustix::process::kill_process(pid.ok_or(rustix::io::Errno::INVAL)?, signal)
}

/// The effective uid of this process.
#[must_use]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The effective gid of this process.
#[must_use]
pub fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

#[cfg(test)]
mod test {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn an_inherited_descriptor_is_a_duplicate() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        let copy = inherited_fd(there.as_raw_fd()).expect("is open");
        drop(there);
        UnixStream::from(copy).write_all(b"x").expect("is the same socket");
        let mut byte = [0];
        here.read_exact(&mut byte).expect("one byte");
        assert_eq!(byte, *b"x");
        assert_eq!(inherited_fd(-1).err(), Some(rustix::io::Errno::BADF));
        assert_eq!(inherited_fd(999_999).err(), Some(rustix::io::Errno::BADF));
    }

    #[test]
    fn a_process_is_stopped_from_waiting() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        push(child.id(), Push::GoOn).expect("is there");
        push(child.id(), Push::End).expect("is there");
        assert!(!child.wait().expect("is a child").success());
        assert_eq!(push(0, Push::Die), Err(rustix::io::Errno::INVAL), "zero is the whole process group");
    }

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        let peer = peer_of(&here).expect("has one");
        assert_eq!(peer, Peer { pid: std::process::id(), uid: effective_uid(), gid: effective_gid() });
    }
}
