//! What the tests that mount need of the machine: a /dev/fuse that ordinary users may open, and the control file system
//! of FUSE.
//!
//! Both are set up in a mount namespace of this run's own, so that the machine stays as it is and a run does not depend
//! on what somebody set up by hand. Where there can be no such namespace, what was changed is put back.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use super::machine;

pub(crate) const CONTROL: &str = "/sys/fs/fuse/connections";
const DEVICE: &str = "/dev/fuse";
const FOR_ALL: u32 = 0o666;

/// Says in the environment that this process has a namespace of its own.
const APART: &str = "SHUNTFS_TESTS_APART";

/// Makes a device node that all may open, and puts it over the machine's.
const OWN_DEVICE: &str = r#"
    room=$(mktemp -d)
    mount -t tmpfs -o mode=0755,size=64k none "$room"
    mknod "$room/fuse" c 10 229
    chmod 0666 "$room/fuse"
    if : <> "$room/fuse"; then mount --bind "$room/fuse" /dev/fuse && made=yes; fi
    umount -l "$room"; rmdir "$room"
    [ "$made" = yes ]
"#;

/// Runs the whole again in a mount namespace of its own; `None` where this is that run, or there can be none.
pub(crate) fn again_apart(arguments: &[String]) -> Result<Option<ExitCode>> {
    if is_apart() || !machine::is_root() || !succeeds(apart().arg("true")) {
        return Ok(None);
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let status = apart().arg(program).arg("test").args(arguments).env(APART, "1").status();
    let code = status.context("cannot start unshare")?.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(code.map_or(ExitCode::FAILURE, ExitCode::from)))
}

/// Whether the mounts that are seen here are this run's own.
pub(crate) fn is_apart() -> bool {
    std::env::var_os(APART).is_some()
}

/// What was changed on the machine itself; undone when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    control_is_ours: bool,
    mode: Option<u32>,
}

/// Sets up what does not exist, and says so.
pub(crate) fn set_up() -> Changed {
    let mut changed = Changed::default();
    if !machine::is_root() {
        return changed;
    }
    if !Path::new(DEVICE).exists() || !Path::new(CONTROL).exists() {
        // A kernel that has it built in, or a container, has no such program or no such module.
        succeeds(Command::new("modprobe").arg("fuse"));
    }
    match control() {
        Ok(true) => changed.control_is_ours = !is_apart(),
        Ok(false) => {}
        Err(error) => println!("set-up: {error:#}: a stuck mount is ended by umount -f"),
    }
    match device() {
        Ok(mode) => changed.mode = mode,
        Err(error) => println!("set-up: {error:#}: tests that mount fail, or are skipped"),
    }
    changed
}

/// Mounts the control file system where it is not; says whether it did.
fn control() -> Result<bool> {
    if is_mounted(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), CONTROL) {
        return Ok(false);
    }
    if !succeeds(Command::new("mount").args(["-t", "fusectl", "fusectl", CONTROL])) {
        bail!("fusectl cannot be mounted on {CONTROL}");
    }
    println!("set-up: fusectl is mounted on {CONTROL}{}", until_the_end());
    Ok(true)
}

/// Lets everybody open the device; returns the mode that the machine's own is to have again.
fn device() -> Result<Option<u32>> {
    let stat = fs::metadata(DEVICE).with_context(|| DEVICE.to_owned())?;
    if !stat.file_type().is_char_device() {
        bail!("{DEVICE} is not a device");
    }
    let mode = stat.permissions().mode() & 0o7777;
    if mode & FOR_ALL == FOR_ALL {
        return Ok(None);
    }
    if is_apart() && succeeds(Command::new("sh").args(["-euc", &format!("made=no\n{OWN_DEVICE}")])) {
        println!("set-up: {DEVICE} has mode 0666 for this run");
        return Ok(None);
    }
    fs::set_permissions(DEVICE, fs::Permissions::from_mode(FOR_ALL)).with_context(|| DEVICE.to_owned())?;
    println!("set-up: {DEVICE} has mode 0666 until the end of this run");
    Ok(Some(mode))
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Some(mode) = self.mode.take() {
            match fs::set_permissions(DEVICE, fs::Permissions::from_mode(mode)) {
                Ok(()) => println!("{DEVICE} has mode {mode:04o} again"),
                Err(error) => println!("{DEVICE} could not be given its mode {mode:04o} again: {error}"),
            }
        }
        if std::mem::take(&mut self.control_is_ours) && !succeeds(Command::new("umount").arg(CONTROL)) {
            println!("fusectl could not be unmounted from {CONTROL}");
        }
    }
}

fn until_the_end() -> &'static str {
    if is_apart() { " for this run" } else { " until the end of this run" }
}

fn apart() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]);
    command
}

fn is_mounted(table: &str, folder: &str) -> bool {
    table.lines().any(|line| line.split(' ').nth(4) == Some(folder))
}

/// Runs a command in silence.
fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_known_by_its_place() {
        let table = "30 25 0:28 / /sys/fs/fuse/connections rw - fusectl fusectl rw\n";
        assert!(is_mounted(table, CONTROL));
        assert!(!is_mounted(table, "/sys/fs/fuse"));
        assert!(!is_mounted("", CONTROL));
    }

    /// In a namespace that lacks both, as a new machine does; nothing of the machine itself changes.
    #[test]
    fn a_bare_machine_gets_both() {
        if !machine::is_root() || !Path::new(DEVICE).exists() || !succeeds(apart().arg("true")) {
            println!("SKIPPED: needs root, /dev/fuse and a mount namespace");
            return;
        }
        let mode = || fs::metadata(DEVICE).unwrap().permissions().mode() & 0o7777;
        let (before, first) = (mode(), std::env::var_os("XTASK_BARE").is_none());
        if !first {
            let changed = set_up();
            assert!(is_mounted(&fs::read_to_string("/proc/self/mountinfo").unwrap(), CONTROL));
            assert_eq!(mode(), FOR_ALL);
            assert!(changed.mode.is_none() && !changed.control_is_ours, "{changed:?}");
            let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", ": <> /dev/fuse"];
            assert!(succeeds(Command::new("setpriv").args(nobody)));
            return;
        }
        let bare = "while umount /sys/fs/fuse/connections 2> /dev/null; do :; done
            room=$(mktemp -d); mount -t tmpfs none $room; mknod -m 0600 $room/fuse c 10 229
            mount --bind $room/fuse /dev/fuse; umount -l $room; rmdir $room
            mount -o remount,bind,ro /sys; exec \"$@\"";
        let own = std::env::current_exe().unwrap();
        let name = "test::fuse::tests::a_bare_machine_gets_both";
        let mut command = apart();
        command.args(["sh", "-ec", bare, "sh"]).arg(own).args(["--exact", name, "--nocapture"]);
        let ran = command.env(APART, "1").env("XTASK_BARE", "1").output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("mode 0666 for this run"), "{ran:?}");
        assert_eq!(mode(), before);
    }
}
