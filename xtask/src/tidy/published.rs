//! Every crate is ready to be published, or says that it is not to be.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Crates for tests and chores. All others can be published: what one of them needs must be there, too.
const INTERNAL: &[&str] = &["shuntfs-testkit", "shuntfs-tests", "xtask"];

/// What crates.io demands, and what a reader there is to see.
const TEXTS: &[&str] = &["description", "license", "readme", "documentation", "rust_version"];
const LISTS: &[&str] = &["keywords", "categories"];

/// Looks at the packages of `cargo metadata`.
pub(super) fn check(metadata: &Value) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    Ok(packages.iter().flat_map(faults_of).collect())
}

fn faults_of(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let is_internal = INTERNAL.contains(&name);
    let is_published = package["publish"].is_null();
    if is_internal || !is_published {
        let wrong = is_internal == is_published;
        let fault = format!("{name}: `publish` and the list in xtask/src/tidy/published.rs do not agree");
        return wrong.then_some(fault).into_iter().collect();
    }
    let no_text = TEXTS.iter().filter(|field| package[**field].as_str().is_none_or(str::is_empty));
    let no_list =
        LISTS.iter().filter(|field| !(1..=5).contains(&package[**field].as_array().map_or(0, Vec::len)));
    let missing = no_text.chain(no_list).map(|field| format!("{name}: its manifest lacks `{field}`"));
    let imports = package["dependencies"].as_array().into_iter().flatten();
    missing.chain(imports.filter_map(|import| fault_of(name, import))).collect()
}

/// A dependency of a published crate is asked for by version; those of tests alone are left out where they have none.
fn fault_of(name: &str, import: &Value) -> Option<String> {
    let (to, dev) = (import["name"].as_str()?, import["kind"].as_str() == Some("dev"));
    let is_ours = import["path"].is_string();
    if is_ours && !dev && INTERNAL.contains(&to) {
        return Some(format!("{name} -> {to}, which is not published"));
    }
    let has_version = import["req"].as_str().is_some_and(|req| req != "*");
    let may_lack = dev && INTERNAL.contains(&to);
    (!has_version && !may_lack).then(|| format!("{name} -> {to}: a version is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut package = json!({
            "name": name, "publish": null, "description": "a", "license": "b", "readme": "c", "documentation": "f", "rust_version": "1.95",
            "keywords": ["d"], "categories": ["e"],
            "dependencies": [
                {"name": "shuntfs-wire", "req": "^0.1.0", "kind": null, "path": "/x"},
                {"name": "serde", "req": "^1", "kind": null},
                {"name": "shuntfs-testkit", "req": "*", "kind": "dev", "path": "/y"},
            ],
        });
        change(&mut package);
        faults_of(&package)
    }

    #[test]
    fn what_is_complete_passes() {
        assert_eq!(package("shuntfs", |_| {}), Vec::<String>::new());
        assert_eq!(package("xtask", |package| package["publish"] = json!([])), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_is_named() {
        for field in TEXTS.iter().chain(LISTS) {
            let faults = package("shuntfs", |package| package[*field] = Value::Null);
            assert_eq!(faults, [format!("shuntfs: its manifest lacks `{field}`")]);
        }
        for (index, req, fault) in [
            (0, "*", "shuntfs -> shuntfs-wire: a version is missing"),
            (1, "*", "shuntfs -> serde: a version is missing"),
        ] {
            let faults = package("shuntfs", |package| package["dependencies"][index]["req"] = json!(req));
            assert_eq!(faults, [fault]);
        }
        let faults = package("shuntfs", |package| package["dependencies"][2]["kind"] = Value::Null);
        assert_eq!(faults, ["shuntfs -> shuntfs-testkit, which is not published"]);
        for (name, publish) in [("shuntfs", json!([])), ("xtask", Value::Null)] {
            assert_eq!(package(name, |package| package["publish"] = publish).len(), 1);
        }
    }
}
