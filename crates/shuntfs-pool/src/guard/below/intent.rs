//! What is noted while a file is on two branches, in the moment between the name that its copy gets and the name that it loses.
//!
//! If the server is killed just then, both stay. Whoever opens the branch the next time reads the note, and removes the copy where the file is
//! there and neither was touched since: then it is as if the move had not begun. In any other case nothing is removed but the note. Notes are
//! not waited for, so after a loss of power there may be none.
//!
//! A note has whole files removed, so one is trusted only if nobody but the server's user can have written it, and what it names is reached
//! without following symlinks.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use shuntfs::LowerFile;
use shuntfs_sys::data::{read_at, write_at};
use shuntfs_sys::spawn::effective_uid;
use shuntfs_sys::{
    FlockOp, OsError, Stat, flock, open_at, open_folder, open_path_at, path_of, stat_at, stat_of, unlink_at,
};

use crate::merge::note_name;
use crate::mode;

/// What notes begin with.
const FIRST: &[u8] = b"shunt moves, 1";
/// The longest note: two paths and some numbers.
const LEN_MAX: usize = 16 << 10;

/// A file that is moved: the name that its copy gets, and the one that it has.
pub(super) struct Moved<'m> {
    pub(super) copy: &'m LowerFile,
    pub(super) to: &'m LowerFile,
    pub(super) of: &'m LowerFile,
    pub(super) name: &'m CStr,
}

/// A note, which goes with this.
#[derive(Debug)]
pub(super) struct Intent {
    top: Arc<LowerFile>,
    name: CString,
    /// Locked, so that nobody takes it for that of a server that has ended.
    file: LowerFile,
}

/// A name, and what an inode must be like that it means.
#[derive(PartialEq, Eq, Debug)]
struct Known {
    ino: u64,
    size: u64,
    mtime: (i64, u32),
    path: Vec<u8>,
}

impl Intent {
    /// Notes in the top folder of a branch that a copy comes to it. Where that cannot be noted, the move goes on without.
    pub(super) fn note(top: &Arc<LowerFile>, moved: &Moved<'_>) -> Option<Self> {
        let noted = Self::try_note(top, moved);
        noted.inspect_err(|error| tracing::debug!(%error, "it is not noted that a file is moved")).ok()
    }

    fn try_note(top: &Arc<LowerFile>, moved: &Moved<'_>) -> shuntfs_sys::Result<Self> {
        let inside = |dir: &LowerFile, base: &Path| -> shuntfs_sys::Result<Vec<u8>> {
            let path = path_of(dir)?;
            let path = path.strip_prefix(base).map_err(|_| OsError::XDEV)?.join(as_path(moved.name));
            Ok(path.as_os_str().as_bytes().to_owned())
        };
        let copy = Known::of(&stat_of(moved.copy)?, inside(moved.to, &path_of(&**top)?)?);
        let file = Known::of(&stat_at(moved.of, moved.name)?, inside(moved.of, Path::new("/"))?);
        let text = [FIRST, &copy.text(), &file.text()].join(&0);
        if text.len() > LEN_MAX {
            return Err(OsError::NAMETOOLONG);
        }
        let name = note_name();
        let flags = mode::O_CREAT | mode::O_EXCL | mode::O_RDWR;
        let file = LowerFile::new(open_at(&**top, &name, flags, 0o600)?);
        let note = Self { top: Arc::clone(top), name, file };
        flock(&note.file, FlockOp::Exclusive, false)?;
        let written = write_at(&note.file, &text, 0)?;
        if written == text.len() { Ok(note) } else { Err(OsError::NOSPC) }
    }

    /// As if the server were killed.
    #[cfg(test)]
    pub(super) fn abandon(self) {
        let me = std::mem::ManuallyDrop::new(self);
        flock(&me.file, FlockOp::Unlock, false).expect("is open");
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        let go = || unlink_at(&*self.top, &self.name);
        // Twice, so that an error that does not come again leaves nothing.
        if let Err(error) = go().or_else(|_| go()) {
            tracing::warn!(%error, "a note of a file that was moved is left in the top folder of a branch");
        }
    }
}

