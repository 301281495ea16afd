//! Copying a file to another branch, and giving the copy its name there in place of the file.
//!
//! Nobody asks for it but as a part of what was judged: bytes are about to be written for which there is no room where the file is.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::data::{copy_range, read_at, seek_data, seek_hole, sync_all, write_at};
use shuntfs_sys::xattr::{get_xattr, list_xattr, remove_xattr, set_xattr};
use shuntfs_sys::{
    DirReader, FlockOp, OsError, Stat, TimeSet, chmod, chown, flock, link_to, open_at, rename_at, reopen,
    set_times, tmpfile_at, truncate, unlink_at,
};

use super::intent::{Intent, Moved, take_back};
use super::path::XATTR_MAX;
use crate::branch::touches_nothing;
use crate::error::errno;
use crate::merge::{is_note, is_temporary, temporary_name};
use crate::mode;
use crate::shared::{Folder, Shared};
use crate::who::keeping_set_ids;

/// How much the kernel is asked to copy at once. Between pieces is told how far the copy is.
const PIECE: u64 = 32 << 20;
/// How much is read and written at once where the kernel does not copy.
const BUFFER: usize = 1 << 20;

const ACCESS_ACL: &CStr = c"system.posix_acl_access";

/// Is told of bytes as they are copied, and may end the copy with an error.
pub(crate) type Copied<'c> = dyn Fn(u64) -> shuntfs_sys::Result<()> + 'c;

/// A copy of a file on another branch. It goes with this, unless it got its name.
#[derive(Debug)]
pub(crate) struct Transfer {
    file: LowerFile,
    /// The top folder of the branch that it is on.
    top: Arc<LowerFile>,
    /// Its name there, where the file system makes none without a name.
    temporary: Option<CString>,
}

impl Transfer {
    /// Makes an empty file for a folder: without a name where that can be, else in the branch's top folder, whose names of this kind are
    /// removed when it is mounted the next time.
    ///
    /// # Errors
    /// Those of making it.
    pub(crate) fn begin(shared: &Shared, folder: &Folder) -> Result<Self> {
        match shared.opening(|| tmpfile_at(&folder.descriptor, mode::O_RDWR, 0o600)) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(shared, folder),
            made => {
                let top = Arc::clone(shared.branch(folder.mount).root());
                Ok(Self { file: LowerFile::new(made?), top, temporary: None })
            }
        }
    }

    fn named(shared: &Shared, folder: &Folder) -> Result<Self> {
        let top = Arc::clone(shared.branch(folder.mount).root());
        let (name, flags) = (temporary_name(), mode::O_CREAT | mode::O_EXCL | mode::O_RDWR);
        let file = LowerFile::new(shared.opening(|| open_at(&*top, &name, flags, 0o600))?);
        let made = Self { file, top, temporary: Some(name) };
        // Who removes unfinished ones leaves it alone.
        flock(&made.file, FlockOp::Exclusive, false).map_err(errno)?;
        Ok(made)
    }

    /// The copy.
    pub(crate) fn file(&self) -> &LowerFile {
        &self.file
    }

    /// Copies what the file holds, with its holes, and its attributes, and makes it durable. `from` is open for reading. `copied` is told of
    /// bytes as they are copied.
    ///
    /// # Errors
    /// Those of the calls and of `copied`; EIO where the file is shorter than it was. Then the branch is no place for it.
    pub(crate) fn fill(&self, from: &LowerFile, stat: &Stat, copied: &Copied<'_>) -> Result<()> {
        // It takes as long as the file is large, on any disk.
        touches_nothing();
        let filled = || -> shuntfs_sys::Result<()> {
            copy_data(from, &self.file, stat.size, copied)?;
            chown(&self.file, Some(stat.uid), Some(stat.gid))?;
            copy_xattrs(from, &self.file)?;
            let permissions = stat.mode & 0o7777;
            keeping_set_ids(permissions & mode::SGID != 0, || chmod(&self.file, permissions))?;
            set_times(&self.file, TimeSet::At(stat.atime), TimeSet::At(stat.mtime))?;
            sync_all(&self.file)
        };
        filled().map_err(errno)
    }

    /// Gives the copy its name in a folder, and takes it from the file in another one. What fails is undone; if the server is killed
    /// in between, that is done when the branch is opened again ([`super::intent`]).
    ///
    /// # Errors
    /// Those of the calls; EEXIST where something has the name.
    pub(crate) fn take_place(mut self, folder: &Folder, name: &CStr, of: &LowerFile) -> Result<()> {
        let to = &*folder.descriptor;
        let _noted = Intent::note(&self.top, &Moved { copy: &self.file, to, of, name });
        match &self.temporary {
            None => link_to(&self.file, to, name).map_err(errno)?,
            Some(temporary) => {
                let top = &*self.top;
                match rename_at(top, temporary, to, name, mode::RENAME_NOREPLACE) {
                    // A file system that cannot be told not to replace anything can give a second name.
                    Err(OsError::INVAL | OsError::NOSYS | OsError::OPNOTSUPP) => {
                        link_to(&self.file, to, name).map_err(errno)?;
                        unlink_at(top, temporary).map_err(errno)?;
                    }
                    renamed => renamed.map_err(errno)?,
                }
            }
        }
        self.temporary = None;
        // Before the file goes, so that whatever happens there is one.
        let gone = sync_folder(to).and_then(|()| unlink_at(of, name));
        if gone.is_err()
            && let Err(error) = unlink_at(to, name)
        {
            tracing::error!(%error, ?name, "a copy of a file is left on a branch to which it could not be moved");
        }
        gone.map_err(errno)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary
            && let Err(error) = unlink_at(&*self.top, name)
        {
            tracing::warn!(%error, ?name, "an unfinished copy is left in the top folder of a branch");
        }
    }
}

