//! Who may import whom: the arrows of ARCHITECTURE.md, and nothing else.

use std::fs;

use anyhow::{Context as _, Result};

use crate::workspace::{Import, Package, Workspace};

/// Left may import right.
const ARROWS: &[(&str, &[&str])] = &[
    ("shuntfs-wire", &[]),
    ("shuntfs-sys", &[]),
    ("shuntfs-verity", &[]),
    ("shuntfs-seal", &["shuntfs-verity", "shuntfs-sys"]),
    ("shuntfs-runtime", &["shuntfs-sys"]),
    ("shuntfs-transport", &["shuntfs-runtime", "shuntfs-wire", "shuntfs-sys"]),
    ("shuntfs", &["shuntfs-transport", "shuntfs-runtime", "shuntfs-wire", "shuntfs-sys"]),
    ("shuntfs-fake", &["shuntfs", "shuntfs-wire", "shuntfs-sys"]),
    ("shuntfs-image", &["shuntfs", "shuntfs-sys"]),
    ("shuntfs-keeper", &["shuntfs", "shuntfs-sys"]),
    ("shuntfs-redact", &[]),
    ("shuntfs-rules", &[]),
    ("shuntfs-fuser", &["shuntfs-transport", "shuntfs-wire", "shuntfs-sys"]),
    ("shuntfs-verified", &["shuntfs", "shuntfs-seal", "shuntfs-verity", "shuntfs-sys"]),
    (
        "shuntfs-pool",
        &[
            "shuntfs",
            "shuntfs-rules",
            "shuntfs-redact",
            "shuntfs-verified",
            "shuntfs-seal",
            "shuntfs-verity",
            "shuntfs-sys",
        ],
    ),
    // The command line asks the kernel what it offers.
    (
        "shunt",
        &[
            "shuntfs-pool",
            "shuntfs-rules",
            "shuntfs-image",
            "shuntfs-keeper",
            "shuntfs-seal",
            "shuntfs-verified",
            "shuntfs-verity",
            "shuntfs",
            "shuntfs-sys",
        ],
    ),
    // It brings a file system of its own to measure on.
    ("shunt-bench", &["shuntfs-bench", "shuntfs"]),
    // Peers, and shunt itself, are run as programs and never linked.
    ("shuntfs-bench", &[]),
    ("xtask", &[]),
];

/// Crates that exist for tests and may import everything.
const TEST_CRATES: &[&str] = &["shuntfs-testkit", "shuntfs-tests"];

/// What every crate's own tests may import besides.
const TEST_KITS: &[&str] = &["shuntfs-testkit", "shuntfs-fake"];

/// Features that only tests may turn on: cargo turns them on for every crate that it builds in the same run.
const TEST_FEATURES: &[&str] = &["faults"];

/// Crates through which system calls are made, and who may import them: `shuntfs-sys`, and programs beside the stack.
const SYSTEM_CALLS: &[&str] = &["libc", "nix", "rustix", "io-uring"];
const SYSTEM_CALLERS: &[&str] = &["shuntfs-sys", "shuntfs-bench", "shuntfs-testkit", "shuntfs-tests"];

/// Libraries that would do what this project exists to do.
const FUSE_LIBRARIES: &[&str] = &[
    "fuser",
    "fuse",
    "fuse3",
    "fuse-rs",
    "fuse_mt",
    "fuse-backend-rs",
    "fuse-abi",
    "fuse-sys",
    "libfuse-sys",
    "polyfuse",
];

/// Returns every arrow that is not allowed.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut faults: Vec<String> = workspace.packages.iter().flat_map(faults_of).collect();
    let lock = workspace.root.join("Cargo.lock");
    faults.extend(linked_fuse_libraries(&fs::read_to_string(&lock).context("Cargo.lock")?));
    Ok(faults)
}

fn faults_of(package: &Package) -> Vec<String> {
    if TEST_CRATES.contains(&package.name.as_str()) {
        return Vec::new();
    }
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
        return vec![format!("{} has no arrows: add it to the table in xtask/src/layers.rs", package.name)];
    };
    package.imports.iter().filter_map(|import| fault(package, import, allowed)).collect()
}

