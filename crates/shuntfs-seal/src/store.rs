//! Where trees, manifest and seal are: a folder `.shunt` beside the data, or anywhere else.
//!
//! | name | what |
//! |---|---|
//! | `seal` | the manifest's descriptor and the signatures over it; replaced by rename |
//! | `manifests/HEX` | the manifest, by its digest |
//! | `trees/HE/X..` | hash trees by the digests of their files, the manifest's among them; equal files share one |
//! | `unchanged` | which files were hashed in which state, so that they need not be hashed again; believed by `shunt seal` alone |
//! | `inodes` | which inode each file had, to know it by other names |
//! | `progress` | the same of a run that has not ended |
//! | `making` | what a run that has not ended made |
//! | `store` | what makes the folder a store, and whose |
//! | `staging/` | files that are being written |
//! | `lock` | held by the one that writes |
//!
//! Nothing that is read here is trusted: the seal by its signatures, the rest by the digests that it names.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shuntfs_sys::{Stat, open, spawn, stat_of};
use shuntfs_verity::{Descriptor, Digest, Shape};

use crate::seal_file::SEAL_LEN_MAX;
use crate::{Seal, StoreError};

/// A store that is there.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
    folder: Arc<OwnedFd>,
}

/// What is kept of a sealed file: everything but its data.
#[derive(Debug)]
#[non_exhaustive]
pub struct SealedFile {
    /// Size, parameters and root hash.
    pub descriptor: Descriptor,
    /// Its tree, as long as it must be and not checked otherwise; `None` where the file is one block or less.
    pub tree: Option<File>,
}

impl Store {
    /// The path of the store beside the data of a tree.
    #[must_use]
    pub fn beside(tree: &Path) -> PathBuf {
        tree.join(".shunt")
    }

