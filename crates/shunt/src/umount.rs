//! `shunt umount`.

use std::io::{self, Write};
use std::iter;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use shuntfs_sys::event::wait_readable;
use shuntfs_sys::mount::MountInfo;
use shuntfs_sys::process::{self, Process};
use shuntfs_sys::spawn::{self, Push};
use shuntfs_sys::stat::filesystem_of;
use shuntfs_sys::{Cap, MountError, OsError, caps, mount as sys, open_target};
use thiserror::Error;

use crate::bar::Bar;
use crate::busy;
use crate::cli::UmountArgs;
use crate::control::{AskError, Awaited, Client, SocketFile};
use crate::elsewhere;
use crate::export;
use crate::failure::Failure;
use crate::mounts::{self, Mounts, shown};
use crate::patience::within;
use crate::run::output_failure;

/// How long the end of the server is waited for, once its mount is gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a server may take to make everything durable.
const FLUSH_LIMIT: Duration = Duration::from_secs(600);
/// How long a mount may be busy of which no process is seen that uses it. The kernel releases a moment later what a process that has
/// ended had open through a ring: the server of a mount of this mount, for example.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);
/// How long a mount may take to say that nobody serves it.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Takes a mount away.
///
/// # Errors
/// Where there is no such mount, where it is busy, and without permission.
pub(crate) fn run(args: &UmountArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let list = Mounts::read()?;
    let mount = find(&list, &args.mountpoint)?;
    // Whoever says `shunt umount .` is not to be kept from it by this very process.
    let _stays_here = std::env::set_current_dir("/");
    let server = Server::of(mount);
    let was_dead = server.is_none() && is_dead(&mount.mount_point);
    if let Some(server) = &server {
        server.wake_for(mount, args)?;
    }
    // A forced end does not wait for anything, and who detaches does not wait for those who go on.
    let end = server.as_ref().filter(|_| !args.lazy && !args.force).and_then(Server::end);
    if !(args.force && abort(mount)?) {
        take_away(&list, mount, args)?;
    }
    if was_dead {
        say_dead(mount)?;
    }
    let told = end.map_or(Ok(()), |end| say_end(mount, end, out));
    if let Some(server) = server.filter(|_| !args.lazy)
        && !server.wait_for_end(args.force)
        && let Some(others) = elsewhere::by_whom(mount.dev)
    {
        let place = shown(&mount.mount_point);
        eprintln!(
            "shunt: {place} is unmounted here, but its server goes on: {others} still has it in another"
        );
        eprintln!(
            "shunt: mount namespace (a container or service copies the mounts that are there at its start)"
        );
    }
    told
}

/// Whether the server of a mount has ended, and left it there. The kernel may take a moment to see that, and has callers wait
/// until then.
pub(crate) fn is_dead(mount_point: &Path) -> bool {
    let asked = mount_point.to_owned();
    let answer = within(ANSWER_LIMIT, move || filesystem_of(open_target(&asked)?).map(drop));
    answer != Some(Ok(()))
}

/// A server that ended without its last words had not made everything durable: of an export, that is said.
fn say_dead(mount: &MountInfo) -> Result<(), Failure> {
    let point = &mount.mount_point;
    if !point.symlink_metadata().is_ok_and(|there| there.is_file()) {
        return Ok(());
    }
    export::remove_made(point);
    let lost = "what was written to it and not made durable by fsync may be lost";
    Err(Failure::new(format!("{} is unmounted, but its server had ended before it: {lost}", shown(point)))
        .hint("a disk that was read-only has lost nothing; what qcow2 leaks: qemu-img check -r leaks"))
}

/// Waits until the server has made everything durable, and says so.
fn say_end(mount: &MountInfo, end: Result<Awaited, AskError>, out: &mut dyn Write) -> Result<(), Failure> {
    if matches!(end, Err(AskError::NoServer)) {
        // It was ending when it was asked: the socket of a killed server takes callers until its last thread has gone.
        return say_dead(mount);
    }
    let place = shown(&mount.mount_point);
    let unknown = |why: &str| {
        Failure::new(format!(
            "{place} is unmounted, and whether all that was written is on the disk is not known: {why}"
        ))
        .hint("its server's log says more")
    };
    let bar = Bar::waiting("writing to the disk");
    let ended = end.and_then(|end| end.wait(FLUSH_LIMIT));
    drop(bar);
    match ended {
        Ok(Ok(())) => writeln!(out, "{place} is unmounted; all that was written is on the disk")
            .map_err(|error| output_failure(&error)),
        Ok(Err(error)) => {
            Err(Failure::new(format!("{place} is unmounted, and what was written last is lost: {error}")))
        }
        Err(AskError::Silent { .. }) => Err(unknown("its server is still at it")),
        Err(error) => Err(unknown(&error.to_string())),
    }
}