fn fault(package: &Package, import: &Import, allowed: &[&str]) -> Option<String> {
    let (from, to) = (package.name.as_str(), import.name.as_str());
    let of_tests = |feature: &&String| TEST_FEATURES.contains(&feature.as_str());
    if let Some(feature) = import.features.iter().find(of_tests).filter(|_| !import.dev) {
        return Some(format!("{from} -> {to} with the feature {feature}, which is for tests alone"));
    }
    if import.dev && TEST_KITS.contains(&to) {
        return None;
    }
    let own = to.starts_with("shunt");
    if own && !allowed.contains(&to) {
        let may = if allowed.is_empty() { "none of ours".to_owned() } else { allowed.join(", ") };
        return Some(format!("{from} -> {to} is no arrow of the design; {from} may import {may}"));
    }
    if SYSTEM_CALLS.contains(&to) && !import.dev && !SYSTEM_CALLERS.contains(&from) {
        return Some(format!("{from} -> {to}: system calls are made in shuntfs-sys alone"));
    }
    None
}

fn linked_fuse_libraries(lock: &str) -> Vec<String> {
    let names = lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let banned = names.filter(|name| FUSE_LIBRARIES.contains(name));
    banned.map(|name| format!("Cargo.lock has `{name}`: no FUSE library is linked here")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn package(name: &str, imports: &[(&str, bool)]) -> Package {
        let import =
            |&(name, dev): &(&str, bool)| Import { name: name.to_owned(), dev, features: Vec::new() };
        let imports = imports.iter().map(import).collect();
        Package {
            name: name.to_owned(),
            folder: PathBuf::new(),
            roots: Vec::new(),
            imports,
            is_published: true,
        }
    }

    #[test]
    fn arrows_of_the_design_pass() {
        let pool = package("shuntfs-pool", &[("shuntfs", false), ("shuntfs-sys", false), ("serde", false)]);
        assert_eq!(faults_of(&pool), Vec::<String>::new());
        let sys = package("shuntfs-sys", &[("rustix", false), ("shuntfs-testkit", true)]);
        assert_eq!(faults_of(&sys), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_upwards_is_named() {
        let faults = faults_of(&package("shuntfs-wire", &[("shuntfs-sys", false)]));
        assert_eq!(faults.len(), 1);
        assert!(faults[0].contains("shuntfs-wire -> shuntfs-sys"), "{faults:?}");
    }

    #[test]
    fn faults_are_for_tests_alone() {
        for (dev, faults) in [(true, 0), (false, 1)] {
            let mut pool = package("shuntfs-pool", &[("shuntfs-sys", dev)]);
            pool.imports[0].features.push("faults".to_owned());
            assert_eq!(faults_of(&pool).len(), faults);
        }
    }

    #[test]
    fn the_test_kit_is_for_tests_alone() {
        assert_eq!(faults_of(&package("shuntfs", &[("shuntfs-testkit", false)])).len(), 1);
        assert!(faults_of(&package("shuntfs", &[("shuntfs-testkit", true)])).is_empty());
    }

    #[test]
    fn a_dev_dependency_is_an_arrow_too() {
        assert_eq!(faults_of(&package("shuntfs", &[("shuntfs-pool", true)])).len(), 1);
    }

    #[test]
    fn system_calls_outside_of_sys_are_named() {
        let faults = faults_of(&package("shuntfs-pool", &[("libc", false)]));
        assert!(faults[0].contains("shuntfs-pool -> libc"), "{faults:?}");
    }

    #[test]
    fn an_unknown_crate_must_be_entered() {
        assert_eq!(faults_of(&package("shuntfs-new", &[])).len(), 1);
    }

    #[test]
    fn a_fuse_library_anywhere_below_is_found() {
        let lock = "[[package]]\nname = \"serde\"\n\n[[package]]\nname = \"fuser\"\n";
        assert_eq!(linked_fuse_libraries(lock).len(), 1);
    }
}
