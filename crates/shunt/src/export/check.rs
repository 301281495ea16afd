//! Everything that can be wrong with the place of an export, looked for before anything happens.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use shuntfs_sys::{get_xattr, open_target, set_xattr, stat_of};

use crate::failure::Failure;
use crate::mount::check::check_unused;
use crate::mounts::{Mounts, shown};

/// What a file that was made for an export has, and no other file.
const MADE: &CStr = c"user.shunt.made";

/// Removes a file that an export made, and whose server was killed before it could.
pub(crate) fn remove_made(path: &Path) {
    let is_made = open_target(path).is_ok_and(|file| {
        stat_of(&file).is_ok_and(|stat| stat.is_file() && stat.size == 0)
            && get_xattr(&file, MADE, &mut [0; 8]).is_ok()
    });
    if is_made {
        let _gone_already = fs::remove_file(path);
    }
}

/// The file that an image is shown as.
#[derive(Debug)]
pub(super) struct Place {
    /// Absolute, without symlinks.
    pub(super) path: PathBuf,
    /// The file that was made for it, and goes again, once.
    made: Mutex<Option<(u64, u64)>>,
}

impl Place {
    /// Looks at the file, and makes it where there is none.
    ///
    /// # Errors
    /// Where it is no file, cannot be made, or is a mount already.
    pub(super) fn find(file: &Path) -> Result<Self, Failure> {
        let mounts = Mounts::read()?;
        let refused =
            |error: &io::Error| Failure::new(format!("FILE {} cannot be used: {error}", shown(file)));
        match mounts.locate(file) {
            Ok(path) => {
                check_unused(&mounts, &path)?;
                let kind = fs::metadata(&path).map_err(|error| refused(&error))?;
                if !kind.is_file() {
                    return Err(Failure::new(format!("FILE {} is not a regular file", shown(&path)))
                        .hint("name a file, or one that is not there yet"));
                }
                Ok(Self { path, made: Mutex::default() })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::make(file).map_err(|error| refused(&error))
            }
            Err(error) => Err(refused(&error)),
        }
    }

    fn make(file: &Path) -> io::Result<Self> {
        let made = fs::File::create_new(file)?;
        let metadata = made.metadata()?;
        // So that it goes even if this process is killed; not every file system keeps such words.
        let _not_kept = set_xattr(&made, MADE, b"1", 0);
        let path = file.canonicalize()?;
        Ok(Self { path, made: Mutex::new(Some((metadata.dev(), metadata.ino()))) })
    }

    /// The place that another program had shown until now, without a look at it: whoever touches it waits for a server.
    pub(super) fn of(path: PathBuf, made: Option<(u64, u64)>) -> Self {
        Self { path, made: Mutex::new(made) }
    }

    /// The file that was made for it: its device and its inode number.
    pub(super) fn made(&self) -> Option<(u64, u64)> {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another process has removed it: a file of this name is somebody else's from now on.
    pub(super) fn is_removed(&self) {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Removes the file that was made for this, unless somebody has put something in its place. To be called before anybody is
    /// told of the end, who may make an export of the same name at once.
    pub(super) fn remove(&self) {
        let Some(made) = self.made.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let own = fs::symlink_metadata(&self.path)
            .is_ok_and(|there| (there.dev(), there.ino()) == made && there.len() == 0);
        if own {
            let _gone_already = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_what_was_made_is_removed_by_another_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let (made, theirs) = (folder.path().join("made"), folder.path().join("theirs"));
        std::mem::forget(Place::find(&made).expect("is made"));
        fs::write(&theirs, "").expect("writes");
        remove_made(&theirs);
        assert!(theirs.exists());
        let is_kept = get_xattr(open_target(&made).expect("is there"), MADE, &mut [0; 8]).is_ok();
        fs::write(&made, "filled").expect("writes");
        remove_made(&made);
        assert!(made.exists());
        fs::write(&made, "").expect("writes");
        remove_made(&made);
        assert_eq!(made.exists(), !is_kept);
    }

    #[test]
    fn a_file_is_made_where_there_is_none_and_goes_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        let place = Place::find(&path).expect("is made");
        assert!(path.is_file());
        drop(place);
        assert!(!path.exists());
        let place = Place::find(&path).expect("is made");
        place.remove();
        assert!(!path.exists());
        // Of another export, which may well get the number of the file that went.
        fs::write(&path, "").expect("writes");
        drop(place);
        assert!(path.exists());
        fs::write(&path, "mine").expect("writes");
        drop(Place::find(&path).expect("is there"));
        assert_eq!(fs::read(&path).expect("stays"), b"mine");
        let said = Place::find(folder.path()).expect_err("a folder").to_string();
        assert!(said.contains("not a regular file"), "{said}");
        let said = Place::find(&folder.path().join("no/such")).expect_err("no folder").to_string();
        assert!(said.contains("cannot be used"), "{said}");
    }
}
