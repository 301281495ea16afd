//! Merges of disks of several sizes, mounted for real, beside a model of them: calls from a seed, as tests/fake_merge_model.rs makes them on
//! the fake kernel. Needs root and /dev/fuse.
//!
//! `SHUNTFS_MODEL_CALLS` says how many calls are made (default 5000), `SHUNTFS_MODEL_SEED` from which seed on.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod model;

use std::fs::{self, File};
use std::io::Error;
use std::os::unix::fs::{
    FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, lchown, symlink,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::numbers::Numbers;
use model::op::{Mount, Op, SLOTS, Seen, Stat};
use model::pool::Pool as ModelPool;
use model::run::Case;
use model::{Outcome, disk, generate};
use rustix::fs::{AtFlags, CWD, FileType, Mode, RenameFlags, XattrFlags};
use shuntfs::{Errno, MountError, MountOptions, Session, SessionOptions};
use shuntfs_pool::{Cache, Pool};
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};
use shuntfs_testkit::skipped;
use shuntfs_testkit::supervisor::Supervisor;

const LIMIT: Duration = Duration::from_secs(60);

/// As many calls are made on one mount.
const CALLS: usize = 250;

/// So different that what is written makes no difference.
const SIZES: [u64; 3] = [64 << 20, 192 << 20, 128 << 20];

struct OnMount {
    session: Session,
    top: tempfile::TempDir,
    open: [Option<File>; SLOTS],
    _supervisor: Supervisor,
}

fn of_io(error: &Error) -> Errno {
    Errno::from_lower(error.raw_os_error().unwrap())
}

fn of_call(error: rustix::io::Errno) -> Errno {
    Errno::from_lower(error.raw_os_error())
}

impl OnMount {
    fn new(model: &ModelPool, branches: &[PathBuf], cache: Cache) -> Result<Self, MountError> {
        let pool = Pool::open(&model::options(model, branches, cache)).unwrap();
        let top = tempfile::tempdir().unwrap();
        let session =
            Session::mount(Arc::new(pool), top.path(), &MountOptions::default(), &SessionOptions::default())?;
        let supervisor = Supervisor::of(top.path(), LIMIT).unwrap();
        Ok(Self { session, top, open: [const { None }; SLOTS], _supervisor: supervisor })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(&path[1..])
    }

    fn file(&self, slot: usize) -> Result<&File, Error> {
        self.open[slot].as_ref().ok_or_else(|| Error::from_raw_os_error(9))
    }

    fn call_files(&mut self, op: &Op) -> Result<Seen, Error> {
        let read_write = || {
            let mut options = File::options();
            options.read(true).write(true);
            options
        };
        match op {
            Op::Create { path, mode, slot } => {
                let file = read_write().create_new(true).mode(*mode).open(self.at(path))?;
                self.open[*slot] = Some(file);
            }
            Op::Save { path, bytes } => {
                let file = File::create(self.at(path))?;
                file.write_all_at(bytes, 0)?;
            }
            Op::Open { path, writes, slot } => {
                let file = read_write().write(*writes).open(self.at(path))?;
                if file.metadata()?.is_dir() {
                    return Err(Error::from_raw_os_error(21));
                }
                self.open[*slot] = Some(file);
            }
            Op::Write { slot, at, bytes } => self.file(*slot)?.write_all_at(bytes, *at as u64)?,
            Op::Read { slot } => {
                let file = self.file(*slot)?;
                let mut bytes = vec![0; 4096];
                let len = file.read_at(&mut bytes, 0)?;
                bytes.truncate(len);
                return Ok(Seen::Bytes(bytes));
            }
            Op::Close { slot } => self.open[*slot] = None,
            _ => return self.call_names(op),
        }
        Ok(Seen::Nothing)
    }

