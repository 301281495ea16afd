//! The control file system of FUSE: how a connection is ended from outside when its server does not answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::program::call;

const FOLDER: &str = "/sys/fs/fuse/connections";

/// A FUSE connection, named by the minor number of its mount's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection(u32);

impl Connection {
    /// Finds the connection of the mount on `target` in the table of mounts, without touching the mount.
    ///
    /// # Errors
    /// The table of mounts cannot be read.
    pub fn of(target: &Path) -> Result<Option<Self>> {
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        // The last line wins: mounts on one target hide each other.
        Ok(table.lines().rev().find_map(|line| parse(line, target)).map(Self))
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// Ends the connection: every waiting caller gets an error.
    ///
    /// # Errors
    /// The control file system does not exist, or the connection is gone.
    pub fn abort(self) -> Result<()> {
        fs::write(self.file("abort")?, "1").context("cannot abort the connection")
    }

    /// How many requests wait for an answer.
    ///
    /// # Errors
    /// As [`Connection::abort`].
    pub fn waiting(self) -> Result<u64> {
        Ok(fs::read_to_string(self.file("waiting")?)?.trim().parse()?)
    }

    /// Says whether the kernel still has this connection.
    #[must_use]
    pub fn is_alive(self) -> bool {
        self.file("waiting").is_ok_and(|file| file.exists())
    }

    fn file(self, name: &str) -> Result<PathBuf> {
        mount_control()?;
        Ok(Path::new(FOLDER).join(self.0.to_string()).join(name))
    }
}

/// Mounts the control file system where it is missing, as it often is in a container or a small virtual machine.
///
/// # Errors
/// It cannot be mounted.
pub fn mount_control() -> Result<()> {
    static ONCE: Mutex<()> = Mutex::new(());
    let _one_at_a_time = ONCE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mounted = || {
        fs::read_to_string("/proc/self/mountinfo")
            .is_ok_and(|table| table.lines().any(|line| line.split(' ').nth(4) == Some(FOLDER)))
    };
    if mounted() {
        return Ok(());
    }
    call("mount", &[&"-t", &"fusectl", &"fusectl", &FOLDER], Duration::from_secs(10))?;
    if mounted() { Ok(()) } else { bail!("{FOLDER} is not mounted") }
}

/// Returns the device's minor number when `line` of mountinfo is a FUSE mount on `target`.
fn parse(line: &str, target: &Path) -> Option<u32> {
    let mut fields = line.split(' ');
    let device = fields.nth(2)?;
    let on = fields.nth(1)?;
    let kind = line.split(" - ").nth(1)?.split(' ').next()?;
    let is_fuse = kind == "fuse" || kind.starts_with("fuse.");
    let minor = device.split_once(':')?.1.parse().ok()?;
    (is_fuse && unescape(on) == target.to_str()?).then_some(minor)
}

/// Turns the octal escapes of mountinfo (blank, tab, newline, backslash) back into the bytes.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn mountinfo_lines() {
        let line = "41 28 0:37 / /tmp/a\\040b rw,relatime shared:1 - fuse.shunt /src rw,user_id=0";
        assert_eq!(parse(line, Path::new("/tmp/a b")), Some(37));
        assert_eq!(parse(line, Path::new("/tmp/a")), None);
        let other = "41 28 0:37 / /tmp/a rw - tmpfs x rw";
        assert_eq!(parse(other, Path::new("/tmp/a")), None);
        assert_eq!(parse("", Path::new("/")), None);
    }
}