/// Removes copies from the top folder of a branch that were not finished, because their server ended, and takes back moves that it was in the middle
/// of. How many there were.
///
/// # Errors
/// Those of reading the folder, of opening one and of removing it.
pub(crate) fn remove_unfinished(top: &LowerFile) -> shuntfs_sys::Result<usize> {
    let mut reader = DirReader::new(reopen(top, mode::O_RDONLY | mode::O_DIRECTORY)?);
    let mut names = Vec::new();
    loop {
        match reader.peek()? {
            Some(record) => {
                if is_temporary(record.name) || is_note(record.name) {
                    names.push(record.name.to_owned());
                }
                reader.advance()?;
            }
            None => {
                if !reader.fill()? {
                    break;
                }
            }
        }
    }
    let mut removed = 0;
    for name in names {
        let file = open_at(top, &name, mode::O_RDWR | mode::O_NONBLOCK, 0)?;
        // Else another server is making it.
        if flock(&file, FlockOp::Exclusive, false).is_err() {
            continue;
        }
        if is_note(&name) {
            match take_back(top, &LowerFile::new(file)) {
                Ok(was_there) => removed += usize::from(was_there),
                Err(error) => {
                    tracing::warn!(%error, "a file may be on two branches that was moved when its server ended")
                }
            }
        } else {
            removed += 1;
        }
        unlink_at(top, &name)?;
    }
    Ok(removed)
}

fn sync_folder(folder: &LowerFile) -> shuntfs_sys::Result<()> {
    match reopen(folder, mode::O_RDONLY | mode::O_DIRECTORY).and_then(sync_all) {
        // Not every file system knows what that is.
        Err(OsError::INVAL | OsError::OPNOTSUPP) => Ok(()),
        synced => synced,
    }
}

/// Copies what is no hole.
fn copy_data(from: &LowerFile, to: &LowerFile, len: u64, copied: &Copied<'_>) -> shuntfs_sys::Result<()> {
    let (mut offset, mut by_kernel, mut buffer) = (0, true, Vec::new());
    while offset < len {
        let start = match seek_data(from, offset) {
            // Nothing but a hole is left.
            Err(OsError::NXIO) => break,
            // A file system that does not tell has no holes.
            Err(OsError::INVAL | OsError::OPNOTSUPP) => offset,
            found => found?,
        };
        let end = match seek_hole(from, start) {
            Err(OsError::INVAL | OsError::OPNOTSUPP) => len,
            found => found?.min(len),
        };
        offset = start;
        while offset < end {
            let len = if by_kernel {
                match copy_piece(from, to, offset, (end - offset).min(PIECE)) {
                    // Not between these file systems.
                    Err(
                        OsError::XDEV | OsError::OPNOTSUPP | OsError::INVAL | OsError::NOSYS | OsError::PERM,
                    ) => {
                        by_kernel = false;
                        0
                    }
                    copied => copied?,
                }
            } else {
                if buffer.is_empty() {
                    // No larger than is needed: most files are small.
                    buffer = vec![0; usize::try_from(len - offset).unwrap_or(BUFFER).min(BUFFER)];
                }
                copy_by_hand((from, to), &mut buffer, offset, end - offset)?
            };
            copied(len)?;
            offset += len;
        }
    }
    truncate(to, len)
}

