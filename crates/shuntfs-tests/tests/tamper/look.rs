//! Looking at sealed files on the mount, and judging what is seen.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use rustix::mm::ProtFlags;
use shuntfs_testkit::raw::Mapping;
use shuntfs_testkit::viewer::Way;

use crate::ground::{Ground, readable};
use crate::step::{Look, SLOTS};
use crate::tree::{FILES, FOLDERS, LED_TO, LINKS};

/// What a look came to.
pub(crate) enum Seen {
    /// It looked at nothing.
    Nothing,
    /// It is as it was sealed.
    Good,
    Refused,
    Wrong(String),
}

/// Somebody on the mount, and what they hold open there.
pub(crate) struct Viewer<'g> {
    ground: &'g Ground,
    mount: PathBuf,
    is_required: bool,
    held: [Option<Held>; SLOTS],
}

struct Held {
    file: usize,
    open: File,
    mapping: Option<Mapping>,
}

impl<'g> Viewer<'g> {
    pub(crate) fn new(ground: &'g Ground, mount: &Path, is_required: bool) -> Self {
        Self { ground, mount: mount.to_owned(), is_required, held: std::array::from_fn(|_| None) }
    }

    pub(crate) fn release(&mut self) {
        self.held = std::array::from_fn(|_| None);
    }

    /// A file that is not as it was sealed, or refused.
    pub(crate) fn first_unreadable(&self) -> Option<&'static str> {
        (0..FILES.len()).find(|file| !matches!(self.at(*file, Way::Read), Seen::Good)).map(|file| FILES[file])
    }

    pub(crate) fn look(&mut self, look: &Look) -> Seen {
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
                    if let Ok(lower) = readable(&self.ground.below(held.file)) {
                        let _is_a_hint = fadvise(lower, 0, None, Advice::DontNeed);
                    }
                }
                Seen::Nothing
            }
        }
    }

    fn hold(&self, file: usize, mapped: bool) -> io::Result<Held> {
        let open = readable(&self.mount.join(FILES[file]))?;
        let len = self.ground.sealed.contents[file].len();
        let mapping = (mapped && len > 0).then(|| Mapping::new(&open, len, ProtFlags::READ, true));
        Ok(Held { file, open, mapping: mapping.transpose()? })
    }

    fn held(&self, slot: usize, way: Way) -> Seen {
        let Some(Held { file, open, mapping }) = &self.held[slot] else { return Seen::Nothing };
        let name = FILES[*file];
        if let Some(mapping) = mapping {
            let seen = mapping.try_load(0, self.ground.sealed.contents[*file].len());
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
        let sealed = self.ground.sealed.contents[file].len() as u64;
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
        let sealed = &self.ground.sealed.contents[file];
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
