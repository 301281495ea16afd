//! What lies below the mount, and what somebody does to it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rustix::fs::{CWD, FallocateFlags, Mode, RenameFlags, fallocate, mkfifoat, renameat_with};
use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::step::{Below, InStore, Over};
use crate::tree::{FILES, FOLDERS, LINKS, Sealed, remove};

/// What no sealed file holds.
const OUTSIDE: &[u8] = b"from outside";

/// A sealed tree, its store, and what else there is.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) source: PathBuf,
    /// A folder on the same file system, outside of the tree.
    pub(crate) beside: PathBuf,
    pub(crate) sealed: Sealed,
}

impl Ground {
    /// Changes something below. What cannot be done is not done.
    pub(crate) fn tamper(&self, change: &Below) -> Result<()> {
        match change {
            Below::Heal => self.heal()?,
            change => drop(self.change(change)),
        }
        Ok(())
    }

    /// Changes something in the store, in the same way.
    pub(crate) fn tamper_store(&self, file: usize, change: &InStore) {
        drop(self.change_store(file, change));
    }

    /// Makes everything what it was when it was sealed. Somebody on the mount may be making files meanwhile.
    pub(crate) fn heal(&self) -> Result<()> {
        uncover(&self.source)?;
        self.sealed.heal(&self.source)?;
        Ok(fs::create_dir(self.source.join("out"))?)
    }

    pub(crate) fn below(&self, file: usize) -> PathBuf {
        self.source.join(FILES[file])
    }