fn copy_piece(from: &LowerFile, to: &LowerFile, offset: u64, len: u64) -> shuntfs_sys::Result<u64> {
    let len = usize::try_from(len).map_err(|_| OsError::INVAL)?;
    match copy_range(from, offset, to, offset, len)? {
        // Some file systems say so of what they cannot copy.
        0 => Err(OsError::INVAL),
        copied => u64::try_from(copied).map_err(|_| OsError::IO),
    }
}

fn copy_by_hand(
    (from, to): (&LowerFile, &LowerFile),
    buffer: &mut [u8],
    offset: u64,
    len: u64,
) -> shuntfs_sys::Result<u64> {
    let most = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
    let read = read_at(from, &mut buffer[..most], offset)?;
    let mut written = 0;
    while written < read {
        let at = offset + u64::try_from(written).map_err(|_| OsError::IO)?;
        match write_at(to, &buffer[written..read], at)? {
            0 => return Err(OsError::IO),
            some => written += some,
        }
    }
    // Somebody who changes the branch beside the pool has cut it.
    if read == 0 { Err(OsError::IO) } else { u64::try_from(read).map_err(|_| OsError::IO) }
}

/// Copies all extended attributes, and ACLs with them.
///
/// # Errors
/// Where one that somebody set cannot be kept. Labels are the security module's.
fn copy_xattrs(from: &LowerFile, to: &LowerFile) -> shuntfs_sys::Result<()> {
    match remove_xattr(to, ACCESS_ACL) {
        Ok(()) | Err(OsError::NODATA | OsError::OPNOTSUPP) => {}
        Err(error) => return Err(error),
    }
    let mut names = vec![0; XATTR_MAX];
    let len = match list_xattr(from, &mut names) {
        Err(OsError::OPNOTSUPP) => 0,
        len => len?,
    };
    let mut value = vec![0; XATTR_MAX];
    for name in names[..len].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        let len = match get_xattr(from, name, &mut value) {
            // It went meanwhile, or is nobody's to read.
            Err(OsError::NODATA | OsError::OPNOTSUPP) => continue,
            len => len?,
        };
        match set_xattr(to, name, &value[..len], 0) {
            Err(error) if is_label(name) => {
                tracing::debug!(%error, ?name, "a label of a file stays behind");
            }
            set => set?,
        }
    }
    Ok(())
}

fn is_label(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"security.") && name != c"security.capability"
}

#[cfg(test)]
mod test {
    use std::fs::{self, File};
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::*;
    use crate::options::PoolOptions;

    fn lower(file: File) -> LowerFile {
        LowerFile::new(file.into())
    }

    #[test]
    fn what_a_file_holds_is_copied_with_its_holes() {
        // In memory, where a block is taken when it is written, and not before.
        let top = tempfile::tempdir_in("/dev/shm").unwrap();
        let at = |name: &str| top.path().join(name);
        let open =
            |name: &str| File::options().read(true).write(true).create(true).truncate(false).open(at(name));
        for (len, pieces) in [
            (0, &[][..]),
            (5, &[0]),
            (4 << 20, &[]),
            (8 << 20, &[0, 3 << 20, 5 << 20]),
            ((3 << 20) + 17, &[(3 << 20) + 5]),
        ] {
            let (from, to) = (open("from").unwrap(), open("to").unwrap());
            [&from, &to].into_iter().for_each(|file| file.set_len(0).unwrap());
            from.set_len(len).unwrap();
            for offset in pieces {
                from.write_all_at(b"bytes", *offset).unwrap();
            }
            from.set_len(len).unwrap();
            let copied = std::cell::Cell::new(0);
            copy_data(&lower(from), &lower(to), len, &|more| {
                copied.set(copied.get() + more);
                Ok(())
            })
            .unwrap();
            assert!(copied.get() <= len && (copied.get() == 0) == pieces.is_empty(), "{len} {pieces:?}");
            assert!(fs::read(at("from")).unwrap() == fs::read(at("to")).unwrap(), "{len} {pieces:?}");
            let blocks = |name: &str| at(name).metadata().unwrap().blocks();
            assert!(blocks("to") <= blocks("from"), "{len} {pieces:?}");
        }
    }

