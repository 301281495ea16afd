//! What others wrote for the crate fuser, on `shuntfs-fuser`. It takes long to build, so that it is no part of `cargo xtask test`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::test::fuse;
use crate::workspace::{Workspace, cargo};

/// Runs the test `fuser` with the feature `peers`, one test after the other, and shows what it prints.
pub(crate) fn run(workspace: &Workspace, filter: &[String]) -> Result<ExitCode> {
    let _put_back_at_the_end = fuse::set_up();
    let mut command = cargo();
    command.args(["test", "-p", "shuntfs-tests", "--features", "peers", "--test", "fuser", "--"]);
    command.args(["--nocapture", "--test-threads=1"]).args(filter).current_dir(&workspace.root);
    let ok = command.status().context("cannot start cargo")?.success();
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
