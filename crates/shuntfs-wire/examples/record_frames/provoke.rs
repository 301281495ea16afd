//! Makes the kernel ask for everything that it asks an ordinary mount for.

use std::fs::{File, FileTimes, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, IFlags, Mode, OFlags, RenameFlags,
    SeekFrom, StatxFlags, XattrFlags,
};
use rustix::process::Flock;
use rustix::thread::Gid;

/// Each operation once or twice, the second time in another form where it has one.
pub(crate) fn everything(mounted: &Path) -> Result<()> {
    // Member of the root folder's group, so that creations carry it; and no identity of the caller's own.
    rustix::thread::set_thread_groups(&[Gid::from_raw(crate::memory::GROUP)])?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // The kernel must know the root folder's group before it can compare.
    std::fs::metadata(mounted)?;
    make(mounted).context("making")?;
    contents(mounted).context("contents")?;
    ranges(mounted).context("ranges")?;
    attributes(mounted).context("attributes")?;
    locks(&mounted.join("file")).context("locks")?;
    rename_and_remove(mounted).context("names")?;
    folders(mounted).context("folders")?;
    ask_server(&mounted.join("forget-many"))
}

/// Looks up a name at which the server does something, and then says that it does not exist.
fn ask_server(name: &Path) -> Result<()> {
    if name.exists() {
        anyhow::bail!("{} exists", name.display());
    }
    Ok(())
}

/// Waits for a lock that is taken; killed while it does.
pub(crate) fn wait_for_lock(file: &Path) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(file)?;
    Ok(rustix::fs::fcntl_lock(&file, FlockOperation::LockExclusive)?)
}

fn make(mounted: &Path) -> Result<()> {
    let create = |name: &str, mode| {
        OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(mounted.join(name))
    };
    create("file", 0o644)?;
    create("other", 0o600)?;
    std::fs::create_dir(mounted.join("folder"))?;
    std::fs::create_dir(mounted.join("folder/inner"))?;
    symlink("file", mounted.join("link"))?;
    symlink("../some/where", mounted.join("folder/link"))?;
    std::fs::read_link(mounted.join("link"))?;
    std::fs::read_link(mounted.join("folder/link"))?;
    let mode = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, mounted.join("pipe"), FileType::Fifo, mode, 0)?;
    let device = rustix::fs::makedev(5, 1);
    rustix::fs::mknodat(CWD, mounted.join("device"), FileType::CharacterDevice, mode, device)?;
    rustix::fs::open(mounted, OFlags::TMPFILE | OFlags::RDWR, mode)?;
    std::fs::hard_link(mounted.join("file"), mounted.join("folder/second name"))?;
    std::fs::hard_link(mounted.join("other"), mounted.join("third name"))?;
    Ok(())
}

fn contents(mounted: &Path) -> Result<()> {
    let path = &mounted.join("file");
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.write_all_at(b"Hello, kernel!\n", 0)?;
    file.write_all_at(&[0xa5; 100], 4000)?;
    drop(file);
    let file = File::open(path)?;
    let mut some = [0; 64];
    file.read_exact_at(&mut some, 0)?;
    // Before an open drops the cached data.
    ask_server(&mounted.join("retrieve"))?;
    let direct = i32::try_from(OFlags::DIRECT.bits())?;
    OpenOptions::new().read(true).custom_flags(direct).open(path)?.read_exact_at(&mut some, 4010)?;
    file.sync_all()?;
    file.sync_data()?;
    let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
    poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&limit))?;
    poll(&mut [PollFd::new(&file, PollFlags::IN | PollFlags::OUT | PollFlags::PRI)], Some(&limit))?;
    rustix::fs::ioctl_getflags(&file)?;
    rustix::fs::ioctl_setflags(&file, IFlags::NODUMP)?;
    Ok(())
}

