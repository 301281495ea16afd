//! Crates that must do without unsafe code say so where no line below can lift it.

use std::fs;

use anyhow::{Context as _, Result};

use super::source;
use crate::workspace::{Package, Workspace};

const FORBIDDEN_IN: &[&str] =
    &["shuntfs-wire", "shuntfs-pool", "shunt", "shunt-bench", "shuntfs-bench", "xtask"];

const ATTRIBUTE: &str = "#![forbid(unsafe_code)]";

/// Checks the library and the programs of one crate.
pub(crate) fn check(workspace: &Workspace, package: &Package) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    if !FORBIDDEN_IN.contains(&package.name.as_str()) {
        return Ok(faults);
    }
    let source = package.folder.join("src");
    for root in package.roots.iter().filter(|root| root.starts_with(&source)) {
        let text = fs::read_to_string(root).with_context(|| root.display().to_string())?;
        if !forbids(&text) {
            faults.push(format!("{}: lacks `{ATTRIBUTE}`", workspace.show(root)));
        }
    }
    Ok(faults)
}

fn forbids(text: &str) -> bool {
    source::code(text).lines().any(|line| line.trim() == ATTRIBUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attribute_must_be_code() {
        assert!(forbids("//! Docs.\n#![forbid(unsafe_code)]\nmod a;\n"));
        assert!(!forbids("//! #![forbid(unsafe_code)]\nmod a;\n"));
        assert!(!forbids("#![deny(unsafe_code)]\n"));
    }
}
