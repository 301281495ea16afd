//! Records what the kernel really sends: mounts a small file system, provokes each operation, and keeps the first
//! three requests of each kind, byte for byte, for the tests. As root: `record_frames FOLDER`.
//!
//! The program starts itself a second time as the one that provokes (`provoke MOUNT`), and that one a third time to
//! wait for a lock (`wait FILE`), so that a request stuck in the kernel can always be got rid of with its process.

mod memory;
mod provoke;
mod serve;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// More than it ever takes; after that everything is taken down.
const TIME_LIMIT: Duration = Duration::from_secs(20);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["provoke", mounted] => provoke::everything(Path::new(mounted)),
        ["wait", file] => provoke::wait_for_lock(Path::new(file)),
        [folder] => record(Path::new(folder)),
        _ => bail!("usage: record_frames FOLDER"),
    }
}

/// The mount, taken down whatever happens. Forced, which also ends the connection.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0, UnmountFlags::FORCE | UnmountFlags::DETACH) {
            eprintln!("{} stays mounted: {error}", self.0.display());
        }
    }
}

fn record(golden: &Path) -> Result<()> {
    let device = File::options().read(true).write(true).open("/dev/fuse").context("/dev/fuse")?;
    let folder = tempfile::tempdir()?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other\0", device.as_raw_fd());
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes())?;
    mount(
        "record_frames",
        folder.path(),
        "fuse.record_frames",
        MountFlags::NOSUID | MountFlags::NODEV,
        options,
    )
    .context("mounting")?;
    let mounted = Mounted(folder.path().to_owned());

    let keeper = serve::Keeper::new(golden.to_owned());
    let server = std::thread::spawn(move || serve::all(&device, keeper));
    let provoker = Command::new(std::env::current_exe()?).arg("provoke").arg(&mounted.0).spawn()?;
    let outcome = wait(provoker);
    // RELEASE and FORGET come when nobody waits for them any more.
    std::thread::sleep(Duration::from_millis(300));
    drop(mounted);
    let kept = server.join().map_err(|_| anyhow::anyhow!("the server panicked"))??;
    outcome?;
    println!("{kept} operations");
    Ok(())
}

fn wait(mut child: Child) -> Result<()> {
    let end = Instant::now() + TIME_LIMIT;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { bail!("provoking failed: {status}") };
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    bail!("it took longer than {TIME_LIMIT:?}")
}
