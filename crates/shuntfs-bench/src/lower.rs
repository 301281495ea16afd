//! The lower file system that everything runs on: ext4 on a loop device over RAM, or just a folder.
//!
//! The image is unlinked as soon as it is mounted, and the loop device goes with the mount, so that nothing is left even
//! when this process cannot clean up.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::case::Amount;
use crate::fio;
use crate::process;
use crate::stop::Stop;
use crate::target::{Mounting, Places};

const RAM: &str = "/dev/shm";

/// Has the kernel take memory from its host, and drops the caches again.
///
/// A virtual machine that reports its free memory (`/sys/module/page_reporting`) has the host take it, and pays a fault for each piece
/// that it uses again: the same cold read had 250 to 5,000 MiB/s, by luck, also where half a second went by in between. A file
/// without blocks fills the page cache as another does, and costs the device nothing.
pub(crate) const WARM: &str = "cat \"$HOLES\" >/dev/null && echo 3 >/proc/sys/vm/drop_caches";

const LIMIT: Duration = Duration::from_secs(120);

/// The lower file system and the folders around it.
#[derive(Debug)]
pub(crate) struct Lower {
    work: TempDir,
    mounted: bool,
    /// The lengths of the large files that exist.
    large_files: Vec<u64>,
    /// What the report says about it.
    pub(crate) about: String,
    /// Whether the caches can be dropped.
    pub(crate) can_drop: bool,
}

