//! The runs of the past.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::update::files;
use crate::program::read_run;
use crate::report::{Report, Row, Run};

/// Every run that is kept, the oldest first.
#[derive(Debug)]
pub(super) struct History {
    pub(super) runs: Vec<Run>,
}

impl History {
    /// Puts a run into the folder, without what only its own report needs. One that is there already stays as it is: what is kept
    /// has less than it had.
    pub(super) fn add(folder: &Path, run: &Run) -> Result<()> {
        let path = folder.join(format!("{}.json", run.started.replace(':', "")));
        if path.exists() {
            return Ok(());
        }
        let text = serde_json::to_string(&slim(run)).context("cannot write JSON")?;
        fs::write(&path, text + "\n").with_context(|| path.display().to_string())
    }

    /// Reads every run of the folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut runs: Vec<Run> =
            files(folder, "json")?.iter().map(|path| read_run(path)).collect::<Result<_>>()?;
        runs.sort_by(|one, other| one.started.cmp(&other.started));
        Ok(Self { runs })
    }

    /// Returns the newest run, with the tables that it did not measure as the newest run left them that did.
    pub(super) fn newest(&self) -> Option<Run> {
        self.runs.iter().rev().cloned().reduce(completed_by)
    }

    /// Returns the newest run that measured a table.
    pub(super) fn run_of<'a>(&'a self, table: &'a str) -> Option<&'a Run> {
        self.with(table).next_back().map(|(run, _)| run)
    }

    /// Returns the runs that measured a table, the oldest first.
    pub(super) fn with<'a>(
        &'a self,
        table: &'a str,
    ) -> impl DoubleEndedIterator<Item = (&'a Run, &'a Report)> {
        self.runs.iter().filter_map(move |run| {
            let report = run.tables.iter().find(|report| report.table == table && report.has_figures())?;
            Some((run, report))
        })
    }
}

fn completed_by(mut newest: Run, older: Run) -> Run {
    for report in older.tables.into_iter().filter(Report::has_figures) {
        match newest.tables.iter_mut().find(|known| known.table == report.table) {
            Some(known) if known.has_figures() => {}
            Some(known) => *known = report,
            None => newest.tables.push(report),
        }
    }
    newest
}

/// Leaves every figure in four digits, and no commands, which are those of the same version.
fn slim(run: &Run) -> Run {
    let mut run = run.clone();
    run.command = said(&run.command);
    for report in &mut run.tables {
        report.commands.clear();
        report.rows.iter_mut().for_each(slim_row);
    }
    run
}

fn slim_row(row: &mut Row) {
    for cell in row.cells.values_mut() {
        cell.samples.iter_mut().for_each(|sample| *sample = short(*sample));
        cell.median = cell.median.map(short);
        cell.range = cell.range.map(|(least, largest)| (short(least), short(largest)));
        cell.ratio = cell.ratio.map(short);
        cell.gain = cell.gain.map(short);
    }
    for one in row.reached.iter_mut().chain(&mut row.peers) {
        one.ratio = short(one.ratio);
        one.interval = one.interval.map(|(low, high)| (short(low), short(high)));
    }
}

/// Leaves four digits that mean something.
fn short(figure: f64) -> f64 {
    format!("{figure:.3e}").parse().unwrap_or(figure)
}

/// Returns the command line without where programs and reports are on that machine.
fn said(command: &[String]) -> Vec<String> {
    const PLACES: &[&str] = &["--json", "--html", "--markdown", "--docs", "--from", "--shunt", "--folder"];
    let mut words = Vec::new();
    let mut command = command.iter();
    if let Some(program) = command.next() {
        words.push(
            Path::new(program).file_name().map_or_else(String::new, |name| name.to_string_lossy().into()),
        );
    }
    while let Some(word) = command.next() {
        if PLACES.contains(&word.as_str()) {
            command.next();
        } else if !PLACES
            .iter()
            .any(|place| word.strip_prefix(place).is_some_and(|rest| rest.starts_with('=')))
        {
            let is_quoted = word.starts_with('\'');
            let needs_quotes = word.contains([' ', ';', '*']) && !is_quoted;
            words.push(if needs_quotes { format!("'{word}'") } else { word.clone() });
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_kept_in_four_digits() {
        for (figure, kept) in [(123_456.0, 123_500.0), (0.123_456, 0.1235), (1.0, 1.0)] {
            assert!((short(figure) - kept).abs() < 1e-9, "{figure}");
        }
    }

    #[test]
    fn a_command_names_no_place() {
        let words = ["/x/shunt-bench", "--json", "/a", "--docs=/b", "--rounds", "3", "--targets", "null q1"];
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let kept = ["shunt-bench", "--rounds", "3", "--targets", "'null q1'"];
        assert_eq!(said(&words), kept);
        assert_eq!(said(&kept.map(str::to_owned)), kept, "what is kept is kept again as it is");
    }
}
