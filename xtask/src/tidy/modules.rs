//! Every `.rs` file is part of the module tree: a file outside of it is neither compiled nor tested.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::source;
use crate::workspace::{Package, Workspace};

/// Names every file of a crate that nothing declares.
pub(crate) fn check(workspace: &Workspace, package: &Package) -> Result<Vec<String>> {
    let mut reached = HashSet::new();
    for root in &package.roots {
        reach(root, true, &mut reached)?;
    }
    let mut all = Vec::new();
    collect(&package.folder, &mut all)?;
    all.sort();
    let dead = all.iter().filter(|path| !reached.contains(*path));
    Ok(dead.map(|path| format!("{}: no module declares it", workspace.show(path))).collect())
}

/// Follows the declarations of a file; a root's children lie beside it.
fn reach(file: &Path, root: bool, reached: &mut HashSet<PathBuf>) -> Result<()> {
    if !reached.insert(file.to_path_buf()) {
        return Ok(());
    }
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let beside = file.parent().unwrap_or(Path::new("")).to_path_buf();
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let below = if root || stem == "mod" { beside.clone() } else { beside.join(stem) };
    for declared in declarations(&text) {
        let candidates = match declared {
            Declared::Named(name) => vec![below.join(format!("{name}.rs")), below.join(name).join("mod.rs")],
            Declared::At(path) => vec![beside.join(path)],
        };
        if let Some(child) = candidates.iter().find(|path| path.is_file()) {
            reach(&normal(child), false, reached)?;
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Declared {
    Named(String),
    At(String),
}

/// Finds `mod a;`, `#[path = ".."] mod a;` and `include!("..")`.
fn declarations(text: &str) -> Vec<Declared> {
    let code = source::code(text);
    let mut path = None;
    let mut found = Vec::new();
    if code.contains("mod $") {
        // A macro declares a list of modules: every word may be one, and those that are no file lead nowhere.
        let words = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        found.extend(words.filter(|word| !word.is_empty()).map(|word| Declared::Named(word.to_owned())));
    }
    for (line, raw) in code.lines().zip(text.lines()) {
        let line = line.trim();
        if line.starts_with("#[path") || line.contains("include!(") {
            path = raw.split('"').nth(1).map(str::to_owned);
        }
        if line.contains("include!(") {
            found.extend(path.take().map(Declared::At));
            continue;
        }
        let declared = line.strip_suffix(';').and_then(|item| item.rsplit_once("mod "));
        if let Some((before, name)) = declared
            && (before.is_empty() || before.ends_with(' '))
        {
            found.push(path.take().map_or_else(|| Declared::Named(name.trim().to_owned()), Declared::At));
        }
    }
    found
}

/// Takes `..` out of a path that a `#[path]` made.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        if part == std::path::Component::ParentDir {
            out.pop();
        } else {
            out.push(part);
        }
    }
    out
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target" && name != "fixtures") {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_path_buf();
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let roots = vec![root.join("src/lib.rs")];
        let package = Package {
            name: "x".to_owned(),
            folder: root.clone(),
            roots,
            imports: Vec::new(),
            is_published: true,
        };
        let workspace =
            Workspace { root, target: PathBuf::new(), version: String::new(), packages: Vec::new() };
        check(&workspace, &package).unwrap()
    }

    #[test]
    fn a_file_that_nothing_declares_is_named() {
        let faults = dead(&[("src/lib.rs", "mod a;\n// mod b;\n"), ("src/a.rs", ""), ("src/b.rs", "")]);
        assert_eq!(faults, ["src/b.rs: no module declares it"]);
    }

    #[test]
    fn declared_files_of_every_kind_are_reached() {
        let faults = dead(&[
            (
                "src/lib.rs",
                "pub mod a;\npub(crate) mod b;\n#[path = \"odd.rs\"]\nmod c;\ninclude!(\"in.rs\");\n",
            ),
            ("src/a/many.rs", "macro_rules! all { ($($name:ident)*) => { $(mod $name;)* } }\nall! { one }\n"),
            ("src/a/many/one.rs", ""),
            ("src/a.rs", "mod many;\n#[cfg(test)]\nmod tests;\n"),
            ("src/a/tests.rs", ""),
            ("src/b/mod.rs", "mod d;"),
            ("src/b/d.rs", ""),
            ("src/odd.rs", ""),
            ("src/in.rs", ""),
        ]);
        assert_eq!(faults, Vec::<String>::new());
    }
}