/// Takes back what a note in the top folder of a branch says, if it is one of a server that was killed in the moment that it is about. Whether there
/// was something to be taken back. The note is locked by whoever asks.
///
/// # Errors
/// Those of the calls.
pub(super) fn take_back(top: &LowerFile, note: &LowerFile) -> shuntfs_sys::Result<bool> {
    let stat = stat_of(note)?;
    let is_ours =
        stat.is_file() && stat.uid == effective_uid() && stat.mode & 0o7777 == 0o600 && stat.nlink == 1;
    if !is_ours {
        return Ok(false);
    }
    let mut text = vec![0; LEN_MAX];
    let len = read_at(note, &mut text, 0)?;
    let Some((copy, file)) = parse(&text[..len]) else { return Ok(false) };
    let root = LowerFile::new(open_folder(Path::new("/"))?);
    let (Some((dir, name, there)), Some((_, _, here))) = (copy.find(top)?, file.find(&root)?) else {
        return Ok(false);
    };
    if (there.ino, there.dev) == (here.ino, here.dev) {
        return Ok(false);
    }
    unlink_at(&dir, &name)?;
    Ok(true)
}

fn parse(text: &[u8]) -> Option<(Known, Known)> {
    let mut fields = text.split(|byte| *byte == 0);
    if fields.next()? != FIRST {
        return None;
    }
    let both = (Known::parse(&mut fields)?, Known::parse(&mut fields)?);
    fields.next().is_none().then_some(both)
}

impl Known {
    fn of(stat: &Stat, path: Vec<u8>) -> Self {
        Self { ino: stat.ino, size: stat.size, mtime: (stat.mtime.secs, stat.mtime.nanos), path }
    }

    fn text(&self) -> Vec<u8> {
        let (secs, nanos) = self.mtime;
        let numbers = format!("{}\0{}\0{secs}\0{nanos}\0", self.ino, self.size);
        [numbers.as_bytes(), &self.path].concat()
    }

    fn parse<'t>(fields: &mut impl Iterator<Item = &'t [u8]>) -> Option<Self> {
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<i128>().ok();
        let (ino, size, secs, nanos) = (number()?, number()?, number()?, number()?);
        Some(Self {
            ino: ino.try_into().ok()?,
            size: size.try_into().ok()?,
            mtime: (secs.try_into().ok()?, nanos.try_into().ok()?),
            path: fields.next()?.to_owned(),
        })
    }

    /// The folder and the name that the path leads to from a folder on, if that is the very file.
    ///
    /// # Errors
    /// Those of looking, but for what does not exist.
    fn find(&self, from: &LowerFile) -> shuntfs_sys::Result<Option<(LowerFile, CString, Stat)>> {
        let mut names = Vec::new();
        for name in self.path.split(|byte| *byte == b'/') {
            if name.is_empty() || name == b"." || name == b".." {
                return Ok(None);
            }
            names.push(CString::new(name).map_err(|_| OsError::INVAL)?);
        }
        let Some(last) = names.pop() else { return Ok(None) };
        let look = || -> shuntfs_sys::Result<(LowerFile, Stat)> {
            let mut dir = LowerFile::new(shuntfs_sys::reopen(from, mode::O_PATH)?);
            for name in &names {
                // A symlink opens as itself, and nothing is in it.
                dir = LowerFile::new(open_path_at(&dir, name)?);
            }
            let stat = stat_at(&dir, &last)?;
            Ok((dir, stat))
        };
        let (dir, stat) = match look() {
            Err(OsError::NOENT | OsError::NOTDIR) => return Ok(None),
            found => found?,
        };
        let is_it = stat.is_file() && stat.nlink == 1 && Self::of(&stat, self.path.clone()) == *self;
        Ok(is_it.then_some((dir, last, stat)))
    }
}

