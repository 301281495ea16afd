//! Makes everything, in order; or tests what was made.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};

use super::packages::{self, Packages};
use super::program::{Linking, Program};
use super::stage::{Stage, copy};
use crate::deny;
use crate::workspace::Workspace;

/// Makes the packages (no arguments), or installs them in a fresh Debian (`test`).
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode> {
    match arguments {
        [] => make(workspace).map(|()| ExitCode::SUCCESS),
        [word] if word == "test" => test(workspace),
        _ => bail!("usage: cargo xtask dist [test]"),
    }
}

fn make(workspace: &Workspace) -> Result<()> {
    let out = packages::folder(workspace);
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| out.display().to_string())?;
    }
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let programs = Program::build_all(workspace, Linking::Dynamic)?;
    let stage = Stage::fill(workspace, &programs)?;
    let packages = Packages { workspace, stage: &stage, out: &out };
    packages.deb(None)?;
    packages.rpm()?;
    let alone = Program::build_all(workspace, Linking::Static)?;
    packages.tarball(&alone)?;
    packages.debug_information(programs.iter().chain(&alone))?;
    for (name, bill) in deny::bills_of_materials(workspace)? {
        copy(&bill, &out.join(format!("{name}-{}.cdx.json", workspace.version)))?;
    }
    packages.sums()?;
    for file in list(&out)? {
        println!("{:>12} bytes  {}", fs::metadata(&file)?.len(), workspace.show(&file));
    }
    Ok(())
}

/// Makes a Debian package of a higher version of the same files, and hands all to the script.
fn test(workspace: &Workspace) -> Result<ExitCode> {
    if find(&packages::folder(workspace), "deb").is_err() {
        make(workspace)?;
    }
    let out = packages::folder(workspace);
    let room = workspace.target.join("dist-test");
    fs::create_dir_all(&room).with_context(|| room.display().to_string())?;
    let upgrade = room.join("upgrade.deb");
    let stage = Stage::at(workspace);
    Packages { workspace, stage: &stage, out: &upgrade }.deb(Some("99.0.0-1"))?;
    let mut script = Command::new(workspace.root.join("xtask/dist-test"));
    script.arg(&room).arg(find(&out, "deb")?).arg(&upgrade).arg(find(&out, "rpm")?).arg(find(&out, "xz")?);
    let status = script.status().context("cannot start xtask/dist-test")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Finds the one file with this extension; debug information aside.
fn find(folder: &Path, extension: &str) -> Result<PathBuf> {
    let mut found = list(folder)?;
    found.retain(|path| {
        let is_debug = path.file_stem().is_some_and(|name| name.to_string_lossy().contains("-debug"));
        path.extension() == Some(OsStr::new(extension)) && !is_debug
    });
    ensure!(found.len() == 1, "{}: {} files end in .{extension}", folder.display(), found.len());
    found.pop().context("one was there")
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_package_is_found_and_debug_information_is_none() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.tar.xz", "a-debug.tar.xz", "a.deb", "b.deb"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(find(folder.path(), "xz").unwrap(), folder.path().join("a.tar.xz"));
        assert!(find(folder.path(), "deb").is_err());
        assert!(find(folder.path(), "rpm").is_err());
    }
}
