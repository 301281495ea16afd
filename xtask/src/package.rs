//! What crates.io would be given: each crate as it is packed, built from its package alone.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::workspace::{Workspace, cargo};

/// Packs every crate, and builds each from its package.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let mut command = cargo();
    let status = command.args(arguments(workspace)).current_dir(&workspace.root).status();
    let ok = status.context("cannot start cargo")?.success();
    println!("package: {}", if ok { "ok" } else { "failed" });
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What `cargo package` is told: it takes those of our own crates that are not published yet from their packages, too. Crates that are not
/// to be published (`xtask/src/tidy/published.rs`) are left out.
pub(crate) fn arguments(workspace: &Workspace) -> Vec<&str> {
    let internal = workspace.packages.iter().filter(|package| !package.is_published);
    let excluded = internal.flat_map(|package| ["--exclude", package.name.as_str()]);
    ["package", "--quiet", "--workspace", "--allow-dirty"].into_iter().chain(excluded).collect()
}
