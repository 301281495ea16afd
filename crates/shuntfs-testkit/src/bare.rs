//! The same test again where the machine has next to nothing: no control file system of FUSE, and a /sys that cannot be
//! written, as in a container.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::program::{Ran, run};

const MARK: &str = "SHUNTFS_BARE";
const FOLDER: &str = "/sys/fs/fuse/connections";

/// Everything happens in a mount namespace of its own. The mounts on /sys go, and come not back.
const SCRIPT: &str = r#"
    while umount /sys/fs/fuse/connections 2> /dev/null; do :; done
    mount -o remount,bind,ro /sys
    exec "$@"
"#;

/// Whether this process is one of [`again`].
#[must_use]
pub fn is_bare() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs one test of this program again, by its full name, in such a place; needs root.
///
/// # Errors
/// It cannot be started, or does not end.
pub fn again(test: &str) -> Result<Ran> {
    let own = std::env::current_exe()?;
    let mut command = command(&own);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(MARK, "1");
    run(&mut command, Duration::from_mins(3))
}

/// A command that runs a program in such a place.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", SCRIPT, "sh"]).arg(program);
    command
}

/// Whether the control file system is there.
#[must_use]
pub fn has_control() -> bool {
    std::fs::read_dir(FOLDER).is_ok_and(|mut entries| entries.next().is_some())
}
