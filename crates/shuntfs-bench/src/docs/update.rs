//! Adds a run, and writes the pages and their plots.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::history::History;
use super::page;
use crate::html;
use crate::report::Run;

/// Adds a run to the history, should it not be there yet, and writes both pages anew.
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
    let plots = html::plots(&newest);
    for plot in &plots {
        write(&folder.join(&plot.file), &plot.svg)?;
    }
    let full = full_of(page);
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = page::Beside { folder: &name(&folder), full: &name(&full), plots: &plots };
    write(page, &page::short(&history, &newest, &beside, page::by_hand(&read(page)?)))?;
    write(&full, &page::full(&history, &newest, &beside, page::by_hand(&read(&full)?)))
}

/// The page with everything, beside the short one: `benchmarks-full.md` beside `benchmarks.md`.
fn full_of(page: &Path) -> PathBuf {
    let stem = page.file_stem().unwrap_or_default().to_string_lossy();
    page.with_file_name(format!("{stem}-full.md"))
}

/// Reads a page; one that does not exist yet is empty.
fn read(page: &Path) -> Result<String> {
    match fs::read_to_string(page) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.with_context(|| page.display().to_string()),
    }
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
    use crate::report::Row;
    use crate::sample;

    /// What pages had before the bench was a program of its own.
    const OLD_MARK: &str =
        "<!-- What follows is written by hand; what is above is written by `shunt bench --docs`. -->";

    #[test]
    fn pages_have_their_newest_run_their_history_and_what_is_written_by_hand() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("benchmarks.md");
        let mut first = sample::run();
        first.started = "2026-01-01T00:00:00Z".to_owned();
        update(&page, &first).unwrap();
        let full = full_of(&page);
        for path in [&page, &full] {
            let text = fs::read_to_string(path).unwrap();
            fs::write(path, text.replace(page::MARK, OLD_MARK) + "\n## By hand\n\nStays.\n").unwrap();
        }
        let mut second = sample::run();
        second.started = "2026-02-02T00:00:00Z".to_owned();
        second.tables[0].rows[0].cells.get_mut("passthrough").unwrap().samples = vec![50.0; 5];
        second.settle();
        update(&page, &second).unwrap();
        let text = fs::read_to_string(&full).unwrap();
        assert!(text.contains("| read 4k | 100 ops/s | 0.70 | 0.50 |"), "the newest: {text}");
        assert!(text.contains("| read 4k | passthrough | 1.00 | **0.50** |"), "the history: {text}");
        let slower = text.find("What is slower").unwrap();
        assert!(slower < text.find("## `passthrough`").unwrap(), "{text}");
        for path in [&page, &full] {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.contains(page::MARK) && !text.contains(OLD_MARK), "{text}");
            assert!(text.ends_with("\n## By hand\n\nStays.\n"), "{text}");
            assert_eq!(text.matches("## By hand").count(), 1, "{text}");
        }
        assert_eq!(files(&page.with_extension(""), "json").unwrap().len(), 2);
    }

    /// A run that is shown again from the folder itself leaves its file as it is, and the pages the same.
    #[test]
    fn pages_can_be_written_from_the_runs_alone() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("benchmarks.md");
        update(&page, &sample::run()).unwrap();
        let kept = files(&page.with_extension(""), "json").unwrap().remove(0);
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        let before = [text(&kept), text(&page), text(&full_of(&page))];
        assert!(before[0].contains("\"samples\":[100.0,104.0,"), "samples are not kept: {}", before[0]);
        fs::write(&kept, before[0].clone() + " \n").unwrap();
        fs::remove_file(full_of(&page)).unwrap();
        update(&page, &crate::program::read_run(&kept).unwrap()).unwrap();
        assert_eq!(
            [text(&kept), text(&page), text(&full_of(&page))],
            [before[0].clone() + " \n", before[1].clone(), before[2].clone()]
        );
    }

    /// The short page is short, whatever was measured.
    #[test]
    fn the_short_page_has_ten_rows_at_most() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("benchmarks.md");
        let mut run = sample::run();
        let table = &mut run.tables[0];
        table.table = "peers".to_owned();
        table.rows[0].name = "tree untar".to_owned();
        for number in 0..100 {
            table.rows.push(Row { name: format!("row {number}"), ..table.rows[0].clone() });
        }
        update(&page, &run).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.contains("| unpack a source tree | 100 ops/s |") && text.lines().count() < 40, "{text}");
    }

    #[test]
    fn every_plot_of_the_page_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("benchmarks.md");
        let stale = folder.path().join("benchmarks").join("stale.svg");
        fs::create_dir(stale.parent().unwrap()).unwrap();
        fs::write(&stale, "").unwrap();
        update(&page, &sample::run()).unwrap();
        let text = fs::read_to_string(full_of(&page)).unwrap();
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