    fn call_names(&self, op: &Op) -> Result<Seen, Error> {
        let mode = Mode::from(0o644);
        match op {
            Op::Truncate { path, len } => {
                File::options().write(true).open(self.at(path))?.set_len(*len as u64)?
            }
            Op::Mkdir { path, mode } => rustix::fs::mkdir(self.at(path), Mode::from(*mode))?,
            Op::Mkfifo { path } => rustix::fs::mknodat(CWD, self.at(path), FileType::Fifo, mode, 0)?,
            Op::Mknod { path } => rustix::fs::mknodat(CWD, self.at(path), FileType::RegularFile, mode, 0)?,
            Op::Symlink { target, path } => symlink(target, self.at(path))?,
            Op::Link { old, new } => {
                rustix::fs::linkat(CWD, self.at(old), CWD, self.at(new), AtFlags::empty())?;
            }
            Op::Unlink { path } => rustix::fs::unlink(self.at(path))?,
            Op::Rmdir { path } => rustix::fs::rmdir(self.at(path))?,
            Op::Rename { old, new, flags } => {
                let flags = RenameFlags::from_bits_retain(*flags);
                rustix::fs::renameat_with(CWD, self.at(old), CWD, self.at(new), flags)?;
            }
            Op::Chmod { path, mode } => {
                fs::set_permissions(self.at(path), fs::Permissions::from_mode(*mode))?;
            }
            Op::Chown { path, uid, gid } => lchown(self.at(path), Some(*uid), Some(*gid))?,
            Op::SetMtime { path, secs } => disk::set_mtime(&self.at(path), *secs, AtFlags::empty())?,
            Op::SetXattr { path, name, value } => {
                rustix::fs::setxattr(self.at(path), *name, value, XattrFlags::empty())?;
            }
            Op::RemoveXattr { path, name } => rustix::fs::removexattr(self.at(path), *name)?,
            // The machine's memory is nothing that a test gives back.
            _ => {}
        }
        Ok(Seen::Nothing)
    }
}

impl Mount for OnMount {
    fn call(&mut self, op: &Op) -> Result<Seen, Errno> {
        match op {
            Op::List { path } => self.list(path).map(Seen::Names),
            Op::Stat { path } => self.lstat(path).map(|(stat, _)| Seen::Stat(stat)),
            op => self.call_files(op).map_err(|error| of_io(&error)),
        }
    }

    fn lstat(&self, path: &str) -> Result<(Stat, u64), Errno> {
        let found = self.at(path).symlink_metadata().map_err(|error| of_io(&error))?;
        Ok((disk::stat_of(&found), found.ino()))
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let entries = fs::read_dir(self.at(path)).map_err(|error| of_io(&error))?;
        let name =
            |entry: Result<fs::DirEntry, Error>| entry.map(|entry| entry.file_name().into_string().unwrap());
        let names = entries.map(name).collect::<Result<Vec<_>, _>>();
        let mut names = names.map_err(|error| of_io(&error))?;
        names.sort();
        Ok(names)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Errno> {
        fs::read(self.at(path)).map_err(|error| of_io(&error))
    }

    fn readlink(&self, path: &str) -> Result<String, Errno> {
        let target = fs::read_link(self.at(path)).map_err(|error| of_io(&error))?;
        Ok(target.into_os_string().into_string().unwrap())
    }

    fn xattr(&self, path: &str, name: &str) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; 256];
        let len = rustix::fs::getxattr(self.at(path), name, &mut value).map_err(of_call)?;
        value.truncate(len);
        Ok(value)
    }

    fn breaches(&self) -> Option<String> {
        None
    }

    fn end(mut self) -> Option<String> {
        self.open = [const { None }; SLOTS];
        let panics = self.session.status().panics;
        if let Err(error) = self.session.unmount() {
            return Some(format!("it cannot be unmounted: {error}"));
        }
        (panics > 0).then(|| format!("{panics} operations panicked"))
    }
}

fn run(case: &Case, disks: &[Lower], seed: u64) -> Outcome {
    let folders: Vec<_> = disks.iter().map(|disk| tempfile::tempdir_in(disk.path()).unwrap()).collect();
    let branches: Vec<PathBuf> = folders.iter().map(|folder| folder.path().to_owned()).collect();
    case.run(&branches, |pool, branches| OnMount::new(pool, branches, model::cache(seed)).unwrap())
}

fn case(seed: u64) -> Case {
    const ROOT: (u32, u32) = (0, 0);
    let mut numbers = Numbers::new(seed);
    let pool = generate::pool(&mut numbers, &SIZES, ROOT);
    let ops = (0..CALLS).map(|_| generate::op(&mut numbers, ROOT)).collect();
    Case { pool, ops }
}

#[test]
fn a_merge_does_what_is_documented_for_real() {
    let mut disks = Vec::new();
    for size in SIZES {
        let Some(disk) = LowerSpec::new(LowerKind::Tmpfs).size(size).make().unwrap() else { return };
        disks.push(disk);
    }
    let probe = case(0).pool;
    let paths: Vec<PathBuf> = disks.iter().map(|disk| disk.path().to_owned()).collect();
    match OnMount::new(&probe, &paths, Cache::None) {
        Ok(mount) => assert_eq!(mount.end(), None),
        Err(error) => return skipped(&format!("cannot mount here: {error}")),
    }
    model::compare_all(5000, CALLS, case, |case, seed| run(case, &disks, seed));
}
