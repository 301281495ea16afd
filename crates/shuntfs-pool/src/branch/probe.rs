//! The question whether a branch answers, and is where it was.

use std::path::{Path, PathBuf};

use shuntfs::LowerFile;
use shuntfs_sys::dir::DirReader;
use shuntfs_sys::{Device, OsError, filesystem_of, open_folder, reopen, stat_of};

use super::asker::Told;
use crate::mode;

/// What a disk that failed answers to everything: a single file that cannot be read gives the first of them, too.
const FAILURES: [OsError; 6] =
    [OsError::IO, OsError::NODEV, OsError::NXIO, OsError::NOTCONN, OsError::STALE, OsError::TIMEDOUT];

/// Whether an error may be one of a disk that failed.
pub(crate) fn is_failure(error: OsError) -> bool {
    FAILURES.contains(&error)
}

/// Where a branch must be found.
#[derive(Debug)]
pub(super) struct Top {
    path: PathBuf,
    inode: (Device, u64),
}

impl Top {
    pub(super) fn new(path: &Path, inode: (Device, u64)) -> Self {
        Self { path: path.to_owned(), inode }
    }

    /// Whether another folder is there by now, or none: its disk was unmounted, or is another one.
    fn is_elsewhere(&self) -> bool {
        match open_folder(&self.path).and_then(stat_of) {
            Ok(stat) => (stat.dev, stat.ino) != self.inode,
            Err(error) => matches!(error, OsError::NOENT | OsError::NOTDIR),
        }
    }
}

/// Asks a file system how it is. Where somebody watches, its top is read and looked for, too: the file system of a disk that was pulled may know
/// its space still.
pub(super) fn probe(root: &LowerFile, top: Option<&Top>) -> shuntfs_sys::Result<Told> {
    let below = filesystem_of(root)?;
    let Some(top) = top else { return Ok(Told { below, is_elsewhere: false }) };
    if let Err(error) = read_something(root)
        && is_failure(error)
    {
        return Err(error);
    }
    Ok(Told { below, is_elsewhere: top.is_elsewhere() })
}

fn read_something(root: &LowerFile) -> shuntfs_sys::Result<()> {
    let fd = reopen(root, mode::O_RDONLY | mode::O_DIRECTORY)?;
    DirReader::new(fd).fill().map(drop)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_folder_that_was_replaced_is_elsewhere() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        let root = LowerFile::new(open_folder(&path).unwrap());
        let stat = stat_of(&root).unwrap();
        let top = Top::new(&path, (stat.dev, stat.ino));
        let is_elsewhere = |top| probe(&root, top).unwrap().is_elsewhere;
        assert!(!is_elsewhere(Some(&top)));
        std::fs::rename(&path, room.path().join("other")).unwrap();
        assert!(is_elsewhere(Some(&top)) && !is_elsewhere(None));
        std::fs::create_dir(&path).unwrap();
        assert!(is_elsewhere(Some(&top)));
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(room.path().join("other"), &path).unwrap();
        assert!(!is_elsewhere(Some(&top)));
    }
}
