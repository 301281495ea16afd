//! The packages: .deb, .rpm, a tarball with the static program, and one with the debug information.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::program::{PROFILE, Program, run, text};
use super::stage::{Stage, copy, files, name};
use crate::tools;
use crate::workspace::Workspace;

/// Where packages are put.
pub(crate) fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("packages")
}

/// What packages are made of, and where they go: a folder, or the one file to write.
#[derive(Debug)]
pub(crate) struct Packages<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) stage: &'a Stage,
    pub(crate) out: &'a Path,
}

/// Where the parts of the stage go in the tarball, which is unpacked in /usr/local.
const PLACES: [(&str, &str); 6] = [
    ("man", "share/man/man1"),
    ("completions/shunt", "share/bash-completion/completions/shunt"),
    ("completions/_shunt", "share/zsh/site-functions/_shunt"),
    ("completions/shunt.fish", "share/fish/vendor_completions.d/shunt.fish"),
    ("doc", "share/doc/shuntfs"),
    ("doc/docs", "share/doc/shuntfs/docs"),
];

impl Packages<'_> {
    /// Makes the .deb, of another version where one is given.
    pub(crate) fn deb(&self, version: Option<&str>) -> Result<()> {
        let mut command = tools::DEB.command(self.workspace)?;
        command.args(["--quiet", "--no-build", "--no-strip", "--profile", PROFILE, "--package", "shunt"]);
        command.arg("--output").arg(self.out);
        if let Some(version) = version {
            command.args(["--deb-version", version]);
        }
        run(&mut command)
    }

    /// Makes the .rpm.
    pub(crate) fn rpm(&self) -> Result<()> {
        let mut command = tools::RPM.command(self.workspace)?;
        command.args(["--package", "crates/shunt", "--profile", PROFILE, "--auto-req", "builtin"]);
        command.arg("--target-dir").arg(&self.workspace.target).arg("--output").arg(self.out);
        run(&mut command)
    }

    /// Makes the tarball of a program that needs no libraries.
    pub(crate) fn tarball(&self, program: &Program) -> Result<()> {
        let root = self.fresh(&format!("shuntfs-{}-{}", self.workspace.version, program.platform))?;
        copy(&program.stripped, &root.join("bin/shunt"))?;
        for (from, to) in PLACES {
            let from = self.stage.folder.join(from);
            if from.is_file() {
                copy(&from, &root.join(to))?;
                continue;
            }
            for file in files(&from)? {
                copy(&file, &root.join(to).join(name(&file)?))?;
            }
        }
        // As they are: /usr/local is where they expect the program.
        for unit in files(&self.workspace.root.join("contrib/systemd"))? {
            copy(&unit, &root.join("lib/systemd/system").join(name(&unit)?))?;
        }
        fs::create_dir_all(root.join("sbin")).context("sbin")?;
        for helper in ["mount.fuse.shunt", "mount.shunt"] {
            symlink("../bin/shunt", root.join("sbin").join(helper)).with_context(|| helper.to_owned())?;
        }
        self.pack(&root)
    }

    /// Makes the tarball of what debuggers look for below /usr/lib/debug, of each program.
    pub(crate) fn debug_information(&self, programs: &[&Program]) -> Result<()> {
        let platform = programs.first().map_or("", |program| &program.platform);
        let root = self.fresh(&format!("shuntfs-{}-{platform}-debug", self.workspace.version))?;
        for program in programs {
            let (folder, rest) = program.build_id.split_at(2);
            let path = format!("usr/lib/debug/.build-id/{folder}/{rest}.debug");
            copy(&program.debug, &root.join(path))?;
        }
        self.pack(&root)
    }

    /// Writes the checksums of everything.
    pub(crate) fn sums(&self) -> Result<()> {
        let names = files(self.out)?;
        let names = names.iter().map(|path| name(path)).collect::<Result<Vec<_>>>()?;
        let sums = text(Command::new("sha256sum").args(names).current_dir(self.out))?;
        fs::write(self.out.join("SHA256SUMS"), sums).context("SHA256SUMS")
    }

    /// Makes an empty folder to fill and pack.
    fn fresh(&self, name: &str) -> Result<PathBuf> {
        let folder = self.stage.folder.with_file_name(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(folder)
    }

    fn pack(&self, root: &Path) -> Result<()> {
        let name = name(root)?;
        let mut archive = self.out.join(name).into_os_string();
        archive.push(".tar.xz");
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
        run(tar.arg("-cJf").arg(archive).arg("-C").arg(root.with_file_name("")).arg(name))
    }
}
