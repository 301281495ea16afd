//! A connection that outlives its keeper: what the service manager holds of it, and how another keeper gets it back.
//!
//! Three things are held: the device, its clones, and a note, which is a file in memory. The note says which process serves, where the mount is,
//! and what was agreed on. A server writes its number there before it reads a request, so that whoever comes later can see to it
//! that it is dead before requests are sent again.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shuntfs::FuseDevice;
use shuntfs::takeover::{Handover, KeptMount};
use shuntfs_sys::process::{Process, started};
use shuntfs_sys::{OsError, event, memory, spawn};
use thiserror::Error;

use crate::manager::{Manager, Part};
use crate::seat::Told;

/// The number of a process and when it was started, eight bytes each, the lowest first.
const SERVER_LEN: usize = 16;
/// More is no note of ours.
const LEN_MAX: usize = 64 << 10;
/// How long a server that is killed may take to be gone.
const DEATH: Duration = Duration::from_secs(10);
/// The first descriptor that a service manager hands over.
const FIRST: RawFd = 3;

/// Why what an earlier keeper left cannot be gone on with.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoredError {
    /// Something is missing.
    #[error("the service manager held no {0} of the mount: it is lost")]
    Missing(&'static str),
    /// The note is not one, or of another release.
    #[error("what the service manager held of the mount cannot be read: {0}")]
    Note(#[source] io::Error),
    /// The device cannot be used.
    #[error("what the service manager held is no device ({0})")]
    Device(#[source] OsError),
    /// The server of the dead keeper lives, and two must not serve.
    #[error("process {pid}, which serves the mount, cannot be ended ({error})")]
    Alive {
        /// Its number.
        pid: u32,
        /// Why; ETIMEDOUT where it was killed and does not come to its end.
        error: OsError,
    },
}

/// A mount whose keeper and server are dead, and whose callers wait: the service manager has held its connection. See
/// [`keep_stored`](crate::keep_stored).
#[derive(Debug)]
pub struct Stored {
    pub(crate) mount: KeptMount,
    pub(crate) told: Told,
    pub(crate) note: Note,
}

impl Stored {
    /// What the service manager hands over (`LISTEN_FDS`, `LISTEN_FDNAMES`), if a keeper of this unit had it stored. A server of that
    /// keeper which lives yet is killed. To be called at the start of a program, and by each program that keeps a mount in a unit that
    /// allows descriptors to be stored (`FileDescriptorStoreMax=`): what is stored holds up callers until somebody goes on with it.
    ///
    /// # Errors
    /// [`StoredError`]. What cannot be used is no longer stored then, but where a server lives.
    pub fn take() -> Result<Option<Self>, StoredError> {
        let names = handed_over(
            env::var_os("LISTEN_PID").as_deref(),
            env::var_os("LISTEN_FDS").as_deref(),
            env::var_os("LISTEN_FDNAMES").as_deref(),
            std::process::id(),
        );
        let taken = |(part, number)| Some((part, spawn::take_inherited(number)?));
        let parts: Vec<(Part, OwnedFd)> = names.into_iter().filter_map(taken).collect();
        if parts.is_empty() {
            return Ok(None);
        }
        let outcome = Self::of(parts);
        if !matches!(outcome, Ok(Some(_)) | Err(StoredError::Alive { .. })) {
            Manager::find().remove();
        }
        outcome
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// `None` where the connection has ended meanwhile.
    fn of(parts: Vec<(Part, OwnedFd)>) -> Result<Option<Self>, StoredError> {
        let (mut device, mut note, mut clones) = (None, None, Vec::new());
        for (part, fd) in parts {
            match part {
                Part::Device => device = Some(fd),
                Part::Note => note = Some(fd),
                Part::Clone => clones.push(fd),
            }
        }
        let device = device.ok_or(StoredError::Missing("device"))?;
        // What cannot be asked now is found out later.
        if event::has_ended(device.as_fd()).unwrap_or(false) {
            return Ok(None);
        }
        let note = Note(File::from(note.ok_or(StoredError::Missing("note"))?));
        let Text { handover, path } = note.text().map_err(StoredError::Note)?;
        note.end_server()?;
        let device = FuseDevice::from_fd(device).map_err(StoredError::Device)?;
        let mount = match path {
            Some(path) => KeptMount::left_on(device, &path),
            None => KeptMount::of_device(device),
        };
        Ok(Some(Self { mount, told: Told { handover, clones, state: None }, note }))
    }
}

/// What must be known of a connection, in memory that outlives every process of ours.
#[derive(Debug)]
pub(crate) struct Note(File);

#[derive(Debug, Serialize, Deserialize)]
struct Text {
    handover: Handover,
    /// Where it is mounted; `None` where somebody else did that.
    path: Option<PathBuf>,
}

impl Note {
    /// One that the program before had.
    pub(crate) fn of(file: OwnedFd) -> Self {
        Self(File::from(file))
    }

    pub(crate) fn new() -> Result<Self, OsError> {
        memory::file_in_memory(c"shuntfs-note").map(Self)
    }

    /// In a server, before it reads a request: it is the one that serves.
    pub(crate) fn names_this_process(&self) -> io::Result<()> {
        let pid = std::process::id();
        let start = started(pid).ok_or(io::ErrorKind::NotFound)?;
        let server = [u64::from(pid).to_le_bytes(), start.to_le_bytes()].concat();
        self.0.write_all_at(&server, 0)
    }

    /// Writes down what a successor needs.
    pub(crate) fn write(&self, handover: &Handover, mount: &KeptMount) -> io::Result<()> {
        let path = Some(mount.path().to_owned()).filter(|path| !path.starts_with("/dev/fd"));
        let text = serde_json::to_vec(&Text { handover: handover.clone(), path })?;
        if text.len() > LEN_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.0.write_all_at(&text, SERVER_LEN as u64)
    }

    fn text(&self) -> io::Result<Text> {
        let len = usize::try_from(self.0.metadata()?.len()).unwrap_or(usize::MAX);
        let len = len.checked_sub(SERVER_LEN).filter(|len| *len <= LEN_MAX);
        let mut text = vec![0; len.ok_or(io::ErrorKind::InvalidData)?];
        self.0.read_exact_at(&mut text, SERVER_LEN as u64)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Sees to it that the last server is dead.
    fn end_server(&self) -> Result<(), StoredError> {
        let mut server = [0; SERVER_LEN];
        self.0.read_exact_at(&mut server, 0).map_err(StoredError::Note)?;
        let [pid, start] = [&server[..8], &server[8..]].map(number);
        let Ok(pid) = u32::try_from(pid) else { return Ok(()) };
        let alive = |error| StoredError::Alive { pid, error };
        let Some(process) = Process::find(pid, start).map_err(alive)? else { return Ok(()) };
        match process.kill() {
            Ok(()) => tracing::warn!(pid, "the server of a dead keeper lives, and is killed"),
            Err(OsError::SRCH) => {}
            Err(error) => return Err(alive(error)),
        }
        match event::wait_readable(&[process.as_fd()], Some(DEATH)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(alive(OsError::TIMEDOUT)),
            Err(error) => Err(alive(error)),
        }
    }
}

impl AsFd for Note {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Eight bytes, the lowest first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Which of the descriptors that were handed over to the process `own` are ours, by sd_listen_fds_with_names(3).
fn handed_over(
    pid: Option<&OsStr>,
    count: Option<&OsStr>,
    names: Option<&OsStr>,
    own: u32,
) -> Vec<(Part, RawFd)> {
    let number = |value: Option<&OsStr>| value?.to_str()?.parse::<u32>().ok();
    if number(pid) != Some(own) {
        return Vec::new();
    }
    let count = number(count).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let names = names.and_then(OsStr::to_str).unwrap_or_default();
    let numbered = (FIRST..).zip(names.split(':').take(count));
    let part = |name: &str| Part::ALL.into_iter().find(|part| part.name() == name);
    numbered.filter_map(|(number, name)| Some((part(name)?, number))).collect()
}

/// Has everything stored that a keeper needs that comes after this one. The note comes last: with it, it is all there.
pub(crate) fn store(manager: &Manager, note: &Note, mount: &KeptMount, told: &Told) {
    if told.state.is_some() {
        return tracing::info!("the mount does not outlive its keeper: what files were open would not");
    }
    if let Err(error) = note.write(&told.handover, mount) {
        return tracing::warn!(%error, "the mount will not outlive its keeper: it cannot be noted");
    }
    let clones: Vec<BorrowedFd<'_>> = told.clones.iter().map(AsFd::as_fd).collect();
    manager.store(Part::Device, &[mount.device().as_fd()]);
    manager.store(Part::Clone, &clones);
    manager.store(Part::Note, &[note.as_fd()]);
}

/// Says why the mount is gone with this keeper.
pub(crate) fn unstored(error: OsError) {
    tracing::warn!(%error, "the mount will not outlive its keeper: it cannot be noted");
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn descriptors_are_known_by_their_names() {
        let of = |pid: &str, count: &str, names: &str| {
            let [pid, count, names] = [pid, count, names].map(|text| Some(OsStr::new(text)));
            handed_over(pid, count, names, 7)
        };
        let names = "shuntfs-clone:http:shuntfs-device:shuntfs-note:shuntfs-clone";
        let expected = [(Part::Clone, 3), (Part::Device, 5), (Part::Note, 6), (Part::Clone, 7)];
        assert_eq!(of("7", "5", names), expected);
        assert_eq!(of("7", "3", names), expected[..2], "no more than were handed over");
        assert!(of("8", "5", names).is_empty(), "they are another process's");
        assert!(of("", "5", names).is_empty() && of("7", "many", names).is_empty());
        assert!(handed_over(None, None, None, 7).is_empty());
    }

    #[test]
    fn a_note_that_is_none_is_refused() {
        let note = || Note::new().expect("memory");
        assert!(note().text().is_err(), "it is empty");
        let garbled = note();
        garbled.0.write_all_at(b"0123456789abcdef{\"handover\":7}", 0).expect("writes");
        assert!(garbled.text().is_err());
        let long = note();
        long.0.set_len(1 << 30).expect("it is sparse");
        assert!(long.text().is_err());
        assert!(matches!(note().end_server(), Err(StoredError::Note(_))));
        let nobody = note();
        nobody.0.write_all_at(&[0; SERVER_LEN], 0).expect("writes");
        assert!(nobody.end_server().is_ok());
    }

    #[test]
    fn a_server_that_lives_is_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        let note = Note::new().expect("memory");
        let start = started(child.id()).expect("is there");
        let server = [u64::from(child.id()).to_le_bytes(), (start + 1).to_le_bytes()].concat();
        note.0.write_all_at(&server, 0).expect("writes");
        note.end_server().expect("it is another's number by now");
        assert!(child.try_wait().expect("is a child").is_none());
        note.0.write_all_at(&start.to_le_bytes(), 8).expect("writes");
        note.end_server().expect("it is ours");
        assert!(!child.wait().expect("is a child").success());
    }

    #[test]
    fn this_process_is_named() {
        let note = Note::new().expect("memory");
        note.names_this_process().expect("writes");
        let mut server = [0; SERVER_LEN];
        note.0.read_exact_at(&mut server, 0).expect("reads");
        assert_eq!(number(&server[..8]), u64::from(std::process::id()));
        assert_eq!(Some(number(&server[8..])), started(std::process::id()));
    }
}
