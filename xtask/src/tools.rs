//! Programs that some chores use, most of them plugins of cargo: pinned, installed below the target folder when they are missing.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{Workspace, cargo};

/// `cargo deb`: Debian packages.
pub(crate) const DEB: Tool = Tool { name: "cargo-deb", version: "3.8.0", features: &[] };
/// `cargo generate-rpm`: packages for Fedora, openSUSE and others.
pub(crate) const RPM: Tool = Tool { name: "cargo-generate-rpm", version: "0.21.1", features: &[] };
/// `cargo about`: the texts of the licences of all dependencies.
pub(crate) const ABOUT: Tool =
    Tool { name: "cargo-about", version: "0.9.3", features: &["--features", "cli"] };
/// `cargo deny`: licences, advisories, banned crates and sources.
pub(crate) const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", features: &[] };
/// `cargo cyclonedx`: the bill of materials.
pub(crate) const CYCLONEDX: Tool = Tool { name: "cargo-cyclonedx", version: "0.5.9", features: &[] };

/// `mdbook`: the site. Its server and its watcher are not needed.
pub(crate) const MDBOOK: Tool =
    Tool { name: "mdbook", version: "0.5.4", features: &["--no-default-features", "--features", "search"] };

/// A program; `cargo-NAME` is called as `cargo NAME`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
    features: &'static [&'static str],
}

/// How long a plugin may take, and its installation.
const LIMIT: Duration = Duration::from_mins(10);
const LIMIT_INSTALL: Duration = Duration::from_mins(30);

/// They run once or twice, so that compiling them fast is worth more than fast code.
const QUICK_BUILD: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_LTO", "false"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
];

impl Tool {
    /// Makes a command that calls the plugin in the workspace; installs the plugin first where it is missing.
    ///
    /// # Errors
    /// Where it cannot be installed.
    pub(crate) fn command(self, workspace: &Workspace) -> Result<Command> {
        self.command_within(workspace, LIMIT)
    }

    /// The same for a command that is given less time, or more.
    ///
    /// # Errors
    /// Those of [`Self::command`].
    pub(crate) fn command_within(self, workspace: &Workspace, limit: Duration) -> Result<Command> {
        if !self.is_installed(workspace) {
            self.install(workspace)?;
        }
        let mut path: Vec<PathBuf> = vec![self.folder(workspace).join("bin")];
        path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let path: OsString = std::env::join_paths(path).context("PATH")?;
        let mut command = match self.name.strip_prefix("cargo-") {
            Some(plugin) => {
                let mut command = limited(limit, cargo().get_program());
                command.arg(plugin);
                command
            }
            None => limited(limit, self.program(workspace).as_os_str()),
        };
        command.env("PATH", path).current_dir(&workspace.root);
        Ok(command)
    }

    /// Whether it is there already.
    pub(crate) fn is_installed(self, workspace: &Workspace) -> bool {
        self.program(workspace).is_file()
    }

    fn program(self, workspace: &Workspace) -> PathBuf {
        self.folder(workspace).join("bin").join(self.name)
    }

    fn install(self, workspace: &Workspace) -> Result<()> {
        let tools = workspace.target.join("tools");
        println!("{} {}: installing it below {}", self.name, self.version, tools.display());
        let mut command = limited(LIMIT_INSTALL, cargo().get_program());
        command.args(["install", "--quiet", "--locked", "--root"]).arg(self.folder(workspace));
        // One folder for all: many of their dependencies are the same.
        command.arg("--target-dir").arg(tools.join("build"));
        command.args(self.features);
        command.arg(format!("{}@{}", self.name, self.version)).envs(QUICK_BUILD).current_dir(&workspace.root);
        let status = command.status().context("cannot start cargo")?;
        ensure!(status.success(), "{} {} cannot be installed", self.name, self.version);
        Ok(())
    }

    fn folder(self, workspace: &Workspace) -> PathBuf {
        workspace.target.join("tools").join(format!("{}-{}", self.name, self.version))
    }
}

/// Makes a command with a time limit, which a Ctrl-C reaches.
fn limited(limit: Duration, program: &OsStr) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--foreground").arg(limit.as_secs().to_string()).arg(program);
    command
}
