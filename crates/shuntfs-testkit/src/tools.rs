//! Programs that tests need and that come from the registry.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::program::{find, run};
use crate::{say, skipped};

const VERSION: &str = "0.2.2";

/// pjdfstest, the POSIX test suite: installed, or built once beside the tests; `None` with the reason where neither is available.
///
/// # Errors
/// This program is not in a target folder.
pub fn pjdfstest() -> Result<Option<PathBuf>> {
    if let Some(found) = find("pjdfstest") {
        return Ok(Some(found));
    }
    let own = std::env::current_exe()?;
    let target = own.ancestors().find(|folder| folder.join("deps").is_dir()).and_then(Path::parent);
    let tools = target.context("the tests are in a target folder")?.join("tools");
    let built = tools.join("bin/pjdfstest");
    if built.is_file() {
        return Ok(Some(built));
    }
    say(&format!("NOTE: installing pjdfstest {VERSION} below {}", tools.display()));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["install", "--quiet", "--locked", "pjdfstest", "--version", VERSION, "--root"]).arg(&tools);
    let ran = run(&mut command, Duration::from_secs(500));
    if !ran.as_ref().is_ok_and(|ran| ran.status.success()) {
        skipped(&format!("pjdfstest cannot be installed: {ran:?}"));
        return Ok(None);
    }
    Ok(Some(built))
}
