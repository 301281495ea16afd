//! Packages made for a test below the target folder, whose sources lie in cargo's copy of the registry.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use shuntfs_testkit::program::run;
use shuntfs_testkit::skipped;

/// A package that is made for a test.
#[derive(Clone, Debug)]
pub(crate) struct Package<'a> {
    pub(crate) name: &'a str,
    /// What stands in its manifest after the name.
    pub(crate) manifest: &'a str,
    pub(crate) targets: Vec<Target<'a>>,
    /// Files of its own, by path.
    pub(crate) files: &'a [(&'a str, &'a str)],
}

/// What is built of a package.
#[derive(Clone, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) name: String,
    /// `bin`, `example` or `test`.
    pub(crate) kind: &'a str,
    /// The published package that its source is a part of; `None` for the made one.
    pub(crate) source: Option<&'a str>,
    pub(crate) path: String,
}

/// A package that was built.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    folder: PathBuf,
}

const FETCH_LIMIT: Duration = Duration::from_secs(120);
const BUILD_LIMIT: Duration = Duration::from_secs(1200);

/// Builds a package; `None`, and says why, where its dependencies cannot be downloaded.
pub(crate) fn build(package: &Package<'_>, words: &[&str]) -> Result<Option<Built>> {
    // Tests of one binary must not write one package at once.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = home()?.join(package.name);
    fs::create_dir_all(folder.join("src"))?;
    for (path, text) in package.files.iter().chain(&[("src/lib.rs", "//! Made by a test.\n")]) {
        put(&folder.join(path), text)?;
    }
    let manifest = folder.join("Cargo.toml");
    let head = format!("[package]\nname = \"{}\"\n{}\n", package.name, package.manifest);
    // The sources come with the dependencies: first the manifest without targets.
    if !fs::read_to_string(&manifest).is_ok_and(|before| before.starts_with(&head)) {
        put(&manifest, &head)?;
    }
    let Some(metadata) = metadata(&folder)? else { return Ok(None) };
    let mut text = head;
    for Target { name, kind, source, path } in &package.targets {
        let path = source.map_or(Ok(PathBuf::new()), |source| folder_of(&metadata, source))?.join(path);
        write!(text, "[[{kind}]]\nname = \"{name}\"\npath = {path:?}\n")?;
    }
    put(&manifest, &text)?;
    let mut command = cargo(&folder)?;
    let built = run(command.args(words), BUILD_LIMIT)?;
    built.ok(&format!("building {}", package.name))?;
    Ok(Some(Built { folder }))
}

impl Built {
    /// A program of the package.
    pub(crate) fn program(&self, kind: &str, name: &str) -> Result<PathBuf> {
        let folder = home()?.join("target/debug");
        let path = if kind == "example" { folder.join("examples").join(name) } else { folder.join(name) };
        if path.is_file() { Ok(path) } else { bail!("{} was not built", path.display()) }
    }

    /// An optimised program of the package.
    pub(crate) fn released(&self, name: &str) -> Result<PathBuf> {
        let path = home()?.join("target/release").join(name);
        if path.is_file() { Ok(path) } else { bail!("{} was not built", path.display()) }
    }

    /// A cargo command in the package.
    pub(crate) fn cargo(&self) -> Result<Command> {
        cargo(&self.folder)
    }
}

/// Where the crates of this project are.
pub(crate) fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// The one line that is changed.
pub(crate) fn fuser_as_ours() -> String {
    format!("fuser = {{ package = \"shuntfs-fuser\", path = {:?} }}", crates().join("shuntfs-fuser"))
}

/// Where the packages and what is built of them are: below the target folder.
pub(crate) fn home() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().find(|folder| folder.join("deps").is_dir()).and_then(Path::parent);
    Ok(target.context("the tests are in a target folder")?.join("fuser-peers"))
}

/// Downloads what a package needs, and what it may need; tells what that is.
fn metadata(folder: &Path) -> Result<Option<Value>> {
    let mut command = cargo(folder)?;
    let ran = run(command.args(["metadata", "--format-version", "1", "--all-features"]), FETCH_LIMIT);
    match ran.map_err(|error| error.to_string()) {
        Ok(ran) if ran.status.success() => Ok(Some(serde_json::from_str(&ran.stdout)?)),
        Ok(ran) => no_download(&ran.stderr),
        Err(error) => no_download(&error),
    }
}

/// Where a published package lies.
fn folder_of(metadata: &Value, wanted: &str) -> Result<PathBuf> {
    let packages = metadata["packages"].as_array().context("packages")?;
    let found = packages.iter().find(|package| {
        package["name"] == wanted
            && package["source"].as_str().is_some_and(|source| source.starts_with("registry"))
    });
    let manifest = found.and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.with_context(|| format!("{wanted} is not among the dependencies"))?;
    Ok(Path::new(manifest).parent().map(Path::to_owned).unwrap_or_default())
}

/// Without a registry there is nothing to be tested; whatever else is wrong is a failure.
fn no_download(why: &str) -> Result<Option<Value>> {
    let signs =
        ["download", "network", "registry", "offline", "resolve host", "spurious", "did not end inside"];
    if signs.iter().any(|sign| why.contains(sign)) {
        skipped(&format!("what was written for fuser cannot be downloaded: {}", why.trim()));
        return Ok(None);
    }
    bail!("cargo metadata: {why}")
}

fn cargo(folder: &Path) -> Result<Command> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What this test was built with is not for them.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text == "CARGO_MANIFEST_DIR" || text == "RUSTFLAGS" {
            command.env_remove(&name);
        }
    }
    command.current_dir(folder).env("CARGO_TARGET_DIR", home()?.join("target"));
    Ok(command)
}

/// Writes a file where it is not the same already, so that nothing is built anew.
fn put(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| path.display().to_string())
}
