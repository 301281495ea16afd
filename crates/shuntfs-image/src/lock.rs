//! QEMU's locks on image files, so that neither of us writes what the other has open.
//!
//! A permission is a bit. Whoever uses permission N holds a read lock on byte 100 + N of the image; whoever does not let
//! others use it holds one on byte 200 + N. Before either, one checks whether somebody holds the opposite byte. The locks
//! are owned by the open file (`block/file-posix.c`, QEMU 2.10 and later), and go with its last descriptor.

use std::os::fd::AsFd;

use shuntfs_sys::{LockKind, LockSpec, OsError, ofd_lock, ofd_test};

const USES: u64 = 100;
const FORBIDS: u64 = 200;

const READ: u64 = 0;
const WRITE: u64 = 1;
const RESIZE: u64 = 3;

/// What we do with an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Nothing of it may change meanwhile.
    Read,
    /// Only we change it.
    Write,
}

/// Why there is no lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Another one has the image open in a way that excludes ours.
    InUse(&'static str),
    /// The file system keeps no such locks.
    NoLocks(OsError),
}

impl Use {
    fn uses(self) -> &'static [u64] {
        match self {
            Self::Read => &[READ],
            Self::Write => &[READ, WRITE, RESIZE],
        }
    }
}

/// What is never shared: with a reader because what it knows of the image would be wrong, with a writer anyway.
const UNSHARED: [u64; 2] = [WRITE, RESIZE];

/// Takes the locks; they are held until the last descriptor of the open file is closed.
///
/// Taken first and looked at then, as QEMU does it: of two that come at once, at least one sees the other.
pub(crate) fn lock(file: impl AsFd, how: Use) -> Result<(), Refused> {
    let file = file.as_fd();
    let taken = take(file, how).and_then(|()| look(file, how));
    if taken.is_err() {
        unlock(file);
    }
    taken
}

/// Gives the locks back, without waiting for the last descriptor: threads of a process that ends, and operations of its rings,
/// have the file open for a moment longer than anybody can wait for.
pub(crate) fn unlock(file: impl AsFd) {
    for byte in Use::Write.uses().iter().map(|bit| USES + bit).chain(UNSHARED.map(|bit| FORBIDS + bit)) {
        let _not_held = ofd_lock(&file, LockSpec { kind: LockKind::Unlock, start: byte, len: 1 }, false);
    }
}

fn take(file: impl AsFd, how: Use) -> Result<(), Refused> {
    let bytes = how.uses().iter().map(|bit| USES + bit).chain(UNSHARED.map(|bit| FORBIDS + bit));
    for byte in bytes {
        ofd_lock(&file, LockSpec { kind: LockKind::Read, start: byte, len: 1 }, false).map_err(|error| {
            // QEMU itself only holds read locks, so a write lock is somebody else's.
            if error == OsError::AGAIN { Refused::InUse("it is locked") } else { Refused::NoLocks(error) }
        })?;
    }
    Ok(())
}

fn look(file: impl AsFd, how: Use) -> Result<(), Refused> {
    let held = |byte| {
        let spec = LockSpec { kind: LockKind::Write, start: byte, len: 1 };
        ofd_test(&file, spec).map(|held| held.is_some()).map_err(Refused::NoLocks)
    };
    for &bit in how.uses() {
        if held(FORBIDS + bit)? {
            return Err(Refused::InUse(if bit == READ {
                "another program lets nobody read it"
            } else {
                "another program has it open, and lets nobody write it"
            }));
        }
    }
    for bit in UNSHARED {
        if held(USES + bit)? {
            return Err(Refused::InUse("another program has it open for writing"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use std::fs::File;

    use super::*;

    fn opened(path: &std::path::Path) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(path).expect("opens")
    }

    #[test]
    fn readers_share_and_a_writer_is_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        let (first, second, third) = (opened(&path), opened(&path), opened(&path));
        lock(&first, Use::Read).expect("nobody there");
        lock(&second, Use::Read).expect("readers share");
        assert!(matches!(lock(&third, Use::Write), Err(Refused::InUse(how)) if how.contains("nobody write")));
        drop(first);
        assert!(matches!(lock(&third, Use::Write), Err(Refused::InUse(_))));
        drop(second);
        // What the refused tries took is given back: this one finds nothing of it.
        lock(&third, Use::Write).expect("alone");
        let late = opened(&path);
        assert!(matches!(lock(&late, Use::Read), Err(Refused::InUse(how)) if how.contains("for writing")));
        drop(third);
        lock(&late, Use::Read).expect("the writer is gone");
    }

    /// A regression: QEMU found an image in use whose server had ended, while the kernel still closed the server's files.
    #[test]
    fn locks_are_given_back_before_the_file_is_closed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        let (first, second) = (opened(&path), opened(&path));
        for how in [Use::Write, Use::Read] {
            lock(&first, how).expect("nobody there");
            assert!(lock(&second, Use::Write).is_err());
            unlock(&first);
            lock(&second, Use::Write).expect("given back");
            unlock(&second);
        }
    }

    #[test]
    fn a_lock_of_another_kind_is_respected() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        let (first, second) = (opened(&path), opened(&path));
        ofd_lock(&first, LockSpec { kind: LockKind::Write, start: 0, len: 0 }, false).expect("locks");
        assert_eq!(lock(&second, Use::Read), Err(Refused::InUse("it is locked")));
    }
}
