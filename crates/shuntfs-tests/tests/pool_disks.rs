//! A pool of five disks under load: one fills up, one becomes read-only, one hangs, one is pulled. What was made durable stays, and nobody waits
//! forever.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shuntfs_testkit::conformance::errno_name;
use shuntfs_testkit::limit::{run_with_timeout, wait_until};
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport, shunt};
use shuntfs_testkit::program::{call, have};
use shuntfs_testkit::raw::ioctl_int;
use shuntfs_testkit::seeded::Random;
use shuntfs_testkit::{say, serial};

const DISKS: usize = 5;
/// The disks that something becomes of.
const FULL: usize = 0;
const READ_ONLY: usize = 1;
const PULLED: usize = 2;
const HANGS: usize = 3;

const WRITERS: u64 = 4;
const DISK_LEN: u64 = 48 << 20;
const FILE_LEN_MAX: usize = 96 << 10;
/// So many files more show that the pool goes on.
const MORE: usize = 60;

const MOMENT: Duration = Duration::from_secs(20);

/// What a writer may hear: that there is no room, and what the disks say themselves.
const ERRORS: [&str; 3] = ["ENOSPC", "EROFS", "EIO"];

/// A file, by its name and the number that its bytes follow from.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    seed: u64,
}

impl Written {
    fn bytes(&self) -> Vec<u8> {
        Random::new(self.seed).bytes(FILE_LEN_MAX)
    }

    /// Writes it and makes it durable.
    fn write(&self, top: &Path) -> io::Result<()> {
        let mut file = File::create_new(top.join(&self.name))?;
        file.write_all(&self.bytes())?;
        file.sync_all()
    }

    fn is_in(&self, top: &Path) -> bool {
        fs::read(top.join(&self.name)).is_ok_and(|bytes| bytes == self.bytes())
    }
}

/// What the writers have done so far.
#[derive(Debug, Default)]
struct Load {
    written: Mutex<Vec<Written>>,
    failed: Mutex<BTreeMap<String, usize>>,
    is_over: AtomicBool,
    /// Odd while a disk is being pulled.
    pulls: AtomicU64,
}

impl Load {
    fn run(&self, top: &Path, writer: u64) {
        for number in 0_u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let file = Written { name: format!("{writer}/{number}"), seed: writer << 32 | number };
            let pulls = self.pulls.load(Ordering::SeqCst);
            match file.write(top) {
                // ext4 says of a sync that is under way at that moment that it is done, and it may not be (seen on Linux 6.18 without a pool).
                Ok(()) if pulls % 2 == 1 || self.pulls.load(Ordering::SeqCst) != pulls => {}
                Ok(()) => self.written.lock().unwrap_or_else(PoisonError::into_inner).push(file),
                Err(error) => {
                    let name = errno_name(error.raw_os_error().unwrap_or(0));
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
                    sleep(Duration::from_millis(2));
                }
            }
        }
    }

    fn written(&self) -> Vec<Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until so many files more were written.
    fn goes_on(&self, what: &str) -> Result<()> {
        let count = || self.written.lock().unwrap_or_else(PoisonError::into_inner).len();
        let before = count();
        let has_more = wait_until(MOMENT, || count() >= before + MORE);
        ensure!(has_more, "{what}: only {} files more were written, {:?}", count() - before, self.failed);
        Ok(())
    }
}

/// A pool, with writers at work. They end when this is dropped.
struct Stage {
    load: Arc<Load>,
    writers: Vec<JoinHandle<()>>,
    mount: Mounted,
    disks: Vec<Lower>,
}

