//! Registered lower files, by backing id.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use shuntfs_sys::{OsError, stat};

use crate::breach::{Breach, Rule};

/// A registered lower file. Opens keep it when its id is closed.
#[derive(Clone, Debug)]
pub(crate) struct BackingFile(Arc<(u32, OwnedFd)>);

impl BackingFile {
    pub(crate) fn new(id: u32, fd: OwnedFd) -> Self {
        Self(Arc::new((id, fd)))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.0
    }

    /// Whether it is the same registration; another one of the same lower file is not.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AsFd for BackingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.1.as_fd()
    }
}

/// The ids of a connection. Numbers are not used again.
#[derive(Debug, Default)]
pub(crate) struct Backings {
    live: HashMap<u32, BackingFile>,
    closed: HashSet<u32>,
    last: u32,
    /// What registering gives instead, where a test says so.
    pub(crate) refusal: Option<OsError>,
}

impl Backings {
    pub(crate) fn open(&mut self, lower: BorrowedFd<'_>, agreed: bool) -> Result<u32, OsError> {
        if let Some(error) = self.refusal {
            return Err(error);
        }
        if !agreed {
            return Err(OsError::PERM);
        }
        let found = stat::stat_of(lower)?;
        if found.is_dir() {
            return Err(OsError::ISDIR);
        }
        if !found.is_file() {
            return Err(OsError::INVAL);
        }
        let fd = lower.try_clone_to_owned().map_err(|_| OsError::NFILE)?;
        self.last += 1;
        self.live.insert(self.last, BackingFile::new(self.last, fd));
        Ok(self.last)
    }

    pub(crate) fn close(&mut self, id: u32) -> (Result<(), OsError>, Option<Breach>) {
        if self.live.remove(&id).is_some() {
            self.closed.insert(id);
            return (Ok(()), None);
        }
        let breach = Breach { rule: Rule::BackingId, what: format!("{} is closed once more", self.name(id)) };
        (Err(OsError::NOENT), Some(breach))
    }

    /// What an open names.
    pub(crate) fn find(&self, id: i32) -> Result<BackingFile, String> {
        let id = u32::try_from(id).unwrap_or(0);
        self.live.get(&id).cloned().ok_or_else(|| self.name(id))
    }

    /// How many ids live.
    pub(crate) fn count(&self) -> usize {
        self.live.len()
    }

    fn name(&self, id: u32) -> String {
        let became = if self.closed.contains(&id) { "which was closed" } else { "which never was one" };
        format!("backing id {id}, {became},")
    }
}
