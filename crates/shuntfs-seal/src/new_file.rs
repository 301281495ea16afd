//! Files that take their place when they are whole. Nothing that is there is ever written to: a link in the place is
//! replaced or refused, and of a file with several names the others keep what they have.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use shuntfs_sys::{OsError, Stat, names, open, regular, stat_of};
use shuntfs_verity::TreeSink;

/// `O_RDWR | O_CREAT | O_EXCL`.
const CREATE_NEW: u32 = 0o2 | 0o100 | 0o200;

/// A file that is being written, and goes where it is not kept.
#[derive(Debug)]
pub(crate) struct NewFile {
    folder: Arc<OwnedFd>,
    name: CString,
    file: File,
    is_kept: bool,
}

impl NewFile {
    /// Makes a file that was not there.
    pub(crate) fn start(folder: Arc<OwnedFd>, name: CString, mode: u32) -> shuntfs_sys::Result<Self> {
        let file = create_new(&*folder, &name, mode)?;
        Ok(Self { folder, name, file, is_kept: false })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Puts the file into its place, and goes on with it there.
    pub(crate) fn keep(mut self, folder: impl AsFd, place: &CStr) -> shuntfs_sys::Result<File> {
        names::rename_at(&*self.folder, &self.name, folder, place, 0)?;
        self.is_kept = true;
        open::duplicate(&self.file).map(File::from)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // Where it cannot be removed, it stays.
            let _left = names::unlink_at(&*self.folder, &self.name);
        }
    }
}

/// Makes a file that was not there, for reading and writing.
///
/// # Errors
/// EEXIST where anything is there, a link that leads nowhere, too.
pub(crate) fn create_new(folder: impl AsFd, name: &CStr, mode: u32) -> shuntfs_sys::Result<File> {
    open::open_at(folder, name, CREATE_NEW, mode).map(File::from)
}

/// A file that a person named ([`crate::Named::start`]), made beside what may be there and put in its place when it is whole.
///
/// It tells of some data, and can be read by nobody who cannot read that.
#[derive(Debug)]
pub struct Beside {
    file: NewFile,
    place: CString,
}

impl Beside {
    /// Starts the file `place` of a folder. Only a regular file is replaced.
    pub(crate) fn start(folder: Arc<OwnedFd>, place: CString, data: &File) -> io::Result<Self> {
        match open::open_path_at(&*folder, &place) {
            Err(OsError::NOENT) => {}
            found => regular::check(&stat_of(found?)?)?,
        }
        let file = NewFile::start(folder, temporary_name(), 0o600)?;
        let mode = mode_for(file.file(), data)?;
        shuntfs_sys::chmod(file.file(), mode)?;
        Ok(Self { file, place })
    }

    /// The file, to be written.
    #[must_use]
    pub fn file(&self) -> &File {
        self.file.file()
    }

    /// Makes it durable and puts it into its place.
    ///
    /// # Errors
    /// What fsync(2) and rename(2) give; what was there then still is.
    pub fn keep(self) -> io::Result<()> {
        self.file().sync_all()?;
        let folder = self.file.folder.clone();
        self.file.keep(&*folder, &self.place)?;
        Ok(())
    }
}

/// A tree from the start of the file on.
impl TreeSink for Beside {
    fn put(&mut self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        self.file().write_all_at(blocks, offset)
    }
}

/// A name that nobody else has, and whose maker can be seen.
fn temporary_name() -> CString {
    CString::new(format!(".shunt-{}", random())).expect("digits")
}

/// 16 hexadecimal digits that were not used before. Not a secret.
pub(crate) fn random() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// Who may read a file that tells of some data: its owner, and group and others where they may read the data.
fn mode_for(file: &File, data: &File) -> shuntfs_sys::Result<u32> {
    const OWNER: u32 = 0o600;
    // An access list says more than the mode can, and that of the folder comes to what is made in it.
    if has_access_list(file) || has_access_list(data) {
        return Ok(OWNER);
    }
    let (Stat { gid, .. }, data) = (stat_of(file)?, stat_of(data)?);
    Ok(match (data.mode & 0o040 != 0, data.mode & 0o004 != 0) {
        (true, true) => OWNER | 0o044,
        (true, false) if gid == data.gid => OWNER | 0o040,
        // What others may read and the group may not.
        (false, true) if gid == data.gid => OWNER | 0o004,
        _ => OWNER,
    })
}

fn has_access_list(file: &File) -> bool {
    shuntfs_sys::get_xattr(file, c"system.posix_acl_access", &mut []).is_ok()
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::Named;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_takes_its_place_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("data"), "x").unwrap();
        let data = File::open(at("data")).unwrap();
        fs::write(at("old"), "old").unwrap();
        fs::hard_link(at("old"), at("other name")).unwrap();
        for keeps in [false, true] {
            let new = Named::find(&at("old")).unwrap().start(&data).unwrap();
            new.file().write_all_at(b"new", 0).unwrap();
            assert_eq!(fs::read(at("old")).unwrap(), b"old");
            if keeps { new.keep().unwrap() } else { drop(new) }
        }
        assert_eq!(fs::read(at("old")).unwrap(), b"new");
        assert_eq!(fs::read(at("other name")).unwrap(), b"old");
        symlink("other name", at("link")).unwrap();
        symlink("nothing", at("dangling")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for (name, what) in [("link", "a symlink"), ("dangling", "a symlink"), ("folder", "a folder")] {
            let error = Named::find(&at(name)).unwrap().start(&data).unwrap_err();
            assert_eq!(error.to_string(), format!("it is {what}, not a regular file"));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6, "nothing half-written is left");
    }
}
