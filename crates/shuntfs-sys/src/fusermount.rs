//! Mounting as an ordinary user, through the set-uid program fusermount3.
//!
//! The program opens and mounts the device and sends its descriptor over a socket whose number stands in
//! `_FUSE_COMMFD`. The socket is its standard input here, so nothing has to survive an exec by accident.

use std::ffi::OsStr;
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use crate::OsError;
use crate::device::FuseDevice;
use crate::event::wait_readable;
use crate::mount::MountError;

/// The names that the program goes by.
const PROGRAMS: [&str; 2] = ["fusermount3", "fusermount"];
/// How long the program may take: it waits for nothing but the kernel.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often an ended child is looked for.
const PAUSE: Duration = Duration::from_millis(2);

/// Mounts at `target` with `options` as `-o` takes them, and gives the mounted device. `auto_unmount` must not be
/// among them, because the program would then stay. Waits 20 seconds at most, and leaves no child behind.
///
/// # Errors
/// [`MountError::NoFusermount`], what the program said, or that it did not answer.
pub fn mount_by_fusermount(target: &Path, options: &OsStr) -> Result<FuseDevice, MountError> {
    let end = Instant::now() + PATIENCE;
    let (device, _, mut child) = ask(target, options)?;
    let status = child.wait(end).ok_or(MountError::FusermountStuck)?;
    match device {
        Some(device) => Ok(device),
        None => Err(MountError::Fusermount { message: child.message(status) }),
    }
}

/// The program, which stays to unmount what this process leaves behind, however it ends. Dropping this has it look at once.
#[derive(Debug)]
pub struct Lifeline {
    socket: Option<OwnedFd>,
    child: Reaped,
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        drop(self.socket.take());
        // What is mounted there no more is nothing to it, and it ends.
        let _ended = self.child.wait(Instant::now() + PATIENCE);
    }
}

/// As [`mount_by_fusermount`], and has the program unmount when this process has ended, or the [`Lifeline`] was dropped.
///
/// # Errors
/// As for [`mount_by_fusermount`].
pub fn mount_for_life(target: &Path, options: &OsStr) -> Result<(FuseDevice, Lifeline), MountError> {
    let end = Instant::now() + PATIENCE;
    let mut options = options.to_owned();
    options.push(",auto_unmount");
    let (device, socket, mut child) = ask(target, &options)?;
    match device {
        Some(device) => Ok((device, Lifeline { socket: Some(socket), child })),
        None => {
            let status = child.wait(end).ok_or(MountError::FusermountStuck)?;
            Err(MountError::Fusermount { message: child.message(status) })
        }
    }
}

/// Starts the program and takes what it sends; `None` where it sends nothing and ends.
fn ask(target: &Path, options: &OsStr) -> Result<(Option<FuseDevice>, OwnedFd, Reaped), MountError> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|errno| MountError::refused("socketpair", errno))?;
    let theirs = move || theirs.try_clone().map(Stdio::from);
    let child = start(|command| {
        command.env("_FUSE_COMMFD", "0").stdin(theirs()?).arg("-o").arg(options).arg("--").arg(target);
        Ok(())
    })?;
    let child = Reaped(child);
    drop(theirs);
    let device = retry_on_intr(|| wait_readable(&[ours.as_fd()], Some(PATIENCE)))
        .and_then(|ready| if ready { receive(&ours) } else { Ok(None) });
    let device = device.map_err(|errno| MountError::refused("recvmsg", errno))?;
    let device =
        device.map(FuseDevice::from_fd).transpose().map_err(|errno| MountError::refused("fcntl", errno))?;
    Ok((device, ours, child))
}

/// Unmounts what is mounted at `target`, as an ordinary user may do with mounts of one's own.
///
/// # Errors
/// [`MountError::NoFusermount`], what the program said, or that it did not answer.
pub fn unmount_by_fusermount(target: &Path, lazy: bool) -> Result<(), MountError> {
    let end = Instant::now() + PATIENCE;
    let child = start(|command| {
        command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(target).stdin(Stdio::null());
        Ok(())
    })?;
    let mut child = Reaped(child);
    let status = child.wait(end).ok_or(MountError::FusermountStuck)?;
    if status.success() { Ok(()) } else { Err(MountError::Fusermount { message: child.message(status) }) }
}

/// Starts the first of [`PROGRAMS`] that is there.
fn start(arguments: impl Fn(&mut Command) -> std::io::Result<()>) -> Result<Child, MountError> {
    let refused = |error: &std::io::Error| {
        MountError::refused("start fusermount3", OsError::from_io_error(error).unwrap_or(OsError::IO))
    };
    for program in PROGRAMS {
        let mut command = Command::new(program);
        arguments(&mut command).map_err(|error| refused(&error))?;
        match command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn() {
            Ok(child) => return Ok(child),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(refused(&error)),
        }
    }
    Err(MountError::NoFusermount)
}

/// Takes the descriptor that came over the socket; `None` where the other side only closed it.
fn receive(socket: &OwnedFd) -> Result<Option<OwnedFd>, OsError> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut received = control.drain();
    Ok(received.find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// A child that does not outlive this.
#[derive(Debug)]
struct Reaped(Child);

impl Reaped {
    /// Waits until the child has ended; `None` where it has not by `end`.
    fn wait(&mut self, end: Instant) -> Option<ExitStatus> {
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < end => std::thread::sleep(PAUSE),
                _ => return None,
            }
        }
    }

    /// What an ended child wrote, without its own name in front.
    fn message(&mut self, status: ExitStatus) -> String {
        let mut written = Vec::new();
        if let Some(stderr) = self.0.stderr.take() {
            // Bounded: a set-uid program of the system writes a line, but nothing here depends on that.
            let _ = stderr.take(4096).read_to_end(&mut written);
        }
        let written = String::from_utf8_lossy(&written);
        let written = written.trim();
        let message = PROGRAMS.iter().find_map(|program| written.strip_prefix(program)?.strip_prefix(": "));
        match message.unwrap_or(written) {
            "" => format!("ended with {status}"),
            message => message.to_owned(),
        }
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
