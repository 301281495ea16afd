//! The programs as packages hold them: stripped, with their debug information in files beside them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace::{Workspace, cargo};

/// The profile of Cargo.toml; its folder below the target folder has the same name.
pub(crate) const PROFILE: &str = "dist";

/// What packages hold.
pub(crate) const PROGRAMS: [&str; 2] = ["shunt", "shunt-bench"];

/// Where a program has become too large to be welcome in packages.
const STRIPPED_MAX: u64 = 15_300_000;

/// How the program finds the C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Linking {
    /// That of the machine: for packages, which depend on it.
    Dynamic,
    /// In the program: for machines of any distribution.
    Static,
}

/// A program that was built.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Without symbols and debug information.
    pub(crate) stripped: PathBuf,
    /// Symbols and debug information.
    pub(crate) debug: PathBuf,
    /// What ties the two together, in hexadecimal: debuggers look for the debug information by it.
    pub(crate) build_id: String,
    /// The processor and system it is for, as in names of files: `x86_64-linux`.
    pub(crate) platform: String,
}

impl Program {
    /// Builds each of [`PROGRAMS`] and takes it apart.
    ///
    /// # Errors
    /// Where something fails, and where a program is larger than packages should be or not linked as it was to be.
    pub(crate) fn build_all(workspace: &Workspace, linking: Linking) -> Result<Vec<Self>> {
        // One after the other: together, each would get the features that the other asks of their dependencies.
        PROGRAMS.iter().map(|name| Self::build(workspace, name, linking)).collect()
    }

    fn build(workspace: &Workspace, name: &'static str, linking: Linking) -> Result<Self> {
        let host = host()?;
        let mut command = cargo();
        command.args(["build", "--locked", "--profile", PROFILE, "-p", name]);
        let mut built = workspace.target.clone();
        if linking == Linking::Static {
            let target = static_target(&host)?;
            // With a target that is named, cargo keeps these flags from build scripts and macros.
            command.arg("--target").arg(&target).env("RUSTFLAGS", with_static_libc());
            built.push(target);
        }
        built.extend([PROFILE, name]);
        run(command.current_dir(&workspace.root))?;
        let (debug, stripped) = (built.with_extension("debug"), built.with_extension("stripped"));
        run(Command::new("objcopy")
            .args(["--only-keep-debug", "--compress-debug-sections=zlib"])
            .arg(&built)
            .arg(&debug))?;
        run(Command::new("objcopy").arg("--strip-all").arg(&built).arg(&stripped))?;
        let platform = format!("{}-linux", host.split('-').next().unwrap_or("unknown"));
        let program = Self { name, build_id: build_id(&built)?, stripped, debug, platform };
        program.check(linking, &built)?;
        Ok(program)
    }

    fn check(&self, linking: Linking, built: &Path) -> Result<()> {
        let (before, after) = (fs::metadata(built)?.len(), fs::metadata(&self.stripped)?.len());
        println!("{} ({linking:?}): {after} bytes, {before} with debug information", self.name);
        ensure!(after <= STRIPPED_MAX, "{} has {after} bytes, more than {STRIPPED_MAX}", self.name);
        let needs_libraries = text(Command::new("readelf").arg("--dynamic").arg(built))?.contains("(NEEDED)");
        ensure!(needs_libraries == (linking == Linking::Dynamic), "{} is not {linking:?}", built.display());
        Ok(())
    }
}

/// The target of the program that brings its C library: musl where Rust has it here, else the host's own.
fn static_target(host: &str) -> Result<String> {
    let musl = host.replace("-gnu", "-musl");
    let folder = text(Command::new("rustc").args(["--print", "target-libdir", "--target", &musl]))?;
    Ok(if Path::new(folder.trim()).exists() { musl } else { host.to_owned() })
}

fn with_static_libc() -> OsString {
    let mut flags = std::env::var_os("RUSTFLAGS").unwrap_or_default();
    flags.push(" -C target-feature=+crt-static");
    flags
}

fn host() -> Result<String> {
    let said = text(Command::new("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_owned())
}

fn build_id(program: &Path) -> Result<String> {
    let notes = text(Command::new("readelf").arg("--notes").arg(program))?;
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    let id = id.with_context(|| format!("{} has no build ID", program.display()))?;
    ensure!(id.len() > 2, "a build ID of {} digits", id.len());
    Ok(id.to_owned())
}

/// Runs a command that must succeed.
pub(super) fn run(command: &mut Command) -> Result<()> {
    let status =
        command.status().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}

/// Runs a command that must succeed, and returns what it prints.
pub(super) fn text(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} prints what is not text"))
}