/// The process that serves a mount.
#[derive(Debug)]
struct Server {
    socket: SocketFile,
    connection: u64,
    owner: u32,
    pid: u32,
    uid: u32,
    /// It, and its keeper where it has one; without those that are in another namespace of processes.
    processes: Vec<Process>,
}

impl Server {
    /// Asked for before the mount goes: a server that nobody can name afterwards cannot be waited for.
    fn of(mount: &MountInfo) -> Option<Self> {
        let (connection, owner) = (mounts::connection(mount)?, mounts::owner(mount).unwrap_or_default());
        let mut client = Client::of_connection(connection, &[owner]).ok()?;
        let socket = SocketFile::of(client.path()).ok()?;
        let (pid, uid) = (client.pid(), client.uid());
        let has_keeper =
            client.status().is_ok_and(|status| status.takeover.is_some_and(|it| it.keeper.is_some()));
        // By its number the server knows its keeper in its own namespace. It is the one that started it.
        let keeper = has_keeper.then(|| process::parent(pid)).flatten();
        let found = |pid: u32| Process::find(pid, process::started(pid)?).ok().flatten();
        let processes = iter::once(pid).chain(keeper).filter_map(found).collect();
        Some(Self { socket, connection, owner, pid, uid, processes })
    }

    fn client(&self) -> Option<Client> {
        Client::of_connection(self.connection, &[self.owner]).ok()
    }

    /// The promise to be told of the end, where there is something to be told. That the server is too busy to promise it says
    /// nothing of the end, and must not pass for a good one.
    fn end(&self) -> Option<Result<Awaited, AskError>> {
        match Client::of_connection(self.connection, &[self.owner]).and_then(Client::farewell) {
            Err(AskError::Refused(_)) => None,
            end => Some(end),
        }
    }

    /// On io_uring, the kernel ends neither a mount nor a waiting caller before the server's threads have taken
    /// note (`fs/fuse/dev_uring.c`), which those of a stopped process never do.
    fn wake_for(&self, mount: &MountInfo, args: &UmountArgs) -> Result<(), Failure> {
        if !self.is_stopped() {
            return Ok(());
        }
        if args.force {
            let _not_ours = spawn::push_to_user(self.pid, self.uid, Push::GoOn);
            return Ok(());
        }
        let (place, pid) = (shown(&mount.mount_point), self.pid);
        Err(Failure::new(format!("the server of {place}, process {pid}, is stopped"))
            .hint(format!("let it go on: kill -CONT {pid}, or shunt umount --force {place}")))
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The name in parentheses may hold anything.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
    }

    /// Waits until the server has removed its socket, the last thing that it does, and for the end of its process: until then it uses
    /// the folder that it showed. A forced end leaves nothing to serve, so that a server which does not come to its end by itself is
    /// ended. False where it goes on.
    fn wait_for_end(&self, force: bool) -> bool {
        let end = Instant::now() + PATIENCE;
        while self.socket.is_there() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.socket.is_there() {
            for process in &self.processes {
                let _ended =
                    wait_readable(&[process.as_fd()], Some(end.saturating_duration_since(Instant::now())));
            }
            return true;
        }
        if force && self.client().is_some_and(|client| client.pid() == self.pid) {
            // The number is that of whoever listened first; by now it may be anybody's.
            let _not_theirs = spawn::push_to_user(self.pid, self.uid, Push::Die);
            return true;
        }
        false
    }
}

/// The mount of shunt at a path.
pub(crate) fn find<'a>(list: &'a Mounts, path: &Path) -> Result<&'a MountInfo, Failure> {
    let located = list.locate(path).map_err(|error| {
        Failure::new(format!("cannot find {}: {error}", shown(path))).hint("all mounts: shunt list")
    })?;
    let Some(mount) = list.at(&located) else {
        let failure = Failure::new(format!("{} is not a mount point", shown(&located)));
        return Err(match list.covering(&located).filter(|mount| mounts::is_shunt(mount)) {
            Some(outer) => failure.hint(format!("it is inside the mount at {}", shown(&outer.mount_point))),
            None => failure.hint("all mounts: shunt list"),
        });
    };
    let ours = mounts::is_shunt(mount)
        || mounts::connection(mount).is_some_and(|connection| {
            Client::of_connection(connection, &Vec::from_iter(mounts::owner(mount))).is_ok()
        });
    if ours {
        return Ok(mount);
    }
    let other = format!("{} is a mount of type {}, not of shunt", shown(&located), shown(&mount.fs_type));
    Err(Failure::new(other).hint("all mounts: shunt list"))
}

