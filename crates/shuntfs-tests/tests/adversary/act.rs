//! Doing a step on the mount, by system calls, as the user of the step.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, MemfdFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    UTIME_NOW, XattrFlags, copy_file_range, fallocate, fstat, ftruncate, linkat, memfd_create, mkdirat,
    openat, renameat_with, sendfile, setxattr, statat, unlinkat, utimensat,
};
use rustix::io::{Errno, Result, pread, pwrite};
use rustix::mm::ProtFlags;
use rustix::pipe::{SpliceFlags, pipe, splice};
use shuntfs_testkit::identity::Identity;
use shuntfs_testkit::raw::Mapping;

use crate::generate::SLOTS;
use crate::step::{Action, Hold, Step, Way};

const PAGE: usize = 4096;

/// What a step got.
#[derive(Debug)]
pub(crate) enum Got {
    Nothing,
    Bytes(Vec<u8>),
    Names(Vec<String>),
}

/// What the users hold in common: the mount, and the files that they keep open and hand to each other.
pub(crate) struct Hands {
    root: OwnedFd,
    source: OwnedFd,
    mount: std::path::PathBuf,
    slots: [Option<OwnedFd>; SLOTS],
    made: u64,
    uid: u32,
}

impl Hands {
    pub(crate) fn at(mount: &Path, source: &Path) -> Result<Self> {
        let folder = |path| openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let (root, source) = (folder(mount)?, folder(source)?);
        Ok(Self { root, source, mount: mount.to_owned(), slots: Default::default(), made: 0, uid: 0 })
    }

    /// Becomes a user of file systems, root with 0.
    pub(crate) fn act_as(&mut self, uid: u32) {
        if self.uid != uid {
            Identity::new(uid, uid).act();
            self.uid = uid;
        }
    }

    /// Does a step and is root again after it.
    pub(crate) fn take(&mut self, step: &Step) -> Result<Got> {
        self.act_as(step.uid);
        let got = self.act(&step.action);
        self.act_as(0);
        got
    }

