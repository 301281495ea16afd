//! What the crates are that we build upon: their licences, advisories about them, where they come from, and a list of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::tools;
use crate::workspace::Workspace;

/// How long the database of advisories may take to arrive.
const FETCH_LIMIT: Duration = Duration::from_mins(2);

/// The name of the bill of materials, in each crate's folder while it is made: `cargo cyclonedx` writes it there.
const BILL: &str = "shuntfs.cdx";

/// Checks the dependencies, and writes the bill of materials to the target folder.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    crate::report("dependencies", &check(workspace)?)
}

/// The same as a check of `cargo xtask test`: returns what is wrong. `deny.toml` says what is allowed.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut deny = tools::DENY.command(workspace)?;
    if !succeeds(deny.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))? {
        faults.push("cargo deny finds faults in licences, sources or banned crates".to_owned());
    }
    let fetched = tools::DENY.command_within(workspace, FETCH_LIMIT)?.args(["fetch", "db"]).output()?;
    if !fetched.status.success() {
        println!(
            "SKIPPED: advisories about dependencies: the database cannot be fetched: {}",
            reason(&fetched)
        );
    } else if !succeeds(tools::DENY.command(workspace)?.args(["check", "advisories"]))? {
        faults.push("cargo deny knows advisories about dependencies".to_owned());
    }
    for (_, bill) in bills_of_materials(workspace)? {
        println!("bill of materials: {}", workspace.show(&bill));
    }
    Ok(faults)
}

/// Programs that packages hold, and what their bills of materials are called.
const BILLS: [(&str, &str); 2] = [("shunt", "shuntfs"), ("shunt-bench", "shunt-bench")];

/// Writes what the programs are made of, in CycloneDX's format; returns what each bill is called, and where it is.
pub(crate) fn bills_of_materials(workspace: &Workspace) -> Result<Vec<(&'static str, PathBuf)>> {
    let mut command = tools::CYCLONEDX.command(workspace)?;
    command.args(["--quiet", "--format", "json", "--spec-version", "1.5", "--no-build-deps"]);
    let made = succeeds(command.args(["--override-filename", BILL]));
    let mut bills = Vec::new();
    // It writes one for each crate of the workspace; those of the programs have all that packages hold.
    for package in &workspace.packages {
        let bill = package.folder.join(format!("{BILL}.json"));
        if let Some((_, name)) = BILLS.iter().find(|(program, _)| *program == package.name && bill.exists()) {
            let out = workspace.target.join(format!("{name}.cdx.json"));
            fs::copy(&bill, &out).with_context(|| bill.display().to_string())?;
            bills.push((*name, out));
        }
        if bill.exists() {
            fs::remove_file(&bill).with_context(|| bill.display().to_string())?;
        }
    }
    ensure!(made? && bills.len() == BILLS.len(), "cargo cyclonedx failed");
    for (_, bill) in &bills {
        let crates = crates_named(bill)?;
        ensure!(crates.iter().any(|name| name == "clap"), "{}: clap is not in it", bill.display());
    }
    Ok(bills)
}

fn crates_named(bill: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(bill).with_context(|| bill.display().to_string())?;
    let bill: Value = serde_json::from_str(&text).context("the bill of materials")?;
    ensure!(bill["bomFormat"] == "CycloneDX", "the bill of materials is none of CycloneDX");
    let components = bill["components"].as_array().context("the bill of materials names no components")?;
    Ok(components.iter().filter_map(|component| Some(component["name"].as_str()?.to_owned())).collect())
}

fn succeeds(command: &mut Command) -> Result<bool> {
    Ok(command.status().context("cannot start cargo")?.success())
}

/// The innermost cause that a program told before it gave up.
fn reason(output: &std::process::Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.map_or_else(|| format!("it ends with {}", output.status), str::to_owned)
}
