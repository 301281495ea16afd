//! What a server needs of the system to live in the background, and to know who talks to it.
#![expect(
    unsafe_code,
    reason = "takes over and closes descriptors by their number, which std can only do unsafely"
)]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::Result;
use crate::process::number;

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

/// Leaves the caller's session and controlling terminal behind, and its working directory, which would otherwise
/// stay busy. For a process that was started as a child: the leader of a process group cannot.
///
/// # Errors
/// `EPERM` where this process leads its process group.
pub fn detach_session() -> Result<()> {
    rustix::process::setsid()?;
    rustix::process::chdir("/")
}

/// Has this process told to end (SIGTERM) when the thread that started it ends, or not any more. For a server that nobody
/// knows of before its parent has heard of it.
///
/// # Errors
/// None that Linux is known to give.
pub fn end_with_parent(end: bool) -> Result<()> {
    rustix::process::set_parent_process_death_signal(end.then_some(rustix::process::Signal::TERM))
}

/// The descriptors that this process was started with beyond standard input, output and error: what the caller's shell
/// had open, a lock perhaps, or a pipe whose reader waits for its end.
#[derive(Debug)]
pub struct Inherited(Vec<RawFd>);

impl Inherited {
    /// Looks for them: they were open across an exec, so they are not marked to be closed by one, which all that are opened
    /// in this program are. None are found where /proc does not exist.
    #[must_use]
    pub fn look() -> Self {
        let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
        Self(numbers.filter(|number| *number > 2 && survives_exec(*number)).collect())
    }

    /// Marks them to be closed by the next exec, as all that are opened in this program are, and gives their numbers.
    ///
    /// # Errors
    /// EBADF where one was closed meanwhile.
    pub fn into_numbers(self) -> Result<Vec<RawFd>> {
        self.0.iter().try_for_each(|number| crate::program::pass_on(*number, false))?;
        Ok(self.0)
    }

    /// Closes them. Nothing of this program may use them by their number any more.
    pub fn close(self) {
        for number in self.0 {
            // SAFETY: it is open since this program started, and no object of this program owns it: one that must be
            // used is duplicated (`inherited_fd`).
            unsafe { rustix::io::close(number) };
        }
    }
}

fn survives_exec(number: RawFd) -> bool {
    // SAFETY: the number comes from /proc and is not -1; the borrow ends within this function. Where it was that of the
    // folder that was read, it is marked.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(fd).is_ok_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
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

/// Takes over a descriptor that this process was started with, as a service manager hands them over, and marks it to be closed by an
/// exec. `None` where there is none, or where it was taken or marked before. Not to be mixed with [`Inherited`], which has seen it open.
#[must_use]
pub fn take_inherited(number: RawFd) -> Option<OwnedFd> {
    if number <= 2 || !survives_exec(number) {
        return None;
    }
    // SAFETY: it is open since this program started, and no object of this program owns it: all that are opened here are marked, and so is
    // this one from now on.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC).ok().map(|()| fd)
}

/// Connects to the Unix socket at a path, like `UnixStream::connect`, but not forever: a listener that takes nobody lets callers wait as
/// soon as its backlog is full.
///
/// # Errors
/// `EAGAIN` where it takes longer than `limit`, and those of connect(2).
pub fn connect_within(path: &Path, limit: Duration) -> Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Zero would mean no limit.
    let limit = limit.max(Duration::from_micros(1));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit))?;
    rustix::net::connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
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
    /// To read its settings again (SIGHUP).
    HangUp,
    /// To go on, where it was stopped (SIGCONT).
    GoOn,
    /// To be no more (SIGKILL).
    Die,
}

/// Sends a signal to a process.
///
/// # Errors
/// `ESRCH` where it is gone, `EPERM` where it is someone else's, `EINVAL` for what is no process number.
pub fn push(pid: u32, push: Push) -> Result<()> {
    rustix::process::kill_process(number(pid).ok_or(rustix::io::Errno::INVAL)?, signal_of(push))
}

