//! The pages that are made from the definitions of the command line. A test of `shunt` fails while they are not current.

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::workspace::{Workspace, cargo};

/// Writes them anew.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let mut command = cargo();
    command.args(["run", "--quiet", "-p", "shunt", "--example", "reference"]).current_dir(&workspace.root);
    let ok = command.status().context("cannot start cargo")?.success();
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
