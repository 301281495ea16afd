//! Taking steps, and judging what is seen.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{
    Advice, CWD, FallocateFlags, Mode, RenameFlags, fadvise, fallocate, mkfifoat, renameat_with,
};
use rustix::mm::ProtFlags;
use shuntfs_testkit::raw::Mapping;
use shuntfs_testkit::viewer::Way;

use crate::step::{Below, InStore, Look, SLOTS, Step};
use crate::tree::{FILES, FOLDERS, LED_TO, LINKS, Sealed, remove};

/// What a step came to.
pub(crate) enum Seen {
    /// It looked at nothing.
    Nothing,
    /// It is as it was sealed.
    Good,
    Refused,
    Wrong(String),
}

/// A tree, its mount, and what is held open there.
pub(crate) struct World {
    source: PathBuf,
    beside: PathBuf,
    mount: PathBuf,
    sealed: Sealed,
    is_required: bool,
    held: [Option<Held>; SLOTS],
}

struct Held {
    file: usize,
    open: File,
    mapping: Option<Mapping>,
}

impl World {
    pub(crate) fn new(
        source: PathBuf,
        beside: PathBuf,
        mount: &Path,
        sealed: Sealed,
        is_required: bool,
    ) -> Self {
        let held = std::array::from_fn(|_| None);
        Self { source, beside, mount: mount.to_owned(), sealed, is_required, held }
    }

    /// Takes a step. What cannot be done below is not done.
    pub(crate) fn take(&mut self, step: &Step) -> Result<Seen> {
        match step {
            Step::Below(Below::Heal) => self.heal()?,
            Step::Below(change) => drop(self.change(change)),
            Step::Store(file, change) => drop(self.change_store(*file, change)),
            Step::Look(look) => return Ok(self.look(look)),
        }
        Ok(Seen::Nothing)
    }

    pub(crate) fn heal(&self) -> Result<()> {
        self.sealed.heal(&self.source)?;
        Ok(fs::create_dir(self.source.join("out"))?)
    }

    pub(crate) fn release(&mut self) {
        self.held = std::array::from_fn(|_| None);
    }

