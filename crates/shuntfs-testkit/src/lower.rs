//! Lower file systems made for one test, gone with their guard.
//!
//! The disk file systems live on a loop device over a sparse file in RAM. The file is unlinked and the loop device set
//! to clear itself as soon as the mount stands, so that even a killed test leaves at most a mount behind.

use std::fmt;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::program::{call, find};
use crate::skipped;

const LIMIT: Duration = Duration::from_secs(60);

/// A type of lower file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LowerKind {
    /// tmpfs: no device, no O_DIRECT alignment, no file attributes.
    Tmpfs,
    /// ext4, what most machines have.
    Ext4,
    /// XFS, with reflink.
    Xfs,
    /// Btrfs, with reflink, subvolumes and 64-bit handles.
    Btrfs,
}

impl LowerKind {
    /// The name that mount(8) knows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Says whether two files may share blocks here.
    #[must_use]
    pub fn can_reflink(self) -> bool {
        matches!(self, Self::Xfs | Self::Btrfs)
    }

    fn mkfs(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Self::Tmpfs => None,
            Self::Ext4 => Some(("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])),
            Self::Xfs => Some(("mkfs.xfs", &["-q", "-f", "-m", "reflink=1"])),
            Self::Btrfs => Some(("mkfs.btrfs", &["-q", "-f"])),
        }
    }
}

impl fmt::Display for LowerKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// What to make.
#[derive(Clone, Debug)]
pub struct LowerSpec {
    /// The type of file system.
    pub kind: LowerKind,
    /// Its size in bytes; RAM is used only for what is written.
    pub size: u64,
    /// More mount options, comma separated, or nothing.
    pub options: String,
    /// How many percent of an ext4 are reserved for root.
    pub reserved: u8,
}

impl LowerSpec {
    /// A file system of an ordinary size for tests: 1 GiB.
    #[must_use]
    pub fn new(kind: LowerKind) -> Self {
        Self { kind, size: 1 << 30, options: String::new(), reserved: 0 }
    }