fn as_path(name: &CStr) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::guard::below::transfer::remove_unfinished;
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    /// A file `d/file` in a folder, and a copy of it in another one.
    struct Both {
        from: tempfile::TempDir,
        to: tempfile::TempDir,
    }

    impl Both {
        fn new() -> Self {
            let both = Self { from: tempfile::tempdir().unwrap(), to: tempfile::tempdir().unwrap() };
            for path in [both.file(), both.copy()] {
                fs::create_dir(path.parent().unwrap()).unwrap();
                fs::write(&path, "text").unwrap();
                let then = SystemTime::UNIX_EPOCH + Duration::new(1000, 7);
                File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
            }
            both
        }

        fn file(&self) -> PathBuf {
            self.from.path().join("d/file")
        }

        fn copy(&self) -> PathBuf {
            self.to.path().join("d/file")
        }

        fn top(&self) -> Arc<LowerFile> {
            Arc::new(LowerFile::new(open_folder(self.to.path()).unwrap()))
        }

        fn note(&self) -> Intent {
            let copy = LowerFile::new(File::open(self.copy()).unwrap().into());
            let folder = |path: PathBuf| LowerFile::new(open_folder(path.parent().unwrap()).unwrap());
            let (to, of) = (folder(self.copy()), folder(self.file()));
            Intent::note(&self.top(), &Moved { copy: &copy, to: &to, of: &of, name: c"file" }).unwrap()
        }

        fn notes(&self) -> Vec<PathBuf> {
            let all = fs::read_dir(self.to.path()).unwrap().map(|entry| entry.unwrap().path());
            all.filter(|path| path.file_name() != Some("d".as_ref())).collect()
        }

        /// What is left once the branch is opened again: of the file, of the copy; never of the note.
        fn left(&self) -> (bool, bool) {
            remove_unfinished(&self.top()).unwrap();
            assert_eq!(self.notes(), Vec::<PathBuf>::new());
            (self.file().exists(), self.copy().exists())
        }
    }

    #[test]
    fn a_move_that_was_cut_short_is_taken_back() {
        let both = Both::new();
        both.note().abandon();
        assert_eq!(both.notes().len(), 1);
        assert_eq!(both.left(), (true, false));
        // One that was not is as it is, and leaves nothing.
        let both = Both::new();
        drop(both.note());
        assert_eq!(both.left(), (true, true));
        // That of a server that is at it stays.
        let note = both.note();
        assert_eq!(remove_unfinished(&both.top()), Ok(0));
        assert_eq!((both.notes().len(), both.copy().exists()), (1, true));
        drop(note);
    }

    /// A file system without `O_TMPFILE` that cannot rename without replacing: the copy has two names for a moment. If the server was killed just then,
    /// and the note was read before one of them was removed, the file stayed on both branches.
    #[test]
    fn a_copy_that_has_two_names_for_a_moment_is_taken_back() {
        for round in 0..16 {
            let both = Both::new();
            let shop = both.to.path().join(crate::merge::temporary_name().to_str().unwrap());
            let make = || {
                if round % 4 < 2 {
                    fs::create_dir(&shop).unwrap();
                    fs::hard_link(both.copy(), shop.join("copy")).unwrap();
                } else {
                    // As earlier versions had it.
                    fs::hard_link(both.copy(), &shop).unwrap();
                }
            };
            // In whatever order the folder is listed.
            if round % 2 == 0 {
                make();
                both.note().abandon();
            } else {
                both.note().abandon();
                make();
            }
            assert_eq!(both.left(), (true, false), "{round}");
        }
    }

    #[test]
    fn what_was_touched_since_stays() {
        let touches: [fn(&Both); 6] = [
            |both| fs::remove_file(both.file()).unwrap(),
            |both| fs::write(both.file(), "other").unwrap(),
            |both| fs::write(both.copy(), "text").unwrap(),
            |both| fs::rename(both.file(), both.from.path().join("x")).unwrap(),
            |both| fs::hard_link(both.copy(), both.to.path().join("d/link")).unwrap(),
            |both| {
                // Instead of the folder, somebody has a symlink to one that is as it was.
                fs::rename(both.to.path().join("d"), both.from.path().join("e")).unwrap();
                std::os::unix::fs::symlink(both.from.path().join("e"), both.to.path().join("d")).unwrap();
            },
        ];
        for (number, touch) in touches.into_iter().enumerate() {
            let both = Both::new();
            both.note().abandon();
            touch(&both);
            let was_there = both.file().exists();
            assert_eq!(both.left(), (was_there, true), "{number}");
        }
    }

    /// A note names files of others, so that root removes them.
    #[test]
    fn a_note_of_somebody_else_is_not_believed() {
        let both = Both::new();
        both.note().abandon();
        fs::set_permissions(&both.notes()[0], fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(both.left(), (true, true));
        if effective_uid() == 0 {
            both.note().abandon();
            std::os::unix::fs::chown(&both.notes()[0], Some(65534), None).unwrap();
            assert_eq!(both.left(), (true, true));
        }
        // A copy that is not finished holds what its file holds, whatever that is.
        both.note().abandon();
        let text = fs::read(&both.notes()[0]).unwrap();
        fs::remove_file(&both.notes()[0]).unwrap();
        let copy = both.to.path().join(crate::merge::temporary_name().to_str().unwrap());
        fs::write(&copy, text).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(both.left(), (true, true));
    }

    #[test]
    fn notes_are_read_as_they_were_written() {
        let known =
            |ino, path: &str| Known { ino, size: u64::MAX, mtime: (-5, 999_999_999), path: path.into() };
        let (copy, file) = (known(1, "a/b"), known(u64::MAX, "mnt/x"));
        let text = [FIRST, &copy.text(), &file.text()].join(&0);
        assert_eq!(parse(&text), Some((copy, file)));
        assert_eq!(parse(&[text.as_slice(), b"\0more"].concat()), None);
        for len in 0..text.len() {
            // One whose last path is cut short names another file, of which the inode is not right.
            assert!(parse(&text[..len]).is_none_or(|(_, file)| file.path != b"mnt/x"), "{len}");
        }
    }
}
