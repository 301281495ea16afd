//! What the tests of this crate share: lower file systems, and a limit on time.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use shuntfs_sys::caps::{Cap, has_effective};
use tempfile::TempDir;

/// Whether this process may mount; says so where it may not.
pub(crate) fn is_privileged(test: &str) -> bool {
    let may = has_effective(Cap::SysAdmin) && has_effective(Cap::Setuid);
    if !may {
        println!("SKIPPED: {test}: needs root");
    }
    may
}

/// A folder on a lower file system of its own, which goes when this is dropped.
pub(crate) struct Lower {
    pub(crate) kind: &'static str,
    root: PathBuf,
    is_mounted: bool,
    _room: TempDir,
}

impl Lower {
    /// Every kind that this machine can make, tmpfs first.
    pub(crate) fn all() -> Vec<Self> {
        ["tmpfs", "ext4", "xfs", "btrfs"].into_iter().filter_map(Self::make).collect()
    }

    /// A file system of this kind; `None`, and why, where it cannot be made here.
    pub(crate) fn make(kind: &'static str) -> Option<Self> {
        let room =
            tempfile::Builder::new().prefix("shuntfs-sys-").tempdir_in("/dev/shm").expect("tmpfs is there");
        if kind == "tmpfs" {
            return Some(Self { kind, root: room.path().to_owned(), is_mounted: false, _room: room });
        }
        let (image, root) = (room.path().join("image"), room.path().join("root"));
        // XFS wants 300 MiB at least; the file is sparse.
        File::create(&image).and_then(|file| file.set_len(512 << 20)).expect("a sparse file");
        std::fs::create_dir(&root).expect("a folder");
        let made = run(&format!("mkfs.{kind}"), &["-q".as_ref(), &image]);
        let mounted = made.and_then(|()| run("mount", &["-o".as_ref(), "loop".as_ref(), &image, &root]));
        match mounted {
            Ok(()) => Some(Self { kind, root, is_mounted: true, _room: room }),
            Err(reason) => {
                println!("SKIPPED: {kind}: {reason}");
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.root
    }
}

impl Drop for Lower {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = run("umount", &[&self.root]).or_else(|_| run("umount", &["-l".as_ref(), &self.root]));
        }
    }
}

fn run(program: &str, arguments: &[&Path]) -> Result<(), String> {
    let output = Command::new("timeout").arg("60").arg(program).args(arguments).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Ends the process where a test hangs: a stuck mount would otherwise hold the machine.
pub(crate) struct TimeLimit(#[expect(dead_code, reason = "its drop tells the watchdog")] Sender<()>);

impl TimeLimit {
    pub(crate) fn start() -> Self {
        let (ended, watched): (_, Receiver<()>) = channel();
        std::thread::spawn(move || {
            if watched.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("a test took more than 60 seconds");
                std::process::abort();
            }
        });
        Self(ended)
    }
}

/// Runs `work` on a thread of its own, so that what it does to its identity ends with it.
pub(crate) fn on_own_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
