//! A mount namespace of our own, so that the kernel takes every mount down should we be killed.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::process;
use crate::stop::Stop;

/// Set in the process that runs inside, so that it does not start another.
const INSIDE: &str = "SHUNTFS_BENCH_INSIDE";

/// Starts this program anew in a mount namespace of its own, with the same arguments; returns in that one, or at once
/// where this is not available (no root, no `unshare`).
///
/// # Errors
/// When the program cannot be started again.
pub fn isolate() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() || !rustix::process::geteuid().is_root() || !works() {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = unshare();
    command.arg(program).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    Err(command.exec()).context("cannot start `unshare`")
}

fn works() -> bool {
    process::on_path("unshare")
        && process::run_ok(unshare().arg("true"), Duration::from_secs(10), &Stop::default()).is_ok()
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]);
    command
}