fn take_away(list: &Mounts, mount: &MountInfo, args: &UmountArgs) -> Result<(), Failure> {
    // A forced end leaves nothing to save by waiting for the last close.
    let (mut outcome, mut by) = (detach(&mount.mount_point, args.lazy || args.force), None);
    let end = Instant::now() + RELEASE_LIMIT;
    while matches!(outcome, Err(DetachError::Busy)) {
        by = busy::holders(list, mount);
        if by.is_some() || Instant::now() > end {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        outcome = detach(&mount.mount_point, false);
    }
    match outcome {
        Ok(()) => Ok(()),
        // A server whose connection was aborted takes its mount away itself, in this very moment.
        Err(_gone) if args.force && !is_there(mount)? => Ok(()),
        Err(DetachError::Busy) => {
            let by = by.unwrap_or_else(busy::unseen);
            Err(Failure::new(format!("{} is busy: {by}", shown(&mount.mount_point)))
                .hint("end these, or detach it now and serve them to their end: shunt umount --lazy"))
        }
        Err(DetachError::Other(error)) => {
            let failure = Failure::new(format!("cannot unmount {}: {error}", shown(&mount.mount_point)));
            Err(match error.kind() {
                io::ErrorKind::PermissionDenied => failure.hint("only root and who mounted it may"),
                _ => failure,
            })
        }
    }
}

/// Why a mount is still there.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum DetachError {
    /// Someone uses it.
    #[error("it is busy")]
    Busy,
    /// Another reason.
    #[error("{0}")]
    Other(io::Error),
}

/// Unmounts, as root or through fusermount3.
pub(crate) fn detach(mount_point: &Path, lazy: bool) -> Result<(), DetachError> {
    if caps::has_effective(Cap::SysAdmin) {
        return sys::unmount(mount_point, lazy).map_err(|error| match error {
            OsError::BUSY => DetachError::Busy,
            error => DetachError::Other(error.into()),
        });
    }
    sys::unmount_by_fusermount(mount_point, lazy).map_err(|error| match error {
        // The program says why in words only.
        MountError::Fusermount { message } if message.contains("busy") => DetachError::Busy,
        error => DetachError::Other(io::Error::other(error)),
    })
}

/// Ends the connection, so that whoever waits for the server gets an error; `true` where the mount went, too.
/// The owner of a mount may do so where fusectl is mounted; root needs no fusectl. Where neither is available, the end of
/// the server ends the connection.
fn abort(mount: &MountInfo) -> Result<bool, Failure> {
    let connection = mounts::connection(mount).and_then(|connection| u32::try_from(connection).ok());
    let is_aborted = connection.is_some_and(|connection| sys::abort_connection(connection).is_ok());
    if !is_aborted && caps::has_effective(Cap::SysAdmin) {
        let _detached_below = sys::abort_by_umount(&mount.mount_point);
    }
    Ok(!is_there(mount)?)
}

fn is_there(mount: &MountInfo) -> Result<bool, Failure> {
    Ok(Mounts::read()?.iter().any(|other| other.id == mount.id))
}

#[cfg(test)]
mod test {
    use super::*;

    /// A server whose connection was aborted may unmount between a look at the table and our own unmount, which then
    /// says EINVAL.
    #[test]
    fn what_went_by_itself_needs_no_force() {
        if !caps::has_effective(Cap::SysAdmin) {
            println!("SKIPPED: needs root");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let list = Mounts::read().expect("a table");
        let mut mount = list.iter().next().expect("something is mounted").clone();
        (mount.id, mount.mount_point) = (i32::MAX, folder.path().to_owned());
        let args = |force| UmountArgs { mountpoint: folder.path().to_owned(), lazy: false, force };
        assert!(take_away(&list, &mount, &args(true)).is_ok());
        let refused = take_away(&list, &mount, &args(false)).expect_err("nothing is mounted there");
        assert!(refused.to_string().contains("cannot unmount"), "{refused}");
    }
}