    #[test]
    fn pieces_by_hand_are_the_same() {
        let mut bytes = vec![7_u8; 3 << 20];
        bytes[1 << 20] = 9;
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        from.write_all_at(&bytes, 0).unwrap();
        let (from, to, len) = (lower(from), lower(to), 3 << 20);
        let (mut offset, mut buffer) = (0, vec![0; BUFFER]);
        while offset < len {
            offset += copy_by_hand((&from, &to), &mut buffer, offset, len - offset).unwrap();
        }
        assert_eq!(
            copy_by_hand((&from, &to), &mut buffer, len, 1),
            Err(OsError::IO),
            "it is shorter than it was"
        );
        let mut copied = vec![0; bytes.len()];
        assert_eq!(read_at(&to, &mut copied, 0), Ok(bytes.len()));
        assert!(copied == bytes);
    }

    /// On file systems that make no file without a name.
    #[test]
    fn a_copy_with_a_name_takes_the_place_of_the_file_or_goes() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(old.path().join("file"), "text").unwrap();
        let shared = Shared::open(&PoolOptions::new(new.path())).unwrap();
        let folder = shared.folder(shuntfs::NodeId::ROOT).unwrap();
        let of = LowerFile::new(shuntfs_sys::open_folder(old.path()).unwrap());
        let from = lower(File::open(old.path().join("file")).unwrap());
        let stat = shuntfs_sys::stat_of(&from).unwrap();
        let names =
            || fs::read_dir(new.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        let begin = || {
            let copy = Transfer::named(&shared, &folder).unwrap();
            copy.fill(&from, &stat, &|_| Ok(())).unwrap();
            assert_eq!(
                names().iter().filter(|name| name.to_str().unwrap().starts_with(".shunt-moving-")).count(),
                1
            );
            copy
        };
        drop(begin());
        assert!(names().is_empty());
        fs::write(new.path().join("file"), "there").unwrap();
        assert_eq!(begin().take_place(&folder, c"file", &of), Err(Errno::EXIST));
        assert_eq!(
            (names(), fs::read(new.path().join("file")).unwrap()),
            (vec!["file".into()], b"there".to_vec())
        );
        fs::remove_file(new.path().join("file")).unwrap();
        assert_eq!(begin().take_place(&folder, c"file", &of), Ok(()));
        assert_eq!(
            (names(), fs::read(new.path().join("file")).unwrap()),
            (vec!["file".into()], b"text".to_vec())
        );
        assert!(!old.path().join("file").exists());
        // What cannot be removed is where it was, and nowhere else.
        fs::remove_file(new.path().join("file")).unwrap();
        assert_eq!(begin().take_place(&folder, c"file", &of), Err(Errno::NOENT));
        assert!(names().is_empty());
    }

    #[test]
    fn copies_that_nobody_finishes_are_removed() {
        let top = tempfile::tempdir().unwrap();
        let (abandoned, locked) = (temporary_name(), temporary_name());
        for name in [abandoned.to_str().unwrap(), locked.to_str().unwrap(), ".shunt-moving-x", "file"] {
            fs::write(top.path().join(name), "text").unwrap();
        }
        let making = File::open(top.path().join(locked.to_str().unwrap())).unwrap();
        flock(&making, FlockOp::Exclusive, false).unwrap();
        let folder = LowerFile::new(shuntfs_sys::open_folder(top.path()).unwrap());
        assert_eq!(remove_unfinished(&folder), Ok(1));
        let there = |name: &str| top.path().join(name).exists();
        assert!(!there(abandoned.to_str().unwrap()) && there(locked.to_str().unwrap()));
        assert!(there(".shunt-moving-x") && there("file"));
        drop(making);
        assert_eq!((remove_unfinished(&folder), remove_unfinished(&folder)), (Ok(1), Ok(0)));
    }

    #[test]
    fn labels_are_told_from_what_somebody_set() {
        assert!(is_label(c"security.selinux") && !is_label(c"security.capability") && !is_label(c"user.x"));
    }
}