    fn change(&self, change: &Below) -> Result<()> {
        let inside = |file: usize, at: u64| at % (self.sealed.contents[file].len() as u64 + 4096);
        match *change {
            Below::Flip { file, at } => flip(&self.below(file), at)?,
            Below::Overwrite { file, at, len } => {
                writable(&self.below(file))?.write_all_at(&vec![0x5a; len], inside(file, at))?;
            }
            Below::Cut { file, len } => writable(&self.below(file))?.set_len(inside(file, len))?,
            Below::Grow { file, by } => {
                let open = writable(&self.below(file))?;
                let end = open.metadata()?.len();
                open.write_all_at(&vec![0x47; usize::try_from(by)?], end)?;
            }
            Below::Punch { file, at, len } => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(writable(&self.below(file))?, flags, inside(file, at), len)?;
            }
            Below::Mend { file } => {
                let open = writable(&self.below(file))?;
                open.write_all_at(&self.sealed.contents[file], 0)?;
                open.set_len(self.sealed.contents[file].len() as u64)?;
            }
            Below::Chmod { file, mode } => {
                fs::set_permissions(self.below(file), Permissions::from_mode(mode))?
            }
            Below::Touch { file, seconds } => {
                let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds.unsigned_abs());
                writable(&self.below(file))?.set_modified(time)?;
            }
            Below::Cover { file, with } => cover(&self.below(file), &self.over_file(file, with)?)?,
            Below::CoverFolder { folder, with } => {
                cover(&self.source.join(FOLDERS[folder]), &self.over_folder(folder, with)?)?;
            }
            Below::Uncover => uncover(&self.source)?,
            _ => self.change_names(change)?,
        }
        Ok(())
    }

    /// What must be mounted over a file.
    fn over_file(&self, file: usize, with: Over) -> Result<PathBuf> {
        let (path, bytes): (_, &[u8]) = match with {
            Over::Other(other) => return Ok(self.below(other)),
            Over::Same => (self.beside.join(format!("same {file}")), &self.sealed.contents[file]),
            Over::Outside => (self.beside.join("outside"), OUTSIDE),
        };
        put(&path, bytes)?;
        Ok(path)
    }

    /// What must be mounted over a folder; what is in it has the names of sealed files.
    fn over_folder(&self, folder: usize, with: Over) -> Result<PathBuf> {
        let name = FOLDERS[folder];
        let path = match with {
            Over::Other(other) => return Ok(self.source.join(FOLDERS[other])),
            Over::Same => self.beside.join(format!("same folder {folder}")),
            Over::Outside => self.beside.join(format!("other folder {folder}")),
        };
        fs::create_dir_all(&path)?;
        for (file, sealed) in FILES.iter().zip(&self.sealed.contents) {
            if let Ok(inside) = Path::new(file).strip_prefix(name) {
                let path = path.join(inside);
                fs::create_dir_all(path.parent().unwrap_or(&path))?;
                put(&path, if matches!(with, Over::Same) { sealed } else { OUTSIDE })?;
            }
        }
        Ok(path)
    }

    fn change_names(&self, change: &Below) -> Result<()> {
        let away = |what: &str, number: usize| self.source.join(format!("{what}-{number}-away"));
        match *change {
            Below::Replace { file, good } => {
                let new = self.source.join("new");
                let mut bytes = self.sealed.contents[file].clone();
                if !good && let Some(byte) = bytes.iter_mut().last() {
                    *byte ^= 0x80;
                }
                fs::write(&new, bytes)?;
                fs::rename(new, self.below(file))?;
            }
            Below::ToSymlink { file, to } => {
                let outside = self.beside.join("outside");
                fs::write(&outside, OUTSIDE)?;
                remove(&self.below(file))?;
                symlink(to.map_or(outside, |to| self.below(to)), self.below(file))?;
            }
            Below::ToFolder { file } => {
                remove(&self.below(file))?;
                fs::create_dir(self.below(file))?;
            }
            Below::ToPipe { file } => {
                remove(&self.below(file))?;
                mkfifoat(CWD, self.below(file), Mode::from_raw_mode(0o666))?;
            }
            Below::ToLinkOf { file, of } if file != of => {
                remove(&self.below(file))?;
                fs::hard_link(self.below(of), self.below(file))?;
            }
            Below::Swap { file, with } => exchange(&self.below(file), &self.below(with))?,
            Below::Remove { file } => remove(&self.below(file))?,
            Below::MoveAway { file } => fs::rename(self.below(file), away("file", file))?,
            Below::MoveBack { file } => fs::rename(away("file", file), self.below(file))?,
            Below::SwapFolders { folder, with } => {
                exchange(&self.source.join(FOLDERS[folder]), &self.source.join(FOLDERS[with]))?;
            }
            Below::FolderToSymlink { folder, to } => {
                let path = self.source.join(FOLDERS[folder]);
                fs::rename(&path, away("folder", folder))?;
                symlink(self.source.join(FOLDERS[to]), path)?;
            }
            Below::FolderBack { folder } => {
                let path = self.source.join(FOLDERS[folder]);
                if fs::symlink_metadata(&path)?.is_symlink() {
                    fs::remove_file(&path)?;
                }
                fs::rename(away("folder", folder), path)?;
            }
            Below::Redirect { link, to } => {
                let path = self.source.join(LINKS[link].0);
                remove(&path)?;
                symlink(FILES[to], path)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn change_store(&self, file: usize, change: &InStore) -> Result<()> {
        let count = self.sealed.stored().len();
        let Some(path) = self.sealed.stored().nth(file % count) else { return Ok(()) };
        match *change {
            InStore::Flip { at } => flip(&path, at)?,
            InStore::Cut => writable(&path)?.set_len(fs::metadata(&path)?.len() / 2)?,
            InStore::Remove => fs::remove_file(&path)?,
            InStore::ToSymlink => {
                remove(&path)?;
                symlink(self.beside.join("outside"), &path)?;
            }
            InStore::Mend => self.sealed.mend_stored(file % count)?,
        }
        Ok(())
    }
}

fn flip(path: &Path, at: u64) -> Result<()> {
    let open = writable(path)?;
    let at = at % open.metadata()?.len().max(1);
    let mut byte = [0];
    open.read_exact_at(&mut byte, at)?;
    Ok(open.write_all_at(&[byte[0] ^ 4], at)?)
}

/// Never waits for a pipe's other end, and never follows a link.
fn writable(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

pub(crate) fn readable(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// Makes a new file instead of whatever has come there, which may be a pipe.
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    remove(path)?;
    Ok(fs::write(path, bytes)?)
}

/// Mounts something over a file or a folder itself, never over what a link leads to.
fn cover(path: &Path, with: &Path) -> Result<()> {
    for end in [path, with] {
        ensure!(!fs::symlink_metadata(end)?.is_symlink(), "{} is a symlink", end.display());
    }
    Ok(mount_bind(with, path)?)
}

/// Unmounts all that is mounted below a folder, the last one first. Somebody may still use it.
fn uncover(source: &Path) -> Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    // No name of the test needs escapes there.
    let targets = table.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    let below: Vec<&Path> =
        targets.filter(|target| *target != source && target.starts_with(source)).collect();
    for target in below.into_iter().rev() {
        unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
    }
    Ok(())
}
