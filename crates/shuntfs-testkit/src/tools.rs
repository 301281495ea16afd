//! Programs that tests need and that come from the registry.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::program::{find, run};
use crate::{say, skipped};

/// pjdfstest, the POSIX test suite.
///
/// # Errors
/// This program is not in a target folder.
pub fn pjdfstest() -> Result<Option<PathBuf>> {
    installed("pjdfstest", "0.2.2")
}

/// fsx, which works on a file at random and knows what it must contain.
///
/// # Errors
/// This program is not in a target folder.
pub fn fsx() -> Result<Option<PathBuf>> {
    installed("fsx", "0.3.2")
}

/// Finds a program, or builds it once beside the tests; `None` with the reason where neither is possible.
fn installed(name: &str, version: &str) -> Result<Option<PathBuf>> {
    if let Some(found) = find(name) {
        return Ok(Some(found));
    }
    let tools = folder().context("the tests are in a target folder")?;
    say(&format!("NOTE: installing {name} {version} below {}", tools.display()));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["install", "--quiet", "--locked", name, "--version", version, "--root"]).arg(&tools);
    let ran = run(&mut command, Duration::from_secs(500));
    if !ran.as_ref().is_ok_and(|ran| ran.status.success()) {
        skipped(&format!("{name} cannot be installed: {ran:?}"));
        return Ok(None);
    }
    Ok(Some(tools.join("bin").join(name)))
}

/// Where they are built.
pub(crate) fn folder() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let target = own.ancestors().find(|folder| folder.join("deps").is_dir()).and_then(Path::parent);
    Some(target?.join("tools"))
}