impl Stage {
    fn start(transport: Transport, args: &[&str]) -> Result<Option<Self>> {
        let mut disks = Vec::new();
        for _ in 0..DISKS {
            let Some(disk) = LowerSpec::new(LowerKind::Ext4).size(DISK_LEN).make()? else { return Ok(None) };
            disks.push(disk);
        }
        let branches: Vec<String> = disks.iter().map(|disk| disk.path().display().to_string()).collect();
        let spec = MountSpec::new(Path::new(&branches.join(":")), transport, Flow::Passthrough);
        let spec = spec.args(&["--create", "rand", "--minfreespace", "1M"]).args(args);
        let Some(mount) = Mounted::start(&spec)? else { return Ok(None) };
        let load = Arc::new(Load::default());
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            fs::create_dir(mount.path().join(writer.to_string()))?;
            let (load, top) = (Arc::clone(&load), mount.path().to_owned());
            writers.push(spawn(move || load.run(&top, writer)));
        }
        Ok(Some(Self { load, writers, mount, disks }))
    }

    /// Has the writers end. A call that does not come back is a failure.
    fn stop(&self) -> Result<()> {
        self.load.is_over.store(true, Ordering::Relaxed);
        let have_ended = wait_until(MOMENT, || self.writers.iter().all(JoinHandle::is_finished));
        ensure!(have_ended, "a writer is stuck:\n{}", self.mount.log());
        Ok(())
    }

    fn fill_up(&self) -> Result<()> {
        let mut filler = File::create(self.disks[FULL].path().join("filler"))?;
        let error = loop {
            if let Err(error) = filler.write_all(&[0; 1 << 16]) {
                break error;
            }
        };
        ensure!(error.kind() == io::ErrorKind::StorageFull, "it fills up: {error}");
        Ok(())
    }

    /// Ends all I/O of a disk with errors, and what was not yet durable is gone (`FS_IOC_SHUTDOWN`).
    fn pull(&self) -> Result<()> {
        const SHUTDOWN: u32 = 0x8004_587d;
        const WITHOUT_FLUSHING_THE_LOG: i32 = 2;
        let mut how = WITHOUT_FLUSHING_THE_LOG;
        let disk = File::open(self.disks[PULLED].path())?;
        self.load.pulls.fetch_add(1, Ordering::SeqCst);
        let pulled = ioctl_int(disk, SHUTDOWN, &mut how);
        self.load.pulls.fetch_add(1, Ordering::SeqCst);
        Ok(pulled?)
    }

    /// What other disks have is read while one returns errors.
    fn reads_other_disks(&self) -> Result<()> {
        let is_elsewhere =
            |file: &Written| file.is_in(self.disks[3].path()) || file.is_in(self.disks[4].path());
        let files: Vec<Written> = self.load.written().into_iter().filter(is_elsewhere).take(MORE).collect();
        let top = self.mount.path().to_owned();
        let (all, read) = run_with_timeout(MOMENT, "reading", move || {
            (files.len(), files.iter().filter(|file| file.is_in(&top)).count())
        })?;
        ensure!(all > 0 && read == all, "{read} of {all} files on good disks are read");
        Ok(())
    }

    /// Takes the pulled disk out of the pool and plugs it in again, by itself.
    fn take_out(&self) -> Result<()> {
        let path = self.disks[PULLED].path();
        shunt(&[&"branches", &"remove", &self.mount.path(), &path])?.ok("shunt branches remove")?;
        // As long as this is open the loop device stays.
        let device = device_of(path)?;
        let held = File::open(&device)?;
        let mut last = Ok(String::new());
        // Files there may be open for a moment still.
        let is_free = wait_until(MOMENT, || {
            last = call("umount", &[&path], MOMENT);
            last.is_ok()
        });
        ensure!(is_free, "the disk that was taken out is busy: {last:?}");
        call("mount", &[&"-t", &"ext4", &device, &path], MOMENT)?;
        drop(held);
        Ok(())
    }

    /// Every file that was made durable is there, in the pool or on the disk that was taken out.
    fn has_lost_nothing(&self) -> Result<()> {
        let all = self.load.written();
        let tops = [self.mount.path(), self.disks[PULLED].path()].map(Path::to_owned);
        let (all, lost) = run_with_timeout(MOMENT * 3, "comparing", move || {
            let is_lost = |file: &&Written| !tops.iter().any(|top| file.is_in(top));
            (all.len(), all.iter().filter(is_lost).cloned().collect::<Vec<_>>())
        })?;
        ensure!(lost.is_empty(), "{} of {all} files are lost: {lost:?}", lost.len());
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Before the mount goes, so that a test that fails leaves no thread at work on it.
        self.load.is_over.store(true, Ordering::Relaxed);
        wait_until(MOMENT, || self.writers.iter().all(JoinHandle::is_finished));
    }
}

/// A disk on which whatever writes hangs (`FIFREEZE`), until this goes.
struct Frozen<'d>(&'d Path);

impl<'d> Frozen<'d> {
    fn new(disk: &'d Path) -> Result<Self> {
        call("fsfreeze", &[&"--freeze", &disk], MOMENT)?;
        Ok(Self(disk))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        drop(call("fsfreeze", &[&"--unfreeze", &self.0], MOMENT));
    }
}