    /// Takes hold of a store; whether there is a seal in it is another question.
    ///
    /// # Errors
    /// [`StoreError::NotSealed`] where a tree has no such folder in it, else what opening it gives.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        match open::open_folder(path) {
            Ok(folder) => Ok(Self { path: path.to_owned(), folder: Arc::new(folder) }),
            Err(shuntfs_sys::OsError::NOENT) => {
                // `DIR/.shunt` that is missing says something of DIR, any other folder of itself.
                let beside = path.file_name().is_some_and(|name| name == ".shunt");
                let Some(tree) = path.parent().filter(|_| beside) else {
                    return Err(StoreError::io(path, shuntfs_sys::OsError::NOENT));
                };
                let tree = if tree.as_os_str().is_empty() { Path::new(".") } else { tree };
                match open::open_target(tree) {
                    Ok(_) => Err(StoreError::NotSealed(tree.to_owned())),
                    Err(error) => Err(StoreError::io(tree, error)),
                }
            }
            Err(error) => Err(StoreError::io(path, error)),
        }
    }

    /// Takes hold of the store beside the data of a tree whose folder is held already: by its name there, whatever the path of
    /// the tree leads to by now.
    ///
    /// # Errors
    /// [`StoreError::NotSealed`] where there is none; it is a symlink, or something else is mounted there.
    pub fn open_beside(tree: &Path, folder: impl AsFd) -> Result<Self, StoreError> {
        /// `O_PATH | O_DIRECTORY`
        const HOLD: u32 = 0o10_200_000;
        let path = Self::beside(tree);
        match open::open_on_mount(folder, c".shunt", HOLD) {
            Ok(folder) => Ok(Self { path, folder: Arc::new(folder) }),
            Err(shuntfs_sys::OsError::NOENT) => Err(StoreError::NotSealed(tree.to_owned())),
            Err(error) => Err(StoreError::io(&path, error)),
        }
    }

    /// Whether two are the same folder.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |store: &Self| stat_of(&*store.folder).ok().map(|stat| (stat.dev, stat.ino));
        place(self).is_some_and(|here| place(other) == Some(here))
    }

    /// A store whose folder is held already; the path is for what is said of it.
    #[must_use]
    pub fn held(path: PathBuf, folder: Arc<OwnedFd>) -> Self {
        Self { path, folder }
    }

    /// Who else could have written it than this user and root, in words.
    #[must_use]
    pub fn others_who_write(&self) -> Option<String> {
        stat_of(&*self.folder).map_or(None, |stat| others_who_write(&stat))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where its seal is.
    #[must_use]
    pub fn seal_path(&self) -> PathBuf {
        self.path.join("seal")
    }

    /// Reads the seal, and believes none of it.
    ///
    /// # Errors
    /// [`StoreError::NotSealed`] where there is none; it is longer than a seal can be, or none at all.
    pub fn seal(&self) -> Result<Seal, StoreError> {
        let path = self.seal_path();
        let file = match self.file("seal") {
            Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(StoreError::NotSealed(self.path.clone()));
            }
            file => file?,
        };
        let mut bytes = vec![0; SEAL_LEN_MAX + 1];
        let len = read_full(&file, &mut bytes).map_err(|error| StoreError::io(&path, error))?;
        bytes.truncate(len);
        Seal::parse(&bytes).map_err(|why| StoreError::broken(path, why))
    }

    /// Opens a file's tree; it must be as long as the descriptor says. The caller checks what it reads.
    ///
    /// # Errors
    /// It does not exist, or truncated, or grown.
    pub fn open_tree(&self, descriptor: &Descriptor) -> Result<SealedFile, StoreError> {
        let digest = descriptor.digest();
        let name = tree_name(&digest);
        let shape = Shape::new(descriptor.params(), descriptor.file_size());
        let shape = shape.map_err(|error| StoreError::broken(self.path.join(&name), error.to_string()))?;
        if shape.levels() == 0 {
            return Ok(SealedFile { descriptor: *descriptor, tree: None });
        }
        let tree = self.file(&name)?;
        self.check_len(&name, &tree, shape.tree_len())?;
        Ok(SealedFile { descriptor: *descriptor, tree: Some(tree) })
    }

    /// Where a file's tree is, by the file's digest; files of one block or less have none.
    #[must_use]
    pub fn tree_path(&self, digest: &Digest) -> PathBuf {
        self.path.join(tree_name(digest))
    }

    pub(crate) fn manifest_path(&self, digest: &Digest) -> PathBuf {
        self.path.join(manifest_name(digest))
    }

    pub(crate) fn open_manifest(&self, descriptor: &Descriptor) -> Result<(PathBuf, File), StoreError> {
        let name = manifest_name(&descriptor.digest());
        let file = self.file(&name)?;
        self.check_len(&name, &file, descriptor.file_size())?;
        Ok((self.path.join(name), file))
    }

    /// Opens a regular file of the store; no symlink leads out of it, and nothing is waited for.
    pub(crate) fn file(&self, name: &str) -> Result<File, StoreError> {
        /// `O_NONBLOCK`: a pipe instead of a tree must not be waited for.
        const NONBLOCK: u32 = 0o4000;
        let path = || self.path.join(name);
        let c_name = CString::new(name).map_err(|error| StoreError::io(path(), error))?;
        let fd = open::open_beneath(&*self.folder, &c_name, NONBLOCK);
        let file = File::from(fd.map_err(|error| StoreError::io(path(), error))?);
        match file.metadata() {
            Ok(found) if found.is_file() => Ok(file),
            Ok(_) => Err(StoreError::broken(path(), "it is no regular file")),
            Err(error) => Err(StoreError::io(path(), error)),
        }
    }

    fn check_len(&self, name: &str, file: &File, wanted: u64) -> Result<(), StoreError> {
        let path = || self.path.join(name);
        let found = file.metadata().map_err(|error| StoreError::io(path(), error))?.len();
        if found != wanted {
            let how = if found < wanted { "truncated" } else { "grown" };
            let why = format!("it was {how}: {found} bytes in place of {wanted}");
            return Err(StoreError::broken(path(), why));
        }
        Ok(())
    }
}

impl AsFd for Store {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Who else than this user and root can write a folder, in words. An access list that lets somebody write is seen in the
/// bits of the group.
pub(crate) fn others_who_write(stat: &Stat) -> Option<String> {
    const OTHERS: u32 = 0o022;
    if stat.uid != 0 && stat.uid != spawn::effective_uid() {
        return Some(format!("it belongs to user {}", stat.uid));
    }
    (stat.mode & OTHERS != 0)
        .then(|| format!("it can be written by others: its mode is {:o}", stat.mode & 0o7777))
}

/// The folder and the name of a tree, below `trees`.
pub(crate) fn tree_parts(digest: &Digest) -> (String, String) {
    let mut folder = digest.to_hex();
    let name = folder.split_off(2);
    (folder, name)
}

pub(crate) fn tree_name(digest: &Digest) -> String {
    let (folder, name) = tree_parts(digest);
    format!("trees/{folder}/{name}")
}

pub(crate) fn manifest_name(digest: &Digest) -> String {
    format!("manifests/{}", digest.to_hex())
}

/// Fills the buffer from an offset on.
pub(crate) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_full(file: &File, bytes: &mut [u8]) -> shuntfs_sys::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match shuntfs_sys::data::read_at(file, rest, filled as u64)? {
            0 => break,
            len => filled += len,
        }
    }
    Ok(filled)
}