impl Lower {
    /// Makes the file system.
    ///
    /// # Errors
    /// When there is too little memory for it, said before anything is made, or when a step fails.
    pub(crate) fn make(need: Need, folder: Option<&Path>, stop: &Stop) -> Result<Self> {
        let root = rustix::process::geteuid().is_root();
        let on_ram = root && folder.is_none();
        let parent = match folder {
            Some(folder) => folder.to_path_buf(),
            None if on_ram => PathBuf::from(RAM),
            None => std::env::temp_dir(),
        };
        let have = available(&parent, on_ram)?;
        if have < need.len() {
            let (need, have) = (need.len() >> 20, have >> 20);
            bail!(
                "{} has {have} MiB to give and {need} MiB are needed: take a smaller --size, fewer tables, or another \
                 --folder",
                parent.display()
            );
        }
        // Two runs at a time spoil each other's figures, but each must be able to tell what it left.
        let prefix = format!("shuntfs-bench-{}-", std::process::id());
        let work = tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent)?;
        let mut lower =
            Self { work, mounted: false, large_files: Vec::new(), about: String::new(), can_drop: root };
        for name in ["mount", "slow", "lower", "empty"] {
            fs::create_dir(lower.path(name))?;
        }
        fs::File::create(lower.path("mount.file"))?;
        if on_ram {
            lower.mount_ext4(need.len(), stop)?;
            lower.about = "ext4 on a loop device over RAM".to_owned();
        } else {
            lower.about = format!("a folder in {}", parent.display());
        }
        fs::create_dir(lower.source())?;
        fs::create_dir(lower.path("lower").join("work"))?;
        fs::create_dir(lower.sealed())?;
        Ok(lower)
    }

    /// Returns the folder that every target shows.
    pub(crate) fn source(&self) -> PathBuf {
        self.path("lower").join("source")
    }

    /// Returns what the places of a target's command stand for.
    pub(crate) fn places(&self, mounting: &Mounting) -> Places {
        let on_file = matches!(mounting, Mounting::FileServer(_) | Mounting::OwnFileServer(_));
        Places {
            source: self.source(),
            mount_point: self.path(if on_file { "mount.file" } else { "mount" }),
            work: self.path("lower").join("work"),
            empty: self.path("empty"),
            branches: vec![self.source()],
        }
    }

    /// Returns a folder beside the one that every target shows, to be one of several that are shown as one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn branch(&self, number: usize) -> Result<PathBuf> {
        let path = self.path("lower").join(format!("branch.{number}"));
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Returns a mount point beside the usual one, for targets that are mounted at the same time.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn mount_point(&self, number: usize) -> Result<PathBuf> {
        let path = self.path(&format!("mount.{number}"));
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// Returns the folder with the sealed file, on the same file system.
    pub(crate) fn sealed(&self) -> PathBuf {
        self.path("lower").join("sealed")
    }

    /// Returns where the sealed file is shown more slowly, for the targets to show that.
    pub(crate) fn slow(&self) -> PathBuf {
        self.path("slow")
    }

    /// Makes sure that there is a sealed file.
    pub(crate) fn ensure_sealed(&self, shunt: &str, amount: &Amount, stop: &Stop) -> Result<()> {
        let path = self.sealed().join(fio::large_file(0));
        if path.exists() {
            return Ok(());
        }
        write_noise(&path, amount.file_len, 0x5ea1)?;
        let mut command = Command::new(shunt);
        command.arg("seal").arg(self.sealed());
        process::run_ok(&mut command, LIMIT, stop).context("cannot seal a file")?;
        Ok(())
    }

    /// Returns a folder for files of ours, beside the lower file system.
    pub(crate) fn work(&self) -> &Path {
        self.work.path()
    }

    /// Makes sure that each of so many jobs has its large file, full of bytes that do not compress.
    pub(crate) fn ensure_large_files(&mut self, jobs: u32, amount: &Amount) -> Result<()> {
        let len = amount.file_len_of(jobs);
        for job in 0..jobs {
            let at = usize::try_from(job)?;
            if self.large_files.get(at).is_some_and(|&there| there >= len) {
                continue;
            }
            write_noise(&self.source().join(fio::large_file(job)), len, u64::from(job + 1))?;
            self.large_files.resize(self.large_files.len().max(at + 1), 0);
            self.large_files[at] = len;
        }
        Ok(())
    }

    /// Writes back what is dirty and forgets what is cached, as far as we may.
    pub(crate) fn drop_caches(&self, stop: &Stop) -> Result<()> {
        process::run_ok(Command::new("sync").arg("-f").arg(self.source()), LIMIT, stop)?;
        if self.can_drop {
            let mut command = Command::new("sh");
            command.args(["-c", "echo 3 > /proc/sys/vm/drop_caches"]);
            process::run_ok(&mut command, LIMIT, stop).context("cannot drop the caches")?;
        }
        Ok(())
    }

    /// Gives a command what [`WARM`] needs, words for a shell that it is to run right before a workload fills the caches; false
    /// where they cannot be dropped.
    ///
    /// # Errors
    /// When the file without blocks cannot be made.
    pub(crate) fn lets_warm(&self, command: &mut Command) -> Result<bool> {
        /// Two caches of the largest file that is read through them, and what is read ahead.
        const LEN: u64 = 1 << 30;
        let path = self.path("lower").join("holes");
        if self.can_drop && !path.exists() {
            fs::File::create(&path)?.set_len(LEN)?;
        }
        command.env("HOLES", path);
        Ok(self.can_drop)
    }

    /// Returns how many bytes were read from the device so far, where the device is ours.
    pub(crate) fn device_read_len(&self) -> Option<u64> {
        const SECTOR: u64 = 512;
        if !self.mounted {
            return None;
        }
        let device = rustix::fs::stat(self.path("lower")).ok()?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
        Some(stat.split_whitespace().nth(2)?.parse::<u64>().ok()? * SECTOR)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    fn mount_ext4(&mut self, len: u64, stop: &Stop) -> Result<()> {
        let image = self.path("image");
        fs::File::create(&image)?.set_len(len)?;
        let mut command = Command::new("mkfs.ext4");
        command.args(["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(&image);
        process::run_ok(&mut command, LIMIT, stop).context("cannot make an ext4 (package e2fsprogs)")?;
        let mut command = Command::new("mount");
        command.args(["-t", "ext4", "-o", "loop"]).arg(&image).arg(self.path("lower"));
        process::run_ok(&mut command, LIMIT, stop).context("cannot mount the lower file system")?;
        self.mounted = true;
        fs::remove_file(&image)?;
        Ok(())
    }
}

impl Drop for Lower {
    fn drop(&mut self) {
        if !self.mounted {
            return;
        }
        let lower = self.path("lower");
        let never = Stop::default();
        if process::run_ok(Command::new("umount").arg(&lower), LIMIT, &never).is_ok() {
            return;
        }
        // Someone still works in it: let it go when they end, and keep off what may be below.
        if let Err(error) = process::run_ok(Command::new("umount").arg("-l").arg(&lower), LIMIT, &never) {
            eprintln!("shunt-bench: {} stays mounted: {error:#}", lower.display());
            self.work.disable_cleanup(true);
        }
    }
}

/// What the cases need of the lower file system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Need {
    /// Bytes of the large files.
    pub(crate) large: u64,
    /// Bytes of a copy of the first of them.
    pub(crate) copy: u64,
    /// Small files at one time.
    pub(crate) files: u64,
    /// Small files that stay until the end.
    pub(crate) kept_files: u64,
    /// Names of one file each that stay until the end.
    pub(crate) links: u64,
    /// Bytes of the tree, once as tar and once unpacked.
    pub(crate) tree: u64,
    /// Bytes of what is built.
    pub(crate) build: u64,
    /// Bytes of the sealed file and its tree.
    pub(crate) sealed: u64,
}

impl Need {
    /// Returns the bytes of a file system on which all of it fits, with its journal.
    pub(crate) fn len(self) -> u64 {
        const BESIDES: u64 = 160 << 20;
        /// A block of data, and its part of inodes and folders.
        const SMALL_FILE: u64 = 8192;
        /// The same where they are most of all files: the file system has an inode for so many bytes.
        const KEPT_FILE: u64 = 16_384;
        /// A name in a folder, with what is left free behind it.
        const LINK: u64 = 64;
        let files = self.files * SMALL_FILE + self.kept_files * KEPT_FILE + self.links * LINK;
        let len = self.large + self.copy + files + self.tree + self.build + self.sealed + BESIDES;
        // Full file systems look for room, which is not what is measured.
        len + len / 8
    }
}

fn available(parent: &Path, on_ram: bool) -> Result<u64> {
    let stat = rustix::fs::statvfs(parent).with_context(|| parent.display().to_string())?;
    let free = stat.f_bavail * stat.f_frsize;
    if !on_ram {
        return Ok(free);
    }
    // The pages cached above the loop device are a second copy of the file, which the kernel may drop.
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = info.lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    Ok(memory.map_or(free, |kib| free.min(kib * 1024 / 4 * 3)))
}

/// Writes a large file of bytes that do not compress; other seeds make other bytes.
pub(crate) fn write_noise(path: &Path, len: u64, seed: u64) -> Result<()> {
    let mut file = fs::File::create(path)?;
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed;
    for _ in 0..len >> 20 {
        file.write_all(&noise(&mut state)).context("cannot write the large file")?;
    }
    file.sync_all()?;
    Ok(())
}

/// Returns a MiB of xorshift.
fn noise(state: &mut u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 << 20);
    while bytes.len() < 1 << 20 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}
