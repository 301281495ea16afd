//! Adds a run, and writes the page and its plots.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::history::History;
use super::page;
use crate::html;
use crate::report::Run;

/// Adds a run to the history and writes the page anew.
///
/// # Errors
/// When a file cannot be read or written, or something in the history is no run.
pub(crate) fn update(page: &Path, run: &Run) -> Result<()> {
    let folder = page.with_extension("");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    History::add(&folder, run)?;
    let history = History::read(&folder)?;
    let newest = history.newest().context("there is no run")?;
    remove_plots(&folder)?;
    let plots = html::plots(&newest)?;
    for plot in &plots {
        write(&folder.join(&plot.file), &plot.svg)?;
    }
    let old =
        if page.exists() { fs::read_to_string(page).context("cannot read the page")? } else { String::new() };
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    write(
        page,
        &page::write(&history, &newest, &page::Beside { folder: &name, plots: &plots }, page::by_hand(&old)),
    )
}

/// A plot that is not drawn any more shall not stay.
fn remove_plots(folder: &Path) -> Result<()> {
    for path in files(folder, "svg")? {
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the files with an extension, in the order of their names.
pub(super) fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    Ok(paths)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_page_has_its_newest_run_its_history_and_what_is_written_by_hand() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("benchmarks.md");
        let mut first = sample::run();
        first.started = "2026-01-01T00:00:00Z".to_owned();
        update(&page, &first).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(!text.contains("2025"), "{text}");
        fs::write(&page, text + "\n## By hand\n\nStays.\n").unwrap();
        let mut second = sample::run();
        second.started = "2026-02-02T00:00:00Z".to_owned();
        second.tables[0].rows[0].cells.get_mut("passthrough").unwrap().samples = vec![50.0];
        second.settle();
        update(&page, &second).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.contains("| read 4k | 100 ops/s | 0.70 | 0.50 |"), "the newest: {text}");
        assert!(text.contains("| read 4k | passthrough | 1.00 | **0.50** |"), "the history: {text}");
        assert!(text.ends_with("\n## By hand\n\nStays.\n"), "{text}");
        assert_eq!(text.matches("## By hand").count(), 1, "{text}");
        let slower = text.find("What is slower").unwrap();
        assert!(slower < text.find("## `passthrough`").unwrap(), "{text}");
        assert_eq!(files(&page.with_extension(""), "json").unwrap().len(), 2);
    }

    #[test]
    fn every_plot_of_the_page_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("benchmarks.md");
        let stale = folder.path().join("benchmarks").join("stale.svg");
        fs::create_dir(stale.parent().unwrap()).unwrap();
        fs::write(&stale, "").unwrap();
        update(&page, &sample::run()).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        let links: Vec<&str> = text
            .split("](benchmarks/")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .filter(|name| !name.is_empty())
            .collect();
        assert!(!links.is_empty());
        assert!(links.iter().all(|name| page.with_extension("").join(name).is_file()), "{links:?}");
        assert!(!stale.exists());
    }

    #[test]
    fn what_is_no_run_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("benchmarks.md");
        fs::create_dir(page.with_extension("")).unwrap();
        fs::write(folder.path().join("benchmarks").join("x.json"), "{}").unwrap();
        let error = format!("{:#}", update(&page, &sample::run()).unwrap_err());
        assert!(error.contains("x.json"), "{error}");
    }
}
