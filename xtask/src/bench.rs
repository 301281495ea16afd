//! `cargo xtask bench`: the release build of shunt beside its peers.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::workspace::{Workspace, cargo};

/// Builds and runs the bench with the rest of the arguments.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode> {
    let mut build = cargo();
    build.args(["build", "--release", "-p", "shunt", "-p", "shuntfs-bench"]).current_dir(&workspace.root);
    if !build.status().context("cannot start cargo")?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let folder = workspace.target.join("release");
    let mut bench = std::process::Command::new(folder.join("shuntfs-bench"));
    bench.args(arguments);
    if std::env::var_os("SHUNT_BIN").is_none() {
        bench.env("SHUNT_BIN", folder.join("shunt"));
    }
    let status = bench.status().context("cannot start the bench")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