    fn act(&mut self, action: &Action) -> Result<Got> {
        match action {
            Action::Look(path) => statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW).map(|_| Got::Nothing),
            Action::List(path) => self.list(path),
            Action::Read(path, way) => {
                let direct = if *way == Way::Direct { OFlags::DIRECT } else { OFlags::empty() };
                self.open(path, OFlags::RDONLY | direct).and_then(|file| read(&file, *way)).map(Got::Bytes)
            }
            Action::Copy(from, to) => self.copy(from, to),
            Action::Write(path) => self.write(path, OFlags::WRONLY),
            Action::Append(path) => self.write(path, OFlags::WRONLY | OFlags::APPEND),
            Action::OpenTruncating(path) => self.open(path, OFlags::WRONLY | OFlags::TRUNC).map(nothing),
            Action::Truncate(path) => truncate(&self.mount.join(path)),
            Action::Punch(path) => {
                let file = self.open(path, OFlags::RDWR)?;
                fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 8).map(nothing)
            }
            Action::Hold(path, how, slot) => {
                let file = self.open(path, flags(*how))?;
                self.slots[*slot] = Some(file);
                Ok(Got::Nothing)
            }
            Action::ReadHeld(slot) => read(self.held(*slot)?, Way::Read).map(Got::Bytes),
            Action::WriteHeld(slot) => pwrite(self.held(*slot)?, b"by held.", 8).map(nothing),
            Action::TruncateHeld(slot) => ftruncate(self.held(*slot)?, 16).map(nothing),
            Action::ReadAgain(slot) => read(&self.again(*slot, OFlags::RDONLY)?, Way::Read).map(Got::Bytes),
            Action::WriteAgain(slot) => {
                pwrite(self.again(*slot, OFlags::WRONLY)?, b"by again", 8).map(nothing)
            }
            Action::TruncateAgain(slot) => truncate(Path::new(&self.link(*slot)?)),
            Action::Drop(slot) => {
                self.slots[*slot] = None;
                Ok(Got::Nothing)
            }
            Action::ForgetNames => {
                self.act_as(0);
                std::fs::write("/proc/sys/vm/drop_caches", "2").map_err(|_| Errno::PERM).map(nothing)
            }
            Action::Reload => Ok(Got::Nothing),
            _ => self.change_names(action),
        }
    }

    fn change_names(&mut self, action: &Action) -> Result<Got> {
        let root = &self.root;
        match action {
            Action::Create(path) => return self.create(path),
            Action::MakeFolder(path) => mkdirat(root, path, Mode::from_raw_mode(0o707)),
            Action::Unlink(path) => unlinkat(root, path, AtFlags::empty()),
            Action::RemoveFolder(path) => unlinkat(root, path, AtFlags::REMOVEDIR),
            Action::LinkBelow(from, to) => linkat(&self.source, from, &self.source, to, AtFlags::empty()),
            Action::UnlinkBelow(path) => unlinkat(&self.source, path, AtFlags::empty()),
            Action::RenameBelow(from, to) => {
                renameat_with(&self.source, from, &self.source, to, RenameFlags::NOREPLACE)
            }
            Action::Link(from, to) => linkat(root, from, root, to, AtFlags::empty()),
            Action::LinkHeld(slot, to) => linkat(CWD, self.link(*slot)?, root, to, AtFlags::SYMLINK_FOLLOW),
            Action::Rename(from, to) => renameat_with(root, from, root, to, RenameFlags::empty()),
            Action::Move(from, to) => renameat_with(root, from, root, to, RenameFlags::NOREPLACE),
            Action::Exchange(one, other) => renameat_with(root, one, root, other, RenameFlags::EXCHANGE),
            Action::Attribute(path) => {
                setxattr(self.mount.join(path), "user.tried", b"1", XattrFlags::empty())
            }
            Action::Touch(path) => {
                let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
                let times = Timestamps { last_access: now, last_modification: now };
                utimensat(root, path, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            other => unreachable!("{other:?} changes no name"),
        }
        .map(nothing)
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        openat(&self.root, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
    }

    fn held(&self, slot: usize) -> Result<&OwnedFd> {
        self.slots.get(slot).and_then(Option::as_ref).ok_or(Errno::BADF)
    }

    fn link(&self, slot: usize) -> Result<String> {
        Ok(format!("/proc/self/fd/{}", self.held(slot)?.as_raw_fd()))
    }

    fn again(&self, slot: usize, flags: OFlags) -> Result<OwnedFd> {
        openat(CWD, self.link(slot)?, flags | OFlags::CLOEXEC, Mode::empty())
    }

    fn list(&self, path: &str) -> Result<Got> {
        let mut names = Vec::new();
        for entry in Dir::new(self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(Got::Names(names))
    }

    fn write(&self, path: &str, flags: OFlags) -> Result<Got> {
        pwrite(self.open(path, flags)?, b"by path.", 8).map(nothing)
    }

    /// Makes a file that no other one is like: a beginning that partial views hide, and a rest.
    fn create(&mut self, path: &str) -> Result<Got> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        let file = openat(&self.root, path, flags, Mode::from_raw_mode(0o606))?;
        self.made += 1;
        // The name is there whether it can be written or not.
        let _written = rustix::io::write(file, &bytes_of(self.made));
        Ok(Got::Nothing)
    }

    fn copy(&self, from: &str, to: &str) -> Result<Got> {
        let (from, to) = (self.open(from, OFlags::RDONLY)?, self.open(to, OFlags::WRONLY)?);
        let (mut start, mut end) = (0, 0);
        let len = copy_file_range(from, Some(&mut start), to, Some(&mut end), 64)?;
        if len == 0 { Err(Errno::NODATA) } else { Ok(Got::Nothing) }
    }
}

/// The bytes of the file with this number.
pub(crate) fn bytes_of(number: u64) -> Vec<u8> {
    format!("H{number:06}.the rest of file {number:06}, which is longer than its head").into_bytes()
}

fn nothing<T>(_: T) -> Got {
    Got::Nothing
}

fn flags(how: Hold) -> OFlags {
    match how {
        Hold::Path => OFlags::PATH,
        Hold::Read => OFlags::RDONLY,
        Hold::Write => OFlags::WRONLY,
        Hold::Append => OFlags::WRONLY | OFlags::APPEND,
        Hold::Both => OFlags::RDWR,
    }
}

/// truncate(2) opens nothing, so the server gets a SETATTR without a handle.
fn truncate(path: &Path) -> Result<Got> {
    shuntfs_testkit::raw::truncate(path, 16).map(nothing)
}

fn read(file: &OwnedFd, way: Way) -> Result<Vec<u8>> {
    match way {
        Way::Read => read_at(file, 2 * PAGE),
        Way::Direct => direct(file),
        Way::Map => match usize::try_from(fstat(file)?.st_size).unwrap_or(0) {
            0 => Ok(Vec::new()),
            len => Ok(Mapping::new(file, len, ProtFlags::READ, true)?.load(0, len)),
        },
        Way::Splice => spliced(file),
        Way::Sendfile => sent(file),
    }
}

fn read_at(file: &OwnedFd, room: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; room];
    let len = pread(file, &mut bytes[..], 0)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn direct(file: &OwnedFd) -> Result<Vec<u8>> {
    let mut room = vec![0; 3 * PAGE];
    let start = room.as_ptr().align_offset(PAGE);
    let aligned = room.get_mut(start..start + 2 * PAGE).ok_or(Errno::INVAL)?;
    let len = pread(file, &mut *aligned, 0)?;
    Ok(aligned[..len].to_vec())
}

fn spliced(file: &OwnedFd) -> Result<Vec<u8>> {
    let (from, to) = pipe()?;
    let mut place = 0;
    let len = splice(file, Some(&mut place), &to, None, 2 * PAGE, SpliceFlags::empty())?;
    let mut bytes = vec![0; len];
    File::from(from).read_exact(&mut bytes).map_err(|_| Errno::IO)?;
    Ok(bytes)
}

fn sent(file: &OwnedFd) -> Result<Vec<u8>> {
    let memory = memfd_create("sent", MemfdFlags::CLOEXEC)?;
    let mut place = 0;
    let len = sendfile(&memory, file.as_fd(), Some(&mut place), 2 * PAGE)?;
    read_at(&memory, len)
}
