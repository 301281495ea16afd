//! Copying a file to another branch, and giving the copy its name there in place of the file.
//!
//! Nobody asks for it but as a part of what was judged: bytes are about to be written for which there is no room where the file is.

use std::ffi::CStr;
use std::sync::Arc;

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::data::{copy_range, read_at, seek_data, seek_hole, sync_all, write_at};
use shuntfs_sys::{
    DirReader, FlockOp, OsError, Stat, TimeSet, chmod, chown, flock, link_to, open_at, reopen, set_times,
    stat_at, stat_of, tmpfile_at, truncate, unlink_at,
};

use super::intent::{Intent, Moved, take_back};
use super::path::{ACCESS_ACL, copy_xattrs, drop_xattrs};
use super::workshop::{self, Workshop};
use crate::branch::{touches_nothing, touches_on};
use crate::error::errno;
use crate::merge::{Here, is_as_copied, is_note, is_temporary};
use crate::mode;
use crate::shared::{Folder, Shared};
use crate::who::{Who, keeping_set_ids};

/// How much the kernel is asked to copy at once. Between pieces is asked whether to go on.
const PIECE: u64 = 32 << 20;
/// How much is read and written at once where the kernel does not copy.
const BUFFER: usize = 1 << 20;

/// What a file takes of its file system for each of its blocks, as `stat` counts them.
const BLOCK: u64 = 512;
/// How far apart two times may be that a file system keeps as one, in seconds: that of vfat keeps even ones.
const SECONDS_APART: u64 = 2;

/// Is told of bytes as they are copied, and may end the copy with an error.
pub(crate) type Copied<'c> = dyn Fn(u64) -> shuntfs_sys::Result<()> + 'c;

/// Why a copy did not take the place of its file. Then it has no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Untaken {
    /// That failed.
    Failed(Errno),
    /// The name is not that of the file any more, or may not be at any moment.
    Overtaken,
}

/// A copy of a file on another branch. It goes with this, unless it got its name.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// Closed before it loses its name: NFS keeps an open file in its folder, which cannot be removed then.
    file: LowerFile,
    /// The top folder of the branch that it is on.
    top: Arc<LowerFile>,
    /// Where it is until it gets its name, where the file system makes none without a name.
    shop: Option<Workshop>,
}

impl Transfer {
    /// Makes an empty file for a folder, to become a copy of this one: without a name where that can be, else in the branch's top folder, whose
    /// unfinished copies are removed when it is mounted the next time.
    ///
    /// # Errors
    /// Those of making it.
    pub(crate) fn begin(shared: &Shared, folder: &Folder, of: &Stat) -> Result<Self> {
        let make = || tmpfile_at(&folder.descriptor, mode::O_RDWR, 0o600);
        // From its first byte on it counts for the quota of its owner: XFS has root give files away beyond that (`xfs_setattr_nonsize`), and others
        // say only when all was copied that there is no room.
        let owner = Who::told(of.uid, of.gid);
        let made = match shared.opening(|| owner.create(0, 0, make)) {
            // Who is not root acts for nobody, and need not.
            Err(Errno::PERM | Errno::ACCES | Errno::OVERFLOW) => shared.opening(make),
            made => made,
        };
        let top = Arc::clone(shared.branch(folder.mount).root());
        match made {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(shared, top),
            made => Ok(Self { file: LowerFile::new(made?), top, shop: None }),
        }
    }

    fn named(shared: &Shared, top: Arc<LowerFile>) -> Result<Self> {
        let (shop, file) = Workshop::make(shared, &top)?;
        Ok(Self { file, top, shop: Some(shop) })
    }

    /// The copy.
    pub(crate) fn file(&self) -> &LowerFile {
        &self.file
    }

    /// How many bytes a file takes of another file system, about: those of its holes, too, where its own does not tell them.
    pub(crate) fn takes(from: &LowerFile, stat: &Stat) -> u64 {
        let taken = stat.blocks.saturating_mul(BLOCK);
        let tells_holes = || seek_hole(from, 0).is_ok_and(|hole| hole < stat.size);
        if taken >= stat.size || tells_holes() { taken } else { stat.size }
    }

