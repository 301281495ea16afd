//! The packages: .deb, .rpm, a tarball with the static programs, and one with the debug information.

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
    ("completions/bash", "share/bash-completion/completions"),
    ("completions/zsh", "share/zsh/site-functions"),
    ("completions/fish", "share/fish/vendor_completions.d"),
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

    /// Makes the tarball of programs that need no libraries.
    pub(crate) fn tarball(&self, programs: &[Program]) -> Result<()> {
        let platform = programs.first().map_or("", |program| &program.platform);
        let root = self.fresh(&format!("shuntfs-{}-{platform}", self.workspace.version))?;
        for program in programs {
            copy(&program.stripped, &root.join("bin").join(program.name))?;
        }
        for (from, to) in PLACES {
            for file in files(&self.stage.folder.join(from))? {
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
    pub(crate) fn debug_information<'a>(
        &self,
        programs: impl Iterator<Item = &'a Program> + Clone,
    ) -> Result<()> {
        let platform = programs.clone().next().map_or("", |program| &program.platform);
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
        let mut archive = self.out.join(name(root)?).into_os_string();
        archive.push(".tar.xz");
        pack(root, Path::new(&archive))
    }
}

/// Packs files and links, and no folders: tar, as root, would give folders that are there already the owner and the mode of those in
/// the archive, and would put folders in place of links to folders.
fn pack(root: &Path, archive: &Path) -> Result<()> {
    let above = root.with_file_name("");
    let mut members = Vec::new();
    collect(root, &mut members)?;
    members.sort();
    let mut tar = Command::new("tar");
    tar.args(["--no-recursion", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
    tar.arg("-cJf").arg(archive).arg("-C").arg(&above).arg("--");
    for member in &members {
        tar.arg(member.strip_prefix(&above).context("is below")?);
    }
    run(&mut tar)
}

/// Everything below a folder that is no folder.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_tarball_has_no_folders_and_leaves_those_that_are_there_as_they_are() -> Result<()> {
        let room = tempfile::tempdir()?;
        let root = room.path().join("shuntfs-1");
        let file = room.path().join("file");
        fs::write(&file, "something")?;
        copy(&file, &root.join("bin/shunt"))?;
        copy(&file, &root.join("share/man/man1/shunt.1"))?;
        fs::create_dir(root.join("sbin"))?;
        symlink("../bin/shunt", root.join("sbin/mount.shunt"))?;
        let archive = room.path().join("shuntfs-1.tar.xz");
        pack(&root, &archive)?;
        let names = text(Command::new("tar").arg("-tf").arg(&archive))?;
        assert_eq!(
            names,
            "shuntfs-1/bin/shunt\nshuntfs-1/sbin/mount.shunt\nshuntfs-1/share/man/man1/shunt.1\n"
        );

        let local = room.path().join("local");
        fs::create_dir_all(local.join("share"))?;
        fs::create_dir(local.join("bin"))?;
        fs::set_permissions(local.join("share"), fs::Permissions::from_mode(0o2775))?;
        symlink("bin", local.join("sbin"))?;
        run(Command::new("tar").arg("-C").arg(&local).args(["--strip-components=1", "-xf"]).arg(&archive))?;
        assert_eq!(fs::metadata(local.join("share"))?.permissions().mode() & 0o7777, 0o2775);
        assert_eq!(fs::read_link(local.join("sbin"))?, Path::new("bin"));
        assert_eq!(fs::read_link(local.join("bin/mount.shunt"))?, Path::new("../bin/shunt"));
        assert!(local.join("share/man/man1/shunt.1").is_file() && local.join("bin/shunt").is_file());
        Ok(())
    }
}
