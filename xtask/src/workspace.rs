//! What there is in the workspace, as cargo sees it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The workspace.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) target: PathBuf,
    /// The version of the program, and of all crates.
    pub(crate) version: String,
    pub(crate) packages: Vec<Package>,
}

/// One of our crates.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// The file that each library, program, test, example and build script starts at.
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) imports: Vec<Import>,
    pub(crate) is_published: bool,
}

/// One entry of a crate's dependencies.
#[derive(Debug, Clone)]
pub(crate) struct Import {
    pub(crate) name: String,
    /// For tests, examples and benches alone.
    pub(crate) dev: bool,
    pub(crate) features: Vec<String>,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn read() -> Result<Self> {
        Self::parse(&metadata()?)
    }

    fn parse(metadata: &Value) -> Result<Self> {
        let packages = metadata["packages"].as_array().context("no packages")?;
        let program = packages.iter().find(|package| package["name"] == "shunt").context("no program")?;
        Ok(Self {
            version: text(&program["version"])?,
            root: path(&metadata["workspace_root"])?,
            target: path(&metadata["target_directory"])?,
            packages: packages.iter().map(Package::parse).collect::<Result<_>>()?,
        })
    }

    /// Returns a path as one reads it: relative to the workspace.
    pub(crate) fn show<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}

impl Package {
    fn parse(package: &Value) -> Result<Self> {
        let manifest = path(&package["manifest_path"])?;
        let targets = package["targets"].as_array().context("no targets")?;
        let imports = package["dependencies"].as_array().context("no dependencies")?;
        Ok(Self {
            name: text(&package["name"])?,
            folder: manifest.parent().context("a manifest without a folder")?.to_path_buf(),
            roots: targets.iter().map(|target| path(&target["src_path"])).collect::<Result<_>>()?,
            imports: imports.iter().map(Import::parse).collect::<Result<_>>()?,
            is_published: package["publish"].is_null(),
        })
    }
}

impl Import {
    fn parse(import: &Value) -> Result<Self> {
        let features = import["features"].as_array().context("no features")?;
        Ok(Self {
            name: text(&import["name"])?,
            dev: import["kind"].as_str() == Some("dev"),
            features: features.iter().map(text).collect::<Result<_>>()?,
        })
    }
}

/// What `cargo metadata` says of our crates.
pub(crate) fn metadata() -> Result<Value> {
    let output = cargo().args(["metadata", "--no-deps", "--format-version", "1", "--offline"]).output();
    let output = output.context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

/// Makes a command for the cargo that runs us.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().context("cargo metadata lacks a name")?.to_owned())
}

fn path(value: &Value) -> Result<PathBuf> {
    Ok(PathBuf::from(text(value)?))
}