    /// Copies what the file holds, with its holes, and its attributes, and makes it durable. `from` is open for reading. `copied` is told of
    /// bytes as they are copied.
    ///
    /// # Errors
    /// Those of the calls and of `copied`; EIO where the file is shorter than it was; EOPNOTSUPP where its attributes are not kept. Then the
    /// branch is no place for it.
    pub(crate) fn fill(&self, from: &LowerFile, stat: &Stat, copied: &Copied<'_>) -> Result<()> {
        // It takes as long as the file is large, on any disk.
        touches_nothing();
        copy_data(from, &self.file, stat.size, copied).map_err(errno)?;
        self.take_attributes(from, stat)
    }

    /// Gives the copy the attributes of the file, and makes it durable.
    ///
    /// # Errors
    /// Those of the calls, and EOPNOTSUPP where they are not kept.
    pub(crate) fn take_attributes(&self, from: &LowerFile, stat: &Stat) -> Result<()> {
        touches_nothing();
        let taken = || -> shuntfs_sys::Result<Stat> {
            chown(&self.file, Some(stat.uid), Some(stat.gid))?;
            // It may have them from an earlier time.
            drop_xattrs(from, &self.file, |name| {
                name.starts_with(b"user.") || name.starts_with(b"trusted.")
            })?;
            // Labels are the security module's.
            copy_xattrs(from, &self.file, &[ACCESS_ACL], |name, _| is_label(name))?;
            let permissions = stat.mode & 0o7777;
            keeping_set_ids(permissions & mode::SGID != 0, || chmod(&self.file, permissions))?;
            set_times(&self.file, TimeSet::At(stat.atime), TimeSet::At(stat.mtime))?;
            sync_all(&self.file)?;
            stat_of(&self.file)
        };
        // Some file systems say that they have done what they cannot do (`quiet` of vfat, ntfs-3g): everybody could read what was somebody's.
        if are_kept(stat, &taken().map_err(errno)?) { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    /// Gives the copy its name in a folder, and takes it from the file in another one, if that still is as it was and `may_go_on` says so just before that.
    /// What fails is undone; if the server is killed in between, that is done when the branch is opened again ([`super::intent`]). Once; and what is left
    /// of where it was made goes with this, when nobody has the copy open by its former name.
    ///
    /// # Errors
    /// Those of the calls; EEXIST where something has the name.
    pub(crate) fn take_place(
        &self,
        folder: &Folder,
        name: &CStr,
        (of, may_go_on): (&Here, &dyn Fn() -> bool),
    ) -> std::result::Result<(), Untaken> {
        let to = &*folder.descriptor;
        touches_on(folder.mount);
        let moved = Moved { copy: &self.file, to, of: &of.dir, name };
        let _noted = Intent::note(&self.top, &moved);
        // Durable with its name, before the file goes, so that whatever happens there is one. btrfs makes nothing durable of what has no name
        // (`btrfs_log_inode_parent`), and of what has got one only that it is there, when the folder is synced.
        let named =
            self.take_name(to, name).and_then(|()| sync_all(&self.file)).and_then(|()| sync_folder(to));
        let taken = named.map_err(|error| Untaken::Failed(errno(error))).and_then(|()| {
            touches_on(of.mount);
            // It may have taken long, and somebody who did not wait may have put another file there, or changed this one.
            match stat_at(&*of.dir, name) {
                Ok(now) if is_as_copied(&now, &of.stat) && may_go_on() => lose_name(of, name),
                Ok(_) | Err(OsError::NOENT) => Err(Untaken::Overtaken),
                Err(error) => Err(Untaken::Failed(errno(error))),
            }
        });
        if taken.is_err() {
            touches_on(folder.mount);
            self.lose_own_name(to, name);
        }
        taken
    }

    fn take_name(&self, to: &LowerFile, name: &CStr) -> shuntfs_sys::Result<()> {
        match &self.shop {
            None => link_to(&self.file, to, name),
            Some(shop) => shop.give(&self.file, to, name),
        }
    }

    /// Takes its name from the copy, if it has it.
    fn lose_own_name(&self, to: &LowerFile, name: &CStr) {
        let lost = stat_of(&self.file).and_then(|own| match is_named(to, name, &own)? {
            true => unlink_at(to, name),
            false => Ok(()),
        });
        if let Err(error) = lost {
            tracing::error!(%error, ?name, "a copy of a file may be left on a branch to which it could not be moved");
        }
    }
}

/// Whether this file has a name, and nothing else has.
fn is_named(folder: &LowerFile, name: &CStr, file: &Stat) -> shuntfs_sys::Result<bool> {
    match stat_at(folder, name) {
        Ok(now) => Ok((now.ino, now.dev) == (file.ino, file.dev)),
        Err(OsError::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes its name from a file that has a copy.
///
/// # Errors
/// Those of the call, and then it has the name still: else the copy would go as well, and there would be none.
fn lose_name(of: &Here, name: &CStr) -> std::result::Result<(), Untaken> {
    let Err(error) = unlink_at(&*of.dir, name) else { return Ok(()) };
    match is_named(&of.dir, name, &of.stat) {
        Ok(true) => Err(Untaken::Failed(errno(error))),
        // It was removed anyway: NFS says so of what it has asked for twice.
        Ok(false) => Ok(()),
        Err(unknown) => {
            tracing::error!(%unknown, %error, ?name, "a file that was moved to another branch may be left on its own, too");
            Ok(())
        }
    }
}

/// Whether a file has become what it was told to be.
fn are_kept(told: &Stat, is: &Stat) -> bool {
    let kept = |stat: &Stat| (stat.uid, stat.gid, stat.mode & 0o7777, stat.size);
    kept(told) == kept(is) && told.mtime.secs.abs_diff(is.mtime.secs) <= SECONDS_APART
}

/// Removes copies from the top folder of a branch that were not finished, because their server ended, and takes back moves that it was in the middle
/// of. How many there were.
///
/// # Errors
/// Those of reading the folder, and the first one of those of opening or removing one.
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
    // Notes last: while a copy has two names, that of its file is not the only one, and the note is not believed.
    names.sort_by_key(|name| is_note(name));
    let (mut removed, mut failed) = (0, Ok(()));
    for name in names {
        match is_removed(top, &name) {
            Ok(is_removed) => removed += usize::from(is_removed),
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    failed.map(|()| removed)
}

/// Removes one, if it is one and nobody is making it, and takes back the move that it notes, if it is a note. Whether there was something.
fn is_removed(top: &LowerFile, name: &CStr) -> shuntfs_sys::Result<bool> {
    let found = stat_at(top, name)?;
    if found.is_dir() && is_temporary(name) {
        return workshop::is_removed(top, name);
    }
    // Whoever may write to that folder may have put something else there.
    if !found.is_file() {
        return Ok(false);
    }
    let file = LowerFile::new(open_at(top, name, mode::O_RDWR | mode::O_NONBLOCK, 0)?);
    if flock(&file, FlockOp::Exclusive, false).is_err() {
        // Another server is making it.
        return Ok(false);
    }
    let was_there = !is_note(name)
        || take_back(top, &file).unwrap_or_else(|error| {
            tracing::warn!(%error, "a file may be on two branches that was moved when its server ended");
            false
        });
    unlink_at(top, name)?;
    Ok(was_there)
}

/// Makes the names in a folder durable.
///
/// # Errors
/// Those of the disk.
pub(crate) fn sync_folder(folder: &LowerFile) -> shuntfs_sys::Result<()> {
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

fn is_label(name: &CStr) -> bool {
    name.to_bytes().starts_with(b"security.") && name != c"security.capability"
}

#[cfg(test)]
mod test {
    use crate::merge::temporary_name;
    use std::fs::{self, File};
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::*;
    use crate::options::PoolOptions;
    use shuntfs_sys::spawn::effective_uid;

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
            let tell = |more| {
                copied.set(copied.get() + more);
                Ok(())
            };
            copy_data(&lower(from), &lower(to), len, &tell).unwrap();
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

    /// A file in one folder, and its copy in another; both on one file system.
    struct Moving {
        old: tempfile::TempDir,
        new: tempfile::TempDir,
        folder: Folder,
        shared: Shared,
        of: Here,
        from: LowerFile,
    }

    impl Moving {
        fn new() -> Self {
            let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            fs::write(old.path().join("file"), "text").unwrap();
            let shared = Shared::open(&PoolOptions::new(new.path())).unwrap();
            let folder = shared.folder(shuntfs::NodeId::ROOT).unwrap();
            let dir = Arc::new(LowerFile::new(shuntfs_sys::open_folder(old.path()).unwrap()));
            let stat = stat_at(&*dir, c"file").unwrap();
            let from = lower(File::open(old.path().join("file")).unwrap());
            Self { of: Here { mount: folder.mount, dir, stat }, old, new, folder, shared, from }
        }

        fn fill(&self, copy: Transfer) -> Transfer {
            copy.fill(&self.from, &self.of.stat, &|_| Ok(())).unwrap();
            copy
        }

        fn nameless(&self) -> Transfer {
            self.fill(Transfer::begin(&self.shared, &self.folder, &self.of.stat).unwrap())
        }

        /// As on file systems that make no file without a name.
        fn named(&self) -> Transfer {
            let top = Arc::clone(self.shared.branch(self.folder.mount).root());
            self.fill(Transfer::named(&self.shared, top).unwrap())
        }

        /// Both kinds, one after the other; where the name is in between, something happens.
        fn each(&self, may_go_on: &dyn Fn() -> bool, check: impl Fn(std::result::Result<(), Untaken>)) {
            for make in [Self::nameless, Self::named] {
                fs::write(self.old.path().join("file"), "text").unwrap();
                let stat = stat_at(&*self.of.dir, c"file").unwrap();
                let of = Here { dir: Arc::clone(&self.of.dir), stat, ..self.of };
                let copy = make(self);
                let taken = copy.take_place(&self.folder, c"file", (&of, may_go_on));
                drop(copy);
                check(taken);
                fs::read_dir(self.new.path())
                    .unwrap()
                    .for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
            }
        }

        fn names(&self) -> Vec<std::ffi::OsString> {
            fs::read_dir(self.new.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        }

        fn text(&self, folder: &tempfile::TempDir) -> Option<String> {
            fs::read_to_string(folder.path().join("file")).ok()
        }
    }

    #[test]
    fn a_copy_takes_the_place_of_the_file_or_goes() {
        let moving = Moving::new();
        let copy = moving.named();
        let names = moving.names();
        assert!(names.len() == 1 && names[0].to_str().unwrap().starts_with(".shunt-moving-"));
        drop(copy);
        assert!(moving.names().is_empty());
        fs::write(moving.new.path().join("file"), "there").unwrap();
        for make in [Moving::nameless, Moving::named] {
            let taken = make(&moving).take_place(&moving.folder, c"file", (&moving.of, &|| true));
            assert_eq!(taken, Err(Untaken::Failed(Errno::EXIST)));
            assert_eq!(moving.names(), ["file"]);
            assert_eq!(moving.text(&moving.new).as_deref(), Some("there"));
        }
        fs::remove_file(moving.new.path().join("file")).unwrap();
        moving.each(&|| true, |taken| {
            assert_eq!((taken, moving.names()), (Ok(()), vec!["file".into()]));
            assert_eq!((moving.text(&moving.new).as_deref(), moving.text(&moving.old)), (Some("text"), None));
        });
        // What was removed stays so.
        let gone = moving.nameless().take_place(&moving.folder, c"file", (&moving.of, &|| true));
        assert_eq!((gone, moving.names()), (Err(Untaken::Overtaken), vec![]));
    }

    /// The disk of the copy hung, its mover was left behind, and somebody saved another file under the name. That one was removed.
    #[test]
    fn a_file_that_came_to_the_name_meanwhile_stays() {
        let moving = Moving::new();
        let replace = || {
            fs::write(moving.old.path().join("new"), "saved").unwrap();
            fs::rename(moving.old.path().join("new"), moving.old.path().join("file")).unwrap();
        };
        moving.each(&|| false, |taken| {
            assert_eq!((taken, moving.names()), (Err(Untaken::Overtaken), vec![]), "it may not go on");
            assert_eq!(moving.text(&moving.old).as_deref(), Some("text"));
        });
        let copy = moving.nameless();
        replace();
        let taken = copy.take_place(&moving.folder, c"file", (&moving.of, &|| true));
        assert_eq!((taken, moving.names()), (Err(Untaken::Overtaken), vec![]));
        assert_eq!(moving.text(&moving.old).as_deref(), Some("saved"));
        // And what came to the copy's place is not the copy.
        let come = || {
            fs::write(moving.old.path().join("new"), "other").unwrap();
            fs::rename(moving.old.path().join("new"), moving.new.path().join("file")).unwrap();
            false
        };
        moving.each(&come, |taken| {
            assert_eq!((taken, moving.names()), (Err(Untaken::Overtaken), vec!["file".into()]));
            assert_eq!(moving.text(&moving.new).as_deref(), Some("other"));
            assert_eq!(moving.text(&moving.old).as_deref(), Some("text"));
        });
    }

    /// The copy took its time to get to its disk, and somebody beside the pool wrote into the file meanwhile, or gave it a second name. It was removed,
    /// and what they had done with it.
    #[test]
    fn a_file_that_was_changed_meanwhile_stays() {
        let moving = Moving::new();
        let (file, link) = (moving.old.path().join("file"), moving.old.path().join("link"));
        let changes: [&dyn Fn(); 3] =
            [&|| fs::write(&file, "longer text").unwrap(), &|| fs::hard_link(&file, &link).unwrap(), &|| {
                fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o604)).unwrap()
            }];
        for (number, change) in changes.into_iter().enumerate() {
            for make in [Moving::nameless, Moving::named] {
                fs::write(&file, "text").unwrap();
                fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
                let of = Here {
                    dir: Arc::clone(&moving.of.dir),
                    stat: stat_at(&*moving.of.dir, c"file").unwrap(),
                    ..moving.of
                };
                let copy = make(&moving);
                change();
                let taken = copy.take_place(&moving.folder, c"file", (&of, &|| true));
                drop(copy);
                assert_eq!((taken, moving.names()), (Err(Untaken::Overtaken), vec![]), "{number}");
                assert!(file.exists(), "{number}");
                if link.exists() {
                    fs::remove_file(&link).unwrap();
                }
            }
        }
    }

    /// On file systems that make no file without a name, anybody could read a file that was in a folder of its owner's alone, as long as its copy was not
    /// finished; and whoever could write to the top folder could make a note of what it held.
    #[test]
    fn a_copy_that_is_not_finished_is_nobody_elses() {
        use std::os::unix::fs::PermissionsExt as _;
        let moving = Moving::new();
        fs::set_permissions(moving.old.path().join("file"), fs::Permissions::from_mode(0o666)).unwrap();
        let copy = moving.named();
        let names = moving.names();
        assert_eq!(names.len(), 1);
        let made = moving.new.path().join(&names[0]).metadata().unwrap();
        assert!(made.is_dir() && made.permissions().mode() & 0o077 == 0, "{:o}", made.permissions().mode());
        drop(copy);
        assert!(moving.names().is_empty());
    }

    /// The quota of who owns the file was asked only when all of it was copied, and by XFS not at all.
    #[test]
    fn a_copy_is_its_owners_from_its_first_byte_on() {
        let moving = Moving::new();
        if effective_uid() != 0 {
            return shuntfs_testkit::skipped("only root makes files of others");
        }
        let of = Stat { uid: 71_001, gid: 71_002, ..moving.of.stat };
        let copy = Transfer::begin(&moving.shared, &moving.folder, &of).unwrap();
        let made = stat_of(&copy.file).unwrap();
        assert_eq!((made.uid, made.gid, made.mode & 0o7777), (71_001, 71_002, 0o600));
    }

    /// NFS says that there is nothing to remove when it asked twice, and the copy went, too: nothing was left.
    #[test]
    fn a_file_that_is_gone_leaves_its_copy() {
        let moving = Moving::new();
        moving.each(
            &|| {
                fs::remove_file(moving.old.path().join("file")).unwrap();
                true
            },
            |taken| {
                assert_eq!((taken, moving.names()), (Ok(()), vec!["file".into()]));
                assert_eq!(moving.text(&moving.new).as_deref(), Some("text"));
            },
        );
    }

    #[test]
    fn attributes_that_changed_are_those_of_the_copy_or_it_is_none() {
        let moving = Moving::new();
        let (copy, path) = (moving.nameless(), moving.old.path().join("file"));
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o604)).unwrap();
        let stat = stat_of(&moving.from).unwrap();
        assert_eq!(copy.take_attributes(&moving.from, &stat), Ok(()));
        assert_eq!(stat_of(&copy.file).unwrap().mode & 0o7777, 0o604);
        // What was taken from the file meanwhile came back with the copy.
        let name = c"user.mark";
        shuntfs_sys::xattr::set_xattr(&moving.from, name, b"kept", 0).unwrap();
        copy.take_attributes(&moving.from, &stat).unwrap();
        let marked = || shuntfs_sys::xattr::get_xattr(&copy.file, name, &mut []);
        assert_eq!(marked(), Ok(4));
        shuntfs_sys::xattr::remove_xattr(&moving.from, name).unwrap();
        copy.take_attributes(&moving.from, &stat).unwrap();
        assert_eq!(marked(), Err(OsError::NODATA));
        let other = Stat { size: stat.size + 1, ..stat };
        assert_eq!(
            copy.take_attributes(&moving.from, &other),
            Err(Errno::OPNOTSUPP),
            "it does not keep them"
        );
    }

    /// Where a file system does nothing and says that it did, everybody could read what had been its owner's alone.
    #[test]
    fn what_is_not_kept_is_noticed() {
        let time = |secs| shuntfs_sys::Time { secs, nanos: 5 };
        let told = Stat { uid: 1, gid: 2, mode: 0o100_600, size: 3, mtime: time(-7), ..Stat::default() };
        assert!(are_kept(&told, &told) && are_kept(&told, &Stat { mtime: time(-8), ino: 9, ..told }));
        for is in [
            Stat { uid: 0, ..told },
            Stat { gid: 0, ..told },
            Stat { mode: 0o100_777, ..told },
            Stat { mode: 0o104_600, ..told },
            Stat { size: 4, ..told },
            Stat { mtime: time(100), ..told },
        ] {
            assert!(!are_kept(&told, &is), "{is:?}");
        }
    }

    /// A file of a petabyte that took no blocks was copied to each branch in turn, until that was full.
    #[test]
    fn holes_take_room_where_they_are_not_told() {
        let top = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = File::create_new(top.path().join("file")).unwrap();
        file.set_len(1 << 20).unwrap();
        let from = lower(file.try_clone().unwrap());
        let stat = stat_of(&from).unwrap();
        assert_eq!(Transfer::takes(&from, &stat), 0, "it is a hole that is told");
        file.write_all_at(&[1; 1 << 20], 0).unwrap();
        let stat = stat_of(&from).unwrap();
        assert_eq!(Transfer::takes(&from, &stat), 1 << 20);
        assert_eq!(Transfer::takes(&from, &Stat { blocks: 0, ..stat }), 1 << 20);
        assert_eq!(Transfer::takes(&from, &Stat { blocks: 9999, ..stat }), 9999 * BLOCK);
    }

    #[test]
    fn copies_that_nobody_finishes_are_removed() {
        let top = tempfile::tempdir().unwrap();
        let (abandoned, locked) = (temporary_name(), temporary_name());
        for name in [abandoned.to_str().unwrap(), locked.to_str().unwrap(), ".shunt-moving-x", "file"] {
            fs::write(top.path().join(name), "text").unwrap();
        }
        // Which somebody put there.
        let folder_of_theirs = temporary_name();
        fs::create_dir(top.path().join(folder_of_theirs.to_str().unwrap())).unwrap();
        let making = File::open(top.path().join(locked.to_str().unwrap())).unwrap();
        flock(&making, FlockOp::Exclusive, false).unwrap();
        let folder = LowerFile::new(shuntfs_sys::open_folder(top.path()).unwrap());
        assert_eq!(remove_unfinished(&folder), Ok(1));
        let there = |name: &str| top.path().join(name).exists();
        assert!(!there(abandoned.to_str().unwrap()) && there(locked.to_str().unwrap()));
        assert!(there(".shunt-moving-x") && there("file") && there(folder_of_theirs.to_str().unwrap()));
        drop(making);
        assert_eq!((remove_unfinished(&folder), remove_unfinished(&folder)), (Ok(1), Ok(0)));
    }

    #[test]
    fn labels_are_told_from_what_somebody_set() {
        assert!(is_label(c"security.selinux") && !is_label(c"security.capability") && !is_label(c"user.x"));
    }
}