    /// A file that is not as it was sealed, or refused.
    pub(crate) fn first_unreadable(&self) -> Option<&'static str> {
        (0..FILES.len()).find(|file| !matches!(self.at(*file, Way::Read), Seen::Good)).map(|file| FILES[file])
    }

    fn below(&self, file: usize) -> PathBuf {
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
            _ => self.change_names(change)?,
        }
        Ok(())
    }

    fn change_names(&self, change: &Below) -> Result<()> {
        let away = |what: &str, number: usize| self.source.join(format!("{what} {number} away"));
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
                fs::write(&outside, "from outside")?;
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

    fn look(&mut self, look: &Look) -> Seen {
        match *look {
            Look::At { file, way } => self.at(file, way),
            Look::Through { link, way } => self.through(link, way),
            Look::Link { link } => self.link(link),
            Look::Stat { file } => self.stat(file),
            Look::StatFolder { folder } => match fs::symlink_metadata(self.mount.join(FOLDERS[folder])) {
                Err(_) => Seen::Refused,
                Ok(found) if found.is_dir() => Seen::Good,
                Ok(found) => Seen::Wrong(format!("{} is {:?}", FOLDERS[folder], found.file_type())),
            },
            Look::List { folder } => self.list(folder),
            Look::Hold { slot, file, mapped } => {
                self.held[slot] = None;
                if !matches!(self.stat(file), Seen::Good) {
                    return self.stat(file);
                }
                match self.hold(file, mapped) {
                    Err(_) => Seen::Refused,
                    Ok(held) => {
                        self.held[slot] = Some(held);
                        Seen::Good
                    }
                }
            }
            Look::Held { slot, way } => self.held(slot, way),
            Look::Release { slot } => {
                self.held[slot] = None;
                Seen::Nothing
            }
            Look::Forget { slot } => {
                if let Some(held) = &self.held[slot] {
                    let _is_a_hint = fadvise(&held.open, 0, None, Advice::DontNeed);
                    if let Ok(lower) = readable(&self.below(held.file)) {
                        let _is_a_hint = fadvise(lower, 0, None, Advice::DontNeed);
                    }
                }
                Seen::Nothing
            }
        }
    }

    fn hold(&self, file: usize, mapped: bool) -> io::Result<Held> {
        let open = readable(&self.mount.join(FILES[file]))?;
        let len = self.sealed.contents[file].len();
        let mapping = (mapped && len > 0).then(|| Mapping::new(&open, len, ProtFlags::READ, true));
        Ok(Held { file, open, mapping: mapping.transpose()? })
    }

    fn held(&self, slot: usize, way: Way) -> Seen {
        let Some(Held { file, open, mapping }) = &self.held[slot] else { return Seen::Nothing };
        let name = FILES[*file];
        if let Some(mapping) = mapping {
            let seen = mapping.try_load(0, self.sealed.contents[*file].len());
            let seen = self.judge(&format!("a mapping of {name}"), *file, seen.map_err(io::Error::from));
            if matches!(seen, Seen::Wrong(_)) {
                return seen;
            }
        }
        self.judge(&format!("{name}, held, by {way:?}"), *file, way.look_at(open, &self.out()))
    }

    fn at(&self, file: usize, way: Way) -> Seen {
        let stat = self.stat(file);
        if !matches!(stat, Seen::Good) {
            return stat;
        }
        let seen = way.look(&self.mount.join(FILES[file]), &self.out());
        self.judge(&format!("{} by {way:?}", FILES[file]), file, seen)
    }

    fn through(&self, link: usize, way: Way) -> Seen {
        let file = LED_TO[link];
        for seen in [self.link(link), self.stat(file)] {
            if !matches!(seen, Seen::Good) {
                return seen;
            }
        }
        let seen = way.look(&self.mount.join(LINKS[link].0), &self.out());
        self.judge(&format!("{} by {way:?}", LINKS[link].0), file, seen)
    }

    fn link(&self, link: usize) -> Seen {
        let (name, target) = LINKS[link];
        match fs::read_link(self.mount.join(name)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Seen::Wrong(format!("{name} is no symlink"))
            }
            Err(_) => Seen::Refused,
            Ok(found) if found == Path::new(target) => Seen::Good,
            Ok(found) => Seen::Wrong(format!("{name} leads to {}", found.display())),
        }
    }

    fn stat(&self, file: usize) -> Seen {
        let sealed = self.sealed.contents[file].len() as u64;
        match fs::symlink_metadata(self.mount.join(FILES[file])) {
            Err(_) => Seen::Refused,
            Ok(found) if found.is_file() && found.len() == sealed => Seen::Good,
            Ok(found) if found.is_file() => {
                Seen::Wrong(format!("{} has {} bytes in place of {sealed}", FILES[file], found.len()))
            }
            Ok(found) => Seen::Wrong(format!("{} is {:?}", FILES[file], found.file_type())),
        }
    }

    /// A manifest that is shown has the names that were sealed; of the folder below, it is not promised what more there is.
    fn list(&self, folder: usize) -> Seen {
        let path = self.mount.join(FOLDERS[folder]);
        let found: io::Result<Vec<_>> =
            fs::read_dir(path).and_then(|list| list.map(|entry| Ok(entry?.file_name())).collect());
        let Ok(mut found) = found else { return Seen::Refused };
        if !self.is_required {
            return Seen::Good;
        }
        let all = FILES.iter().chain(&FOLDERS).copied().chain(LINKS.iter().map(|(name, _)| *name));
        let parent = Path::new(FOLDERS[folder]);
        let inside = all.map(Path::new).filter(|path| path.parent() == Some(parent));
        let mut sealed: Vec<_> = inside.filter_map(|path| Some(path.file_name()?.to_owned())).collect();
        sealed.sort();
        found.sort();
        if found == sealed { Seen::Good } else { Seen::Wrong(format!("{} holds {found:?}", FOLDERS[folder])) }
    }

    fn judge(&self, what: &str, file: usize, seen: io::Result<Vec<u8>>) -> Seen {
        let sealed = &self.sealed.contents[file];
        match seen {
            Err(_) => Seen::Refused,
            Ok(seen) if seen == *sealed => Seen::Good,
            Ok(seen) => {
                let first = seen.iter().zip(sealed).position(|(one, other)| one != other);
                let first = first.unwrap_or(seen.len().min(sealed.len()));
                Seen::Wrong(format!(
                    "{what}: {} bytes in place of {}, first wrong at {first}",
                    seen.len(),
                    sealed.len()
                ))
            }
        }
    }

    fn out(&self) -> PathBuf {
        self.mount.join("out")
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

fn readable(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}
