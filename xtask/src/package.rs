//! What crates.io would be given: each crate as it is packed, built from its package alone, and the program installed from them.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{Workspace, cargo};

/// Packs every crate, builds each from its package, and installs the program from its own.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    let mut command = cargo();
    let status = command.args(arguments(workspace)).current_dir(&workspace.root).status();
    let ok = status.context("cannot start cargo")?.success() && installs(workspace)?;
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

/// Does as `cargo install shunt` does, with packages that are not on crates.io yet instead of those that would be.
fn installs(workspace: &Workspace) -> Result<bool> {
    let packages = workspace.target.join("package");
    let unpacked = |name: &str| packages.join(format!("{name}-{}", workspace.version));
    for package in workspace.packages.iter().filter(|package| package.is_published) {
        let mut archive = unpacked(&package.name).into_os_string();
        archive.push(".crate");
        let status = Command::new("tar").arg("-xzf").arg(archive).current_dir(&packages).status();
        ensure!(status.context("cannot start tar")?.success(), "{} does not unpack", package.name);
    }
    let root = packages.join("installed");
    let mut command = cargo();
    // The code is the same without optimisation, and builds faster.
    command.args(["install", "--quiet", "--debug", "--force", "--path"]).arg(unpacked("shunt"));
    command.arg("--root").arg(&root).arg("--target-dir").arg(packages.join("build"));
    for package in workspace.packages.iter().filter(|package| package.is_published && package.name != "shunt")
    {
        let path = unpacked(&package.name);
        command.arg("--config").arg(format!(
            "patch.crates-io.{}.path={:?}",
            package.name,
            path.display().to_string()
        ));
    }
    if !command.current_dir(&packages).status().context("cannot start cargo")?.success() {
        return Ok(false);
    }
    let said =
        Command::new(root.join("bin/shunt")).arg("--version").output().context("cannot start shunt")?;
    Ok(String::from_utf8_lossy(&said.stdout).trim() == format!("shunt {}", workspace.version))
}
