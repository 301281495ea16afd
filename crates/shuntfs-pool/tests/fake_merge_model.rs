//! Merges on the fake kernel beside a model of them: calls from a seed, each answer compared, and again and again everything that is
//! shown and everything that is on the branches.
//!
//! `SHUNTFS_MODEL_CALLS` says how many calls are made (default 8000), `SHUNTFS_MODEL_SEED` from which seed on.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod model;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use model::numbers::Numbers;
use model::op::{Mount, Op, SLOTS, Seen, Stat};
use model::pool::Pool as ModelPool;
use model::run::Case;
use model::{Outcome, generate, op};
use shuntfs::Errno;
use shuntfs_fake::{Fake, File, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, Settings};
use shuntfs_pool::{Observer, Pool};

/// As many calls are made on one mount.
const CALLS: usize = 400;

struct OnFake {
    fake: Fake,
    observer: Observer,
    open: [Option<File>; SLOTS],
}

impl OnFake {
    fn new(model: &ModelPool, branches: &[PathBuf], seed: u64) -> Self {
        let pool = Pool::open(&model::options(model, branches, model::cache(seed))).unwrap();
        let observer = pool.observer();
        // Doubts find what the kernel should not keep, and have names looked up again that it would.
        let settings = Settings { doubts: seed % 4 < 2, ..Settings::default() };
        let fake = Fake::mount_with(Arc::new(pool), &settings).unwrap();
        Self { fake, observer, open: [const { None }; SLOTS] }
    }

    fn file(&self, slot: usize) -> Result<&File, Errno> {
        self.open[slot].as_ref().ok_or(Errno::BADF)
    }

    fn keep(&mut self, slot: usize, file: Result<File, Errno>) -> Result<(), Errno> {
        self.open[slot] = Some(file?);
        Ok(())
    }
}

impl Mount for OnFake {
    fn call(&mut self, op: &Op) -> Result<Seen, Errno> {
        let fake = &self.fake;
        let done = match op {
            Op::Create { path, mode, slot } => {
                let file = fake.open_mode(path, O_RDWR | O_CREAT | O_EXCL, *mode);
                self.keep(*slot, file)
            }
            Op::Save { path, bytes } => {
                let file = fake.open(path, O_WRONLY | O_CREAT | O_TRUNC)?;
                file.write_at(0, bytes).map(drop)
            }
            Op::Open { path, writes, slot } => {
                let file = fake.open(path, if *writes { O_RDWR } else { O_RDONLY });
                // A folder can be opened, which is of no interest here.
                if fake.stat(path).is_ok_and(|attr| attr.mode & 0o170_000 == op::FOLDER) {
                    return Err(Errno::ISDIR);
                }
                self.keep(*slot, file)
            }
            Op::Write { slot, at, bytes } => self.file(*slot)?.write_at(*at as u64, bytes).map(drop),
            Op::Read { slot } => return self.file(*slot)?.read_to_end().map(Seen::Bytes),
            Op::Close { slot } => {
                self.open[*slot] = None;
                Ok(())
            }
            Op::Truncate { path, len } => fake.truncate(path, *len as u64).map(drop),
            Op::Mkdir { path, mode } => fake.mkdir(path, *mode).map(drop),
            Op::Mkfifo { path } => fake.mknod(path, op::FIFO | 0o644, 0).map(drop),
            Op::Mknod { path } => fake.mknod(path, op::FILE | 0o644, 0).map(drop),
            Op::Symlink { target, path } => fake.symlink(target, path).map(drop),
            Op::Link { old, new } => fake.link(old, new).map(drop),
            Op::Unlink { path } => fake.unlink(path),
            Op::Rmdir { path } => fake.rmdir(path),
            Op::Rename { old, new, flags } => fake.rename_with(old, new, *flags),
            Op::Chmod { path, mode } => fake.chmod(path, *mode).map(drop),
            Op::Chown { path, uid, gid } => fake.chown(path, *uid, *gid).map(drop),
            Op::SetMtime { path, secs } => fake.set_mtime(path, *secs).map(drop),
            Op::SetXattr { path, name, value } => fake.set_xattr(path, name, value, 0),
            Op::RemoveXattr { path, name } => fake.remove_xattr(path, name),
            Op::List { path } => return self.list(path).map(Seen::Names),
            Op::Stat { path } => return self.lstat(path).map(|(stat, _)| Seen::Stat(stat)),
            Op::Forget => {
                fake.drop_caches();
                Ok(())
            }
        };
        done.map(|()| Seen::Nothing)
    }

    fn lstat(&self, path: &str) -> Result<(Stat, u64), Errno> {
        let attr = self.fake.lstat(path)?;
        let is_folder = attr.mode & 0o170_000 == op::FOLDER;
        let stat = Stat {
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            links: if is_folder { 0 } else { attr.nlink },
            size: if is_folder { 0 } else { attr.size },
            mtime: Some(attr.mtime),
        };
        Ok((stat, attr.ino))
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.fake.names(path)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, Errno> {
        self.fake.open(path, O_RDONLY)?.read_to_end()
    }

    fn readlink(&self, path: &str) -> Result<String, Errno> {
        self.fake.readlink(path).map(|target| String::from_utf8(target).unwrap())
    }

    fn xattr(&self, path: &str, name: &str) -> Result<Vec<u8>, Errno> {
        self.fake.get_xattr(path, name)
    }

    fn breaches(&self) -> Option<String> {
        let breaches = self.fake.breaches();
        (!breaches.is_empty()).then(|| format!("{breaches:?}"))
    }

    fn end(mut self) -> Option<String> {
        self.open = [const { None }; SLOTS];
        let Self { fake, observer, .. } = self;
        match fake.finish() {
            Err(broken) => Some(broken.to_string()),
            Ok(totals) => {
                let facts = observer.facts();
                let left = (facts.nodes, facts.overdrawn, totals.backing_ids);
                (left != (0, 0, 0)).then(|| format!("left are (nodes, overdrawn, backing ids) {left:?}"))
            }
        }
    }
}

fn run(case: &Case, seed: u64) -> Outcome {
    let top = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = |number: usize| top.path().join(number.to_string());
    let branches: Vec<PathBuf> = (0..case.pool.branches.len()).map(path).collect();
    branches.iter().for_each(|branch| fs::create_dir(branch).unwrap());
    case.run(&branches, |pool, branches| OnFake::new(pool, branches, seed))
}

fn me() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

fn case(seed: u64) -> Case {
    let mut numbers = Numbers::new(seed);
    let pool = generate::pool(&mut numbers, &[], me());
    let ops = (0..CALLS).map(|_| generate::op(&mut numbers, me())).collect();
    Case { pool, ops }
}

#[test]
fn a_merge_does_what_is_documented() {
    model::compare_all(8000, CALLS, case, run);
}
