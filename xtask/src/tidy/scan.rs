//! Walks the workspace and applies every rule.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{
    dependencies, links, messages, modules, mounts, outline, prose, published, size, source, threats,
    unsafety, words,
};
use crate::workspace::{Workspace, metadata};

/// Folders that hold nothing of ours.
const SKIPPED: &[&str] = &[".git", "target", "corpus", "artifacts"];

/// Returns every breach of a rule.
pub(crate) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut sources = Vec::new();
    for path in files(&workspace.root)? {
        let name = workspace.show(&path).to_string();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => {
                let text = read(&path)?;
                faults.extend(rust(&name, &text));
                sources.extend(is_of_the_program(&name).then_some(text));
            }
            Some("md") => {
                let text = read(&path)?;
                faults.extend(links::check(&path, &name, &text));
                faults.extend(links::missing_sources(&workspace.root, &name, &text));
                faults.extend(prose::check(&name, &text));
            }
            Some("toml") => faults.extend(words::unfinished(&name, &read(&path)?)),
            _ => {}
        }
    }
    for package in &workspace.packages {
        faults.extend(modules::check(workspace, package)?);
        faults.extend(unsafety::check(workspace, package)?);
        faults.extend(lints(workspace, &package.folder)?);
    }
    let manifest = read(&workspace.root.join("Cargo.toml"))?;
    let docs = fs::read_to_string(workspace.root.join("docs/dependencies.md")).unwrap_or_default();
    faults.extend(dependencies::check(&manifest, &docs)?);
    faults.extend(threats::check(&workspace.root));
    faults.extend(links::unlisted(&workspace.root));
    faults.extend(messages::check(&workspace.root, &sources));
    faults.extend(published::check(&metadata()?)?);
    Ok(faults)
}

/// Whether a user may meet what this file says.
fn is_of_the_program(name: &str) -> bool {
    let is_test = name.contains("/tests/") || name.ends_with("/tests.rs") || name.ends_with("/test.rs");
    name.starts_with("crates/") && name.contains("/src/") && !is_test && !name.contains("/shuntfs-testkit/")
}

fn rust(name: &str, text: &str) -> Vec<String> {
    let code = source::code(text);
    let mut faults = words::check(name, text, &code);
    faults.extend(size::check(name, &code));
    faults.extend(outline::check(name, &code));
    faults.extend(mounts::check(name, &code));
    faults.extend(prose::check(name, text));
    faults
}

/// Every crate obeys the workspace's lints.
fn lints(workspace: &Workspace, folder: &Path) -> Result<Option<String>> {
    let path = folder.join("Cargo.toml");
    let manifest: toml::Table = read(&path)?.parse().with_context(|| path.display().to_string())?;
    let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
    let missing = inherits != Some(true);
    Ok(missing.then(|| format!("{}: does not have `[lints] workspace = true`", workspace.show(&path))))
}

fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
            if kind.is_dir() && !skipped {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}