    /// Sets the size in bytes.
    #[must_use]
    pub fn size(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    /// Sets how many percent of an ext4 are reserved for root.
    #[must_use]
    pub fn reserved(mut self, percent: u8) -> Self {
        self.reserved = percent;
        self
    }

    /// Makes it and mounts it; `None` when this machine lacks what it needs, and then the reason was said.
    ///
    /// # Errors
    /// A command failed that should not.
    pub fn make(&self) -> Result<Option<Lower>> {
        if !rustix::process::geteuid().is_root() {
            skipped(&format!("{} needs root to be mounted", self.kind));
            return Ok(None);
        }
        if let Some((mkfs, _)) = self.kind.mkfs()
            && find(mkfs).is_none()
        {
            skipped(&format!("{mkfs} is not installed"));
            return Ok(None);
        }
        if !kernel_knows(self.kind)? {
            skipped(&format!("this kernel has no {}", self.kind));
            return Ok(None);
        }
        let room = tempfile::Builder::new().prefix("shuntfs-lower-").tempdir()?;
        fs::set_permissions(room.path(), Permissions::from_mode(0o755))?;
        let lower = Lower { kind: self.kind, mount: room.path().join("fs"), room: Some(room) };
        fs::create_dir(&lower.mount)?;
        self.mount(&lower.mount)?;
        fs::set_permissions(&lower.mount, Permissions::from_mode(0o755))?;
        Ok(Some(lower))
    }

    fn mount(&self, target: &Path) -> Result<()> {
        let more = if self.options.is_empty() { String::new() } else { format!(",{}", self.options) };
        let Some((mkfs, arguments)) = self.kind.mkfs() else {
            let options = format!("size={},mode=755{more}", self.size);
            call("mount", &[&"-t", &"tmpfs", &"-o", &options, &"shuntfs-lower", &target], LIMIT)?;
            return Ok(());
        };
        let image = tempfile::Builder::new().prefix("shuntfs-image-").tempfile_in(ram_folder())?;
        image.as_file().set_len(self.size)?;
        let mut words: Vec<&dyn AsRef<std::ffi::OsStr>> = Vec::new();
        for argument in arguments {
            words.push(argument);
        }
        let reserved = self.reserved.to_string();
        if self.kind == LowerKind::Ext4 {
            words.extend([&"-m" as &dyn AsRef<std::ffi::OsStr>, &reserved]);
        }
        let image_path = image.path().to_owned();
        words.push(&image_path);
        call(mkfs, &words, LIMIT)?;
        let options = format!("loop{more}");
        call("mount", &[&"-t", &self.kind.name(), &"-o", &options, &image_path, &target], LIMIT)?;
        // The loop device keeps the file; without a name it cannot be left behind.
        image.close().context("cannot remove the name of the image")
    }
}

/// A mounted lower file system; unmounted and removed when dropped, also by a panic.
#[derive(Debug)]
pub struct Lower {
    kind: LowerKind,
    mount: PathBuf,
    room: Option<TempDir>,
}

impl Lower {
    /// Makes a file system of an ordinary size; see [`LowerSpec::make`].
    ///
    /// # Errors
    /// A command failed that should not.
    pub fn make(kind: LowerKind) -> Result<Option<Self>> {
        LowerSpec::new(kind).make()
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> LowerKind {
        self.kind
    }

    /// The folder it is mounted on.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Makes a folder in it that everybody may enter, and returns its path.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.mount.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// Remounts it read-only or writable.
    ///
    /// # Errors
    /// mount(8) refuses.
    pub fn remount(&self, read_only: bool) -> Result<()> {
        let options = if read_only { "remount,ro" } else { "remount,rw" };
        // A file that was open for writing a moment ago keeps it busy for that moment.
        let mut last = Ok(());
        crate::limit::wait_until(Duration::from_secs(5), || {
            last = call("mount", &[&"-o", &options, &self.mount], LIMIT).map(drop);
            last.is_ok()
        });
        last
    }

    fn unmount(&self) {
        // A lower file that a server still holds for a moment makes it busy: wait a little, then let go lazily.
        for _ in 0..20 {
            if call("umount", &[&self.mount], LIMIT).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(call("umount", &[&"-l", &self.mount], LIMIT));
    }
}

impl Drop for Lower {
    fn drop(&mut self) {
        self.unmount();
        if let Some(room) = self.room.take() {
            // Removing recursively through a mount that did not go away would be worse than an empty folder left.
            drop(fs::remove_dir(&self.mount));
            drop(fs::remove_dir(room.path()));
            let _left_on_purpose = room.keep();
        }
    }
}

/// A folder in RAM for images, or the ordinary temporary folder where there is none.
fn ram_folder() -> PathBuf {
    let ram = PathBuf::from("/dev/shm");
    if ram.is_dir() { ram } else { std::env::temp_dir() }
}

fn kernel_knows(kind: LowerKind) -> Result<bool> {
    let known = || -> Result<bool> {
        let list = fs::read_to_string("/proc/filesystems")?;
        Ok(list.lines().any(|line| line.split_whitespace().next_back() == Some(kind.name())))
    };
    if known()? {
        return Ok(true);
    }
    // It may be a module that nobody has asked for yet.
    drop(call("modprobe", &[&kind.name()], LIMIT));
    known()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn each_type_mounts_and_leaves_nothing_behind() {
        for kind in [LowerKind::Tmpfs, LowerKind::Ext4, LowerKind::Xfs, LowerKind::Btrfs] {
            let Some(lower) = Lower::make(kind).unwrap() else { continue };
            let path = lower.path().to_owned();
            fs::write(path.join("file"), "bytes").unwrap();
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(mounts.contains(&format!("{} ", path.display())), "{kind} is not mounted");
            drop(lower);
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
            assert!(!mounts.contains(path.to_str().unwrap()), "{kind} is still mounted");
            assert!(!path.exists() && !path.parent().unwrap().exists(), "{kind} left its folder");
        }
    }

    #[test]
    fn a_panic_unmounts_too() {
        let path = std::panic::catch_unwind(|| {
            let Some(lower) = Lower::make(LowerKind::Tmpfs).unwrap() else { return };
            std::panic::panic_any(lower.path().to_owned());
        });
        let Err(path) = path else { return };
        assert!(!path.downcast::<PathBuf>().unwrap().exists());
    }
}