fn ranges(mounted: &Path) -> Result<()> {
    let from = OpenOptions::new().read(true).write(true).open(mounted.join("file"))?;
    let to = OpenOptions::new().read(true).write(true).truncate(true).open(mounted.join("other"))?;
    rustix::fs::fallocate(&from, FallocateFlags::empty(), 8192, 4096)?;
    rustix::fs::fallocate(&from, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 100, 200)?;
    rustix::fs::seek(&from, SeekFrom::Data(10))?;
    rustix::fs::seek(&from, SeekFrom::Hole(20))?;
    let (mut off_in, mut off_out) = (5, 1000);
    rustix::fs::copy_file_range(&from, Some(&mut off_in), &to, Some(&mut off_out), 50)?;
    rustix::fs::copy_file_range(&from, Some(&mut off_in), &to, Some(&mut off_out), 60)?;
    Ok(())
}

fn attributes(mounted: &Path) -> Result<()> {
    let file = mounted.join("file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600))?;
    rustix::fs::ftruncate(OpenOptions::new().write(true).open(&file)?, 20)?;
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::new(1_000_000_000, 5));
    OpenOptions::new().write(true).open(&file)?.set_times(times)?;
    rustix::fs::statfs(mounted)?;
    rustix::fs::statfs(&file)?;
    for name in ["", "file"] {
        rustix::fs::statx(CWD, mounted.join(name), AtFlags::empty(), StatxFlags::BTIME)?;
    }
    let refreshed = AtFlags::from_bits_retain(0x2000); // AT_STATX_FORCE_SYNC
    rustix::fs::statx(CWD, &file, refreshed, StatxFlags::BASIC_STATS)?;
    rustix::fs::access(&file, Access::READ_OK | Access::WRITE_OK)?;
    rustix::fs::access(mounted, Access::EXEC_OK)?;
    rustix::fs::setxattr(&file, "user.one", b"first", XattrFlags::CREATE)?;
    rustix::fs::setxattr(&file, "user.two", b"", XattrFlags::empty())?;
    let mut value = [0; 100];
    rustix::fs::getxattr(&file, "user.one", &mut value)?;
    rustix::fs::getxattr_query(&file, "user.two")?;
    rustix::fs::listxattr_query(&file)?;
    rustix::fs::listxattr(&file, &mut value)?;
    rustix::fs::removexattr(&file, "user.one")?;
    rustix::fs::removexattr(&file, "user.two")?;
    Ok(())
}

fn locks(path: &Path) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut asked = Flock::from(rustix::process::FlockType::WriteLock);
    rustix::process::fcntl_getlk(&file, &asked)?;
    (asked.start, asked.length) = (100, 50);
    rustix::process::fcntl_getlk(&file, &asked)?;
    rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let mut waiting = Command::new(std::env::current_exe()?).arg("wait").arg(path).spawn()?;
    std::thread::sleep(Duration::from_millis(300));
    waiting.kill()?;
    waiting.wait()?;
    rustix::fs::fcntl_lock(&file, FlockOperation::Unlock)?;
    rustix::fs::flock(&file, FlockOperation::LockShared)?;
    rustix::fs::flock(&file, FlockOperation::Unlock)?;
    Ok(())
}

fn rename_and_remove(mounted: &Path) -> Result<()> {
    let at = |name: &str| mounted.join(name);
    std::fs::rename(at("link"), at("folder/moved"))?;
    std::fs::rename(at("pipe"), at("fifo"))?;
    rustix::fs::renameat_with(CWD, at("fifo"), CWD, at("folder/fifo"), RenameFlags::NOREPLACE)?;
    rustix::fs::renameat_with(CWD, at("folder/fifo"), CWD, at("device"), RenameFlags::EXCHANGE)?;
    std::fs::remove_file(at("device"))?;
    std::fs::remove_file(at("folder/moved"))?;
    std::fs::remove_dir(at("folder/inner"))?;
    std::fs::create_dir(at("folder/last"))?;
    std::fs::remove_dir(at("folder/last"))?;
    Ok(())
}

fn folders(mounted: &Path) -> Result<()> {
    for folder in [mounted.to_owned(), mounted.join("folder")] {
        for entry in std::fs::read_dir(&folder)? {
            entry?;
        }
        let folder = File::open(&folder)?;
        folder.sync_all()?;
        folder.sync_data()?;
    }
    Ok(())
}
