//! The files of a package beside the programs: man pages, completions, units, documents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::program::{PROFILE, Program, run, text};
use crate::tools;
use crate::workspace::Workspace;

/// Shells, each with what it looks for before and behind a program's name.
const SHELLS: [(&str, &str, &str); 3] = [("bash", "", ""), ("zsh", "_", ""), ("fish", "", ".fish")];

/// Documents of the top folder.
const TEXTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Where the units of contrib expect the program.
const BY_HAND: &str = "/usr/local/bin/shunt";

/// A folder with everything that goes into packages; the lists of `crates/shunt/Cargo.toml` say where to.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) folder: PathBuf,
}

impl Stage {
    /// The folder as it was left by the last [`Self::fill`].
    pub(crate) fn at(workspace: &Workspace) -> Self {
        Self { folder: workspace.target.join(PROFILE).join("stage") }
    }

    /// Makes the folder anew.
    pub(crate) fn fill(workspace: &Workspace, programs: &[Program]) -> Result<Self> {
        let stage = Self::at(workspace);
        if stage.folder.exists() {
            fs::remove_dir_all(&stage.folder).with_context(|| stage.folder.display().to_string())?;
        }
        for folder in
            ["man", "completions/bash", "completions/zsh", "completions/fish", "systemd", "doc/docs"]
        {
            fs::create_dir_all(stage.folder.join(folder)).with_context(|| folder.to_owned())?;
        }
        for program in programs {
            copy(&program.stripped, &stage.folder.join(program.name))?;
            stage.written_by(program)?;
        }
        let pages = files(&stage.folder.join("man"))?;
        run(Command::new("gzip").args(["-9", "--no-name", "--force"]).args(pages))?;
        stage.units(workspace)?;
        stage.documents(workspace)?;
        Ok(stage)
    }

    /// What a program writes itself.
    fn written_by(&self, program: &Program) -> Result<()> {
        let (name, own) = (program.name, &program.stripped);
        let pages = self.folder.join("man");
        if name == "shunt" {
            run(Command::new(own).arg("man").arg("--out").arg(&pages))?;
        } else {
            // In place of the page of the command of `shunt` that starts it: both are called the same.
            write(&pages.join(format!("{name}.1")), &text(Command::new(own).arg("man"))?)?;
        }
        for (shell, before, behind) in SHELLS {
            let script = text(Command::new(own).args(["completions", shell]))?;
            write(
                &self.folder.join("completions").join(shell).join(format!("{before}{name}{behind}")),
                &script,
            )?;
        }
        Ok(())
    }

    fn units(&self, workspace: &Workspace) -> Result<()> {
        for unit in files(&workspace.root.join("contrib/systemd"))? {
            let text = fs::read_to_string(&unit).with_context(|| unit.display().to_string())?;
            write(&self.folder.join("systemd").join(name(&unit)?), &text.replace(BY_HAND, "/usr/bin/shunt"))?;
        }
        Ok(())
    }

    fn documents(&self, workspace: &Workspace) -> Result<()> {
        let doc = self.folder.join("doc");
        for text in TEXTS {
            copy(&workspace.root.join(text), &doc.join(text))?;
        }
        for page in files(&workspace.root.join("docs"))? {
            if page.extension().is_some_and(|extension| extension == "md" || extension == "svg") {
                copy(&page, &doc.join("docs").join(name(&page)?))?;
            }
        }
        for (program, page) in [("shunt", "THIRD-PARTY.md"), ("shunt-bench", "THIRD-PARTY-bench.md")] {
            let mut about = tools::ABOUT.command(workspace)?;
            about.args(["generate", "--locked", "--offline", "--fail", "--manifest-path"]);
            about.arg(format!("crates/{program}/Cargo.toml"));
            about.args(["--config", "xtask/about.toml", "--output-file"]).arg(doc.join(page));
            run(about.arg("xtask/about.hbs"))?;
        }
        Ok(())
    }
}

/// Lists the files of a folder, in order; folders in it are left out.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}

/// Copies a file, to a folder that is made where it is missing.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let describe = || format!("{} to {}", from.display(), to.display());
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(describe)?;
    }
    fs::copy(from, to).map(drop).with_context(describe)
}

pub(super) fn name(path: &Path) -> Result<&std::ffi::OsStr> {
    path.file_name().with_context(|| format!("{} has no name", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}