/// The block device of what is mounted there.
fn device_of(path: &Path) -> Result<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let line = table.lines().rfind(|line| line.split(' ').nth(4) == path.to_str());
    let rest = line.and_then(|line| line.split_once(" - ")).context("it is mounted")?.1;
    Ok(PathBuf::from(rest.split(' ').nth(1).context("it has a device")?))
}

#[test]
fn a_pool_of_five_disks_lives_through_what_becomes_of_disks() -> Result<()> {
    let _serial = serial();
    for transport in Transport::ALL {
        let Some(mut stage) = Stage::start(transport, &[])? else { continue };
        let what = |text: &str| format!("{transport:?}: {text}");
        stage.load.goes_on(&what("at first"))?;
        stage.fill_up()?;
        stage.load.goes_on(&what("with a full disk"))?;
        stage.disks[READ_ONLY].remount(true)?;
        stage.load.goes_on(&what("with a disk that is read-only"))?;
        stage.pull()?;
        stage.reads_other_disks().with_context(|| what("with a disk that was pulled"))?;
        stage.take_out().with_context(|| what("taking it out"))?;
        stage.load.goes_on(&what("without it"))?;
        stage.stop()?;
        stage.has_lost_nothing().with_context(|| what("at the end"))?;
        let failed = stage.load.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        say(&format!(
            "{transport:?}: {} files were written, and these failed: {failed:?}",
            stage.load.written().len()
        ));
        let unknown: Vec<&String> = failed.keys().filter(|name| !ERRORS.contains(&name.as_str())).collect();
        ensure!(unknown.is_empty(), "{transport:?}: {unknown:?} among {failed:?}");
        let ended = stage.mount.unmount()?;
        ensure!(ended.success(), "{transport:?}: the server ended with {ended}:\n{}", stage.mount.log());
    }
    Ok(())
}

/// Writers whose file is on the disk wait for it in the kernel, where the pool has no part; all others go on, and so do they when it answers.
#[test]
fn a_pool_of_five_disks_lives_through_one_that_hangs() -> Result<()> {
    let _serial = serial();
    if !have(&["fsfreeze"]) {
        return Ok(());
    }
    for transport in Transport::ALL {
        let Some(mut stage) = Stage::start(transport, &["--branch-timeout", "1s"])? else { continue };
        let what = |text: &str| format!("{transport:?}: {text}");
        stage.load.goes_on(&what("at first"))?;
        let is_aside = || -> Result<bool> {
            let branches = shunt(&[&"branches", &"list", &stage.mount.path()])?.ok("shunt branches list")?;
            Ok(branches.contains("SET ASIDE"))
        };
        let frozen = Frozen::new(stage.disks[HANGS].path())?;
        let was_set_aside = wait_until(MOMENT, || is_aside().unwrap_or(false));
        ensure!(was_set_aside, "{}", what("the disk that hangs is not set aside"));
        stage.load.goes_on(&what("with a disk that hangs"))?;
        let (top, own) = (stage.mount.path().to_owned(), stage.disks[4].path().to_owned());
        let file = stage.load.written().into_iter().find(|file| file.is_in(&own)).context("one is there")?;
        let (is_read, names) = run_with_timeout(MOMENT, "reading", move || {
            let names = fs::read_dir(&top)
                .and_then(|names| names.map(|name| Ok(name?.file_name())).collect::<io::Result<Vec<_>>>());
            (file.is_in(&top), names)
        })?;
        let names = names.with_context(|| what("listing"))?;
        let lists_all = (0..WRITERS).all(|writer| names.iter().any(|name| *name == *writer.to_string()));
        ensure!(is_read && lists_all, "{}: {is_read} {names:?}", what("with a disk that hangs"));
        drop(frozen);
        let is_back = wait_until(MOMENT, || is_aside().is_ok_and(|is_aside| !is_aside));
        ensure!(is_back, "{}", what("the disk that answers again is not taken back"));
        stage.load.goes_on(&what("with all disks again"))?;
        stage.stop()?;
        stage.has_lost_nothing().with_context(|| what("at the end"))?;
        let failed = stage.load.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        say(&format!("{transport:?}: {} files, and these failed: {failed:?}", stage.load.written().len()));
        let ended = stage.mount.unmount()?;
        ensure!(ended.success(), "{transport:?}: the server ended with {ended}:\n{}", stage.mount.log());
    }
    Ok(())
}