/// Kills (SIGKILL) a child that leads a process group, as one does after [`detach_session`], and all that it has started in it. The child
/// must not have been waited for: its number is that of the group.
///
/// # Errors
/// `ESRCH` where it leads none, `EINVAL` for what is no process number.
pub fn kill_group(leader: u32) -> Result<()> {
    let leader = number(leader).ok_or(rustix::io::Errno::INVAL)?;
    rustix::process::kill_process_group(leader, rustix::process::Signal::KILL)
}

fn signal_of(push: Push) -> rustix::process::Signal {
    match push {
        Push::End => rustix::process::Signal::TERM,
        Push::HangUp => rustix::process::Signal::HUP,
        Push::GoOn => rustix::process::Signal::CONT,
        Push::Die => rustix::process::Signal::KILL,
    }
}

/// Sends a signal to a process of this user, and to nobody else's: its number may have been another's when it was heard of.
///
/// # Errors
/// As [`push`]; `ESRCH`, too, where the process is another user's; `ENOSYS` before Linux 5.3.
pub fn push_to_user(pid: u32, uid: u32, push: Push) -> Result<()> {
    let number = number(pid).ok_or(rustix::io::Errno::INVAL)?;
    let held = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty())?;
    // Looked at while it is held: the number cannot become another's meanwhile without the signal failing.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut ids =
        status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default().split_whitespace();
    if !ids.all(|id| id.parse() == Ok(uid)) || status.is_empty() {
        return Err(rustix::io::Errno::SRCH);
    }
    rustix::process::pidfd_send_signal(held, signal_of(push))
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
        assert!(take_inherited(here.as_raw_fd()).is_none(), "it was opened here");
        assert!([999_999, 1, -1].into_iter().all(|number| take_inherited(number).is_none()));
    }

    #[test]
    fn a_process_is_stopped_from_waiting() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        push(child.id(), Push::GoOn).expect("is there");
        push(child.id(), Push::End).expect("is there");
        assert!(!child.wait().expect("is a child").success());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        let (pid, uid) = (child.id(), effective_uid());
        assert_eq!(push_to_user(pid, uid + 1, Push::Die), Err(rustix::io::Errno::SRCH));
        assert!(child.try_wait().expect("is a child").is_none(), "another user's is left alone");
        push_to_user(pid, uid, Push::Die).expect("is there");
        assert!(!child.wait().expect("is a child").success());
        assert_eq!(push(0, Push::Die), Err(rustix::io::Errno::INVAL), "zero is the whole process group");
    }

    #[test]
    fn a_group_is_killed_whole_and_a_child_that_leads_none_is_left() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        assert_eq!(kill_group(child.id()), Err(rustix::io::Errno::SRCH));
        assert!(child.try_wait().expect("is a child").is_none());
        child.kill().and_then(|()| child.wait()).expect("is a child");
        // What it has started holds the pipe open for as long as it lives.
        let mut leader = std::process::Command::new("setsid")
            .args(["sh", "-c", "sleep 60 & echo started; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("starts");
        let mut said = leader.stdout.take().expect("was piped");
        said.read_exact(&mut [0; 8]).expect("it leads by now");
        kill_group(leader.id()).expect("it leads one");
        assert!(!leader.wait().expect("is a child").success());
        let started = std::time::Instant::now();
        said.read_to_end(&mut Vec::new()).expect("ends");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        assert_eq!(kill_group(0), Err(rustix::io::Errno::INVAL), "zero is the own group");
    }

    #[test]
    fn a_listener_that_takes_nobody_is_not_waited_for_for_ever() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        assert_eq!(connect_within(&path, Duration::ZERO).err(), Some(rustix::io::Errno::NOENT));
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("binds");
        rustix::net::listen(&listener, 0).expect("listens");
        let started = std::time::Instant::now();
        let mut taken = Vec::new();
        let refused = loop {
            match connect_within(&path, Duration::from_millis(200)) {
                Ok(stream) => taken.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused, rustix::io::Errno::AGAIN);
        assert!(!taken.is_empty() && started.elapsed() >= Duration::from_millis(150));
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (here, _there) = UnixStream::pair().expect("a pair");
        let peer = peer_of(&here).expect("has one");
        assert_eq!(peer, Peer { pid: std::process::id(), uid: effective_uid(), gid: effective_gid() });
    }
}
