//! The web site: the documents as mdBook shows them. They are read in the repository too, so they stay where they are
//! and link to each other by their places there; the site has the same folders.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::tidy::links;
use crate::tools;
use crate::workspace::Workspace;

/// The table of contents, whose links are relative to its folder.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Builds the site in `target/site/book`, and returns links of it that lead nowhere.
pub(crate) fn build(workspace: &Workspace) -> Result<Vec<String>> {
    let site = workspace.target.join("site");
    if site.exists() {
        fs::remove_dir_all(&site).with_context(|| site.display().to_string())?;
    }
    let contents = read(&workspace.root.join(CONTENTS))?;
    write(&site.join("src/SUMMARY.md"), &indexed(&rebased(&contents)))?;
    for file in files(&workspace.root, &contents)? {
        let from = workspace.root.join(&file);
        if file.extension().is_some_and(|extension| extension == "md") {
            let to = indexed(&file.to_string_lossy());
            write(&site.join("src").join(to), &indexed(&read(&from)?))?;
        } else {
            let to = site.join("src").join(&file);
            create_parent(&to)?;
            fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        }
    }
    for file in ["book.toml", "site.css"] {
        write(&site.join(file), &read(&workspace.root.join("xtask").join(file))?)?;
    }
    let status = tools::MDBOOK.command(workspace)?.arg("build").arg(&site).status().context("mdbook")?;
    ensure!(status.success(), "mdbook build failed");
    let book = site.join("book");
    println!("the site: {}", workspace.show(&book.join("index.html")));
    dead_links(&book)
}

/// The table of contents with links that are relative to the top.
fn rebased(contents: &str) -> String {
    let mut out = String::with_capacity(contents.len());
    let mut parts = contents.split("](");
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push_str("](");
        let (target, rest) = part.split_once(')').unwrap_or((part, ""));
        out.push_str(&normal(&Path::new("docs").join(target)).to_string_lossy());
        out.push(')');
        out.push_str(rest);
    }
    out
}

/// A text, or a path, with the name that mdBook gives a README: it renames the page, but not the links to it.
fn indexed(text: &str) -> String {
    let mut text =
        text.strip_suffix("README.md").map_or_else(|| text.to_owned(), |path| format!("{path}index.md"));
    for end in [')', '#'] {
        text = text.replace(&format!("README.md{end}"), &format!("index.md{end}"));
    }
    text
}

/// The pages, and what they link to that is no page.
fn files(root: &Path, contents: &str) -> Result<BTreeSet<PathBuf>> {
    let of = |page: &Path, text: &str| -> Vec<PathBuf> {
        let folder = page.parent().unwrap_or(Path::new(""));
        links::files(text).iter().map(|target| normal(&folder.join(target))).collect()
    };
    let mut found: BTreeSet<PathBuf> = of(Path::new(CONTENTS), contents).into_iter().collect();
    let pages: Vec<PathBuf> = found.iter().cloned().collect();
    for page in pages {
        found.extend(of(&page, &read(&root.join(&page))?));
    }
    // What does not exist is for `cargo xtask tidy`; a folder has no page.
    found.retain(|file| root.join(file).is_file());
    Ok(found)
}

/// Links of the finished pages to files that the site lacks, or to places that a page lacks.
fn dead_links(book: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut folders = vec![book.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let name = path.strip_prefix(book).unwrap_or(&path).display().to_string();
                faults.extend(
                    dead_links_of(&path, &read(&path)?).into_iter().map(|it| format!("{name}: {it}")),
                );
            }
        }
    }
    faults.sort();
    Ok(faults)
}

fn dead_links_of(page: &Path, html: &str) -> Vec<String> {
    // The page for what is not found stands anywhere; its links are absolute.
    if page.file_name().is_some_and(|name| name == "404.html") {
        return Vec::new();
    }
    let folder = page.parent().unwrap_or(Path::new(""));
    let mut faults = BTreeSet::new();
    for attribute in [" href=\"", " src=\""] {
        for rest in html.split(attribute).skip(1) {
            let target = rest.split('"').next().unwrap_or_default();
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            if target.contains(':') || target.starts_with("//") {
                continue;
            }
            let path = if file.is_empty() { page.to_path_buf() } else { folder.join(file) };
            let there = if place.is_empty() {
                path.exists()
            } else {
                fs::read_to_string(&path).is_ok_and(|html| html.contains(&format!("id=\"{place}\"")))
            };
            if !there {
                faults.insert(format!("`{target}` leads nowhere"));
            }
        }
    }
    faults.into_iter().collect()
}

/// Without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn write(path: &Path, text: &str) -> Result<()> {
    create_parent(path)?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

fn create_parent(path: &Path) -> Result<()> {
    let folder = path.parent().context("no folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_are_relative_to_the_top() {
        assert_eq!(rebased("- [a](a.md)\n- [b](../B.md) c\n"), "- [a](docs/a.md)\n- [b](B.md) c\n");
    }

    #[test]
    fn a_readme_is_the_index_of_its_folder() {
        assert_eq!(indexed("a/README.md"), "a/index.md");
        assert_eq!(
            indexed("[a](README.md) [b](../README.md#c) README.md is"),
            "[a](index.md) [b](../index.md#c) README.md is"
        );
    }

    #[test]
    fn pages_and_what_they_link_to_are_found() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| write(&root.path().join(name), text).unwrap();
        put("docs/a.md", "[x](../x.rs#L3) ![y](y.svg) [gone](gone.md) [z](https://example.org/z)");
        put("x.rs", "");
        put("docs/y.svg", "");
        put("docs/unlinked.md", "");
        let found = files(root.path(), "[a](a.md)").unwrap();
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, ["docs/a.md", "docs/y.svg", "x.rs"]);
    }

    #[test]
    fn a_dead_link_of_a_page_is_named() {
        let book = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| write(&book.path().join(name), text).unwrap();
        put("a/index.html", "<a href=\"../b.html#here\"><a href=\"../b.html#gone\"><img src=\"c.svg\">");
        put("b.html", "<h1 id=\"here\"><a href=\"https://example.org/\"><a href=\"#here\">");
        assert_eq!(
            dead_links(book.path()).unwrap(),
            ["a/index.html: `../b.html#gone` leads nowhere", "a/index.html: `c.svg` leads nowhere"]
        );
    }
}
