//! The files of a package beside the program: man pages, completions, units, documents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::program::{PROFILE, Program, run, text};
use crate::tools;
use crate::workspace::Workspace;

/// Shells, and the name that each looks for.
const SHELLS: [(&str, &str); 3] = [("bash", "shunt"), ("zsh", "_shunt"), ("fish", "shunt.fish")];

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
    pub(crate) fn fill(workspace: &Workspace, program: &Program) -> Result<Self> {
        let stage = Self::at(workspace);
        if stage.folder.exists() {
            fs::remove_dir_all(&stage.folder).with_context(|| stage.folder.display().to_string())?;
        }
        for folder in ["man", "completions", "systemd", "doc/docs"] {
            fs::create_dir_all(stage.folder.join(folder)).with_context(|| folder.to_owned())?;
        }
        copy(&program.stripped, &stage.folder.join("shunt"))?;
        stage.written_by(&program.stripped)?;
        stage.units(workspace)?;
        stage.documents(workspace)?;
        Ok(stage)
    }

    /// What the program writes itself.
    fn written_by(&self, program: &Path) -> Result<()> {
        let pages = self.folder.join("man");
        run(Command::new(program).arg("man").arg("--out").arg(&pages))?;
        let pages = files(&pages)?;
        run(Command::new("gzip").args(["-9", "--no-name", "--force"]).args(pages))?;
        for (shell, name) in SHELLS {
            let script = text(Command::new(program).args(["completions", shell]))?;
            write(&self.folder.join("completions").join(name), &script)?;
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
        let mut about = tools::ABOUT.command(workspace)?;
        about.args([
            "generate",
            "--locked",
            "--offline",
            "--fail",
            "--manifest-path",
            "crates/shunt/Cargo.toml",
        ]);
        about.args(["--config", "xtask/about.toml", "--output-file"]).arg(doc.join("THIRD-PARTY.md"));
        run(about.arg("xtask/about.hbs"))
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
