//! Every crate that is not ours is in `docs/dependencies.md`, with what it is for.

use anyhow::{Context as _, Result};

/// Compares the workspace's manifest with the document.
pub(crate) fn check(manifest: &str, docs: &str) -> Result<Vec<String>> {
    let manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
    let dependencies =
        manifest.get("workspace").and_then(|workspace| workspace.get("dependencies")?.as_table());
    let dependencies = dependencies.context("Cargo.toml has no [workspace.dependencies]")?;
    let foreign = dependencies.iter().filter(|(_, value)| value.get("path").is_none());
    let unnamed = foreign.filter(|(name, _)| !docs.contains(&format!("`{name}`")));
    Ok(unnamed.map(|(name, _)| format!("docs/dependencies.md: does not say what `{name}` is for")).collect())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn an_unexplained_crate_is_named() {
        let manifest = "[workspace.dependencies]\nours = { path = \"ours\" }\nserde = \"1\"\nlibc = { version = \"1\" }\n";
        let faults = check(manifest, "| `serde` | JSON |").unwrap();
        assert_eq!(faults, ["docs/dependencies.md: does not say what `libc` is for"]);
    }
}
