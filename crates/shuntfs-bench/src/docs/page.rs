//! What the page says, and in which order.

use std::fmt::Write as _;

use super::history::History;
use crate::behind::{Behind, behind};
use crate::html::Plot;
use crate::markdown::{line, list, number};
use crate::report::{Better, Cell, Measure, Report, Row, Run};

/// What the program writes ends here.
pub(super) const MARK: &str =
    "<!-- What follows is written by hand; what is above is written by `shunt bench --docs`. -->";

/// The runs that the history shows.
const RUNS_MAX: usize = 6;

/// What is in the folder beside the page.
#[derive(Debug)]
pub(super) struct Beside<'a> {
    pub(super) folder: &'a str,
    pub(super) plots: &'a [Plot],
}

/// Writes the page.
pub(super) fn write(history: &History, newest: &Run, beside: &Beside<'_>, by_hand: &str) -> String {
    let mut out = INTRODUCTION.replace("FOLDER", beside.folder);
    if let Some(run) = history.runs.last() {
        line(&mut out, format_args!("\n```sh\n{}\n```", run.command.join(" ")));
    }
    slower(&mut out, newest);
    for report in &newest.tables {
        table(&mut out, report, history, beside);
    }
    out.push_str("\n## History\n\n");
    out.push_str("Ratios to the baseline of each run's own machine, the oldest run first; more is better.\n");
    out.push_str("A bold one is more than a tenth below the run before.\n");
    for report in &newest.tables {
        changes(&mut out, &report.table, history);
    }
    line(&mut out, format_args!("\n{MARK}"));
    out.push_str(by_hand);
    out
}

/// Returns what is written by hand in a page.
pub(super) fn by_hand(page: &str) -> &str {
    page.split_once(MARK).map_or("", |(_, rest)| rest.trim_start_matches('\n')).trim_start()
}

const INTRODUCTION: &str = "\
# Benchmarks

`shunt bench` measures shunt beside the bare folder below it and beside whatever of mergerfs, bindfs, fuse-overlayfs, libfuse's
`passthrough_hp` and qemu-storage-daemon is on the PATH. As root it makes ext4 on a loop device over RAM; it mounts each target in
turn inside each round, drops caches before each figure, and prints medians and ratios to the bare folder. In all ratios
1 is as good as bare, and more is better. Compare ratios of one run; absolute figures belong to the machine that they came from.

This page is written by `shunt bench --docs docs/benchmarks.md` (or `cargo xtask bench --docs docs/benchmarks.md`) from its runs, which
are kept in [FOLDER/](FOLDER/). The newest was:
";

fn slower(out: &mut String, run: &Run) {
    out.push_str("\n## What is slower, first\n\n");
    let rows = behind(run);
    if rows.is_empty() {
        out.push_str("No row is behind its goal or behind a peer of its run.\n");
        return;
    }
    out.push_str("Rows that miss their goal or are behind a peer of their run, the furthest first.\n\n");
    out.push_str("| table | case | shunt | goal | best peer | limit |\n|---|---|---|---|---|---|\n");
    for row in &rows {
        line(out, format_args!("{}", slower_row(row)));
    }
}

fn slower_row(behind: &Behind<'_>) -> String {
    let (row, report) = (behind.row, behind.report);
    let unit =
        |measure| if measure == Measure::Figure { format!(" {}", row.unit.label()) } else { String::new() };
    let ours = match (&behind.goal, &behind.peer) {
        (Some((goal, reached)), _) => {
            format!("{}{} ({})", number(reached.value), unit(goal.measure), reached.column)
        }
        (None, Some(lead)) => format!("{} ({})", number(lead.ours.1), lead.ours.0),
        (None, None) => String::new(),
    };
    let goal = behind.goal.as_ref().map_or(String::new(), |(goal, _)| {
        let word =
            if goal.measure == Measure::Figure && row.better == Better::Lower { "at most " } else { "" };
        format!("{word}{}{}", number(goal.value), unit(goal.measure))
    });
    let peer = behind.peer.as_ref().map_or(String::new(), |lead| {
        format!(
            "{} ({}), beside {} ({})",
            number(lead.theirs.1),
            lead.theirs.0,
            number(lead.ours.1),
            lead.ours.0
        )
    });
    let limit = row.limit.as_deref().unwrap_or_default();
    format!("| {} | {} | {ours} | {goal} | {peer} | {limit} |", report.table, row.name)
}

fn table(out: &mut String, report: &Report, history: &History, beside: &Beside<'_>) {
    line(out, format_args!("\n## `{}`\n\n{}.\n", report.table, report.about));
    if let Some(why) = &report.skipped {
        line(out, format_args!("Not measured: {why}."));
        return;
    }
    let Some(run) = history.run_of(&report.table) else { return };
    line(out, format_args!("{}\n", run.about()));
    for plot in beside.plots.iter().filter(|plot| plot.table == report.table) {
        line(out, format_args!("![{}]({}/{})\n", plot.caption, beside.folder, plot.file));
    }
    report.ratios(out);
    report.figures(out);
    out.push('\n');
    for column in &report.columns {
        let missing = column.missing.as_ref().map_or(String::new(), |why| format!("; missing: {why}"));
        line(out, format_args!("- {}: `{}`{missing}", column.name, column.command));
    }
    list(out, "What failed:", &report.errors());
    list(out, "What to know:", &report.notes);
    list(out, "Limits:", &limits(report));
    let doubts: Vec<String> = run.doubts.iter().chain(&report.doubts).cloned().collect();
    list(out, "What makes these figures doubtful:", &doubts);
}

fn limits(report: &Report) -> Vec<String> {
    let mut limits: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &report.rows {
        let Some(limit) = row.limit.as_deref() else { continue };
        match limits.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, rows)) => rows.push(&row.name),
            None => limits.push((limit, vec![&row.name])),
        }
    }
    limits.into_iter().map(|(limit, rows)| format!("{}: {limit}.", rows.join(", "))).collect()
}

/// Prints how a table's ratios changed from run to run.
fn changes(out: &mut String, table: &str, history: &History) {
    let runs: Vec<(&Run, &Report)> = history.with(table).collect();
    let runs = &runs[runs.len().saturating_sub(RUNS_MAX)..];
    let Some((_, newest)) = runs.last() else { return };
    let dates: Vec<&str> = runs.iter().map(|(run, _)| run.started.get(..10).unwrap_or_default()).collect();
    line(out, format_args!("\n### `{table}`\n"));
    line(out, format_args!("| case | column | {} |", dates.join(" | ")));
    line(out, format_args!("|---|---|{}", "---|".repeat(dates.len())));
    for row in newest.judged() {
        let Some(column) = column_of(row) else { continue };
        let _ = write!(out, "| {} | {column} |", row.name);
        let mut before = None;
        for (_, report) in runs {
            let ratio = ratio_of(report, &row.name, column);
            let _ = write!(out, " {} |", shown(ratio, before));
            before = ratio.or(before);
        }
        out.push('\n');
    }
}

/// Returns the column whose history a row shows: the one with the goal, or our best.
fn column_of(row: &Row) -> Option<&str> {
    let of_goal = row.goal.as_ref().and_then(|goal| goal.columns.first()).map(String::as_str);
    of_goal.or(row.best_of_ours.as_ref().map(|(name, _)| name.as_str()))
}

fn ratio_of(report: &Report, row: &str, column: &str) -> Option<f64> {
    let cell: &Cell = report.rows.iter().find(|known| known.name == row)?.cells.get(column)?;
    cell.ratio
}

fn shown(ratio: Option<f64>, before: Option<f64>) -> String {
    let Some(ratio) = ratio else { return String::new() };
    if before.is_some_and(|before| ratio < before * 0.9) {
        return format!("**{ratio:.2}**");
    }
    format!("{ratio:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_got_slower_is_bold() {
        assert_eq!(shown(Some(0.5), None), "0.50");
        assert_eq!(shown(Some(0.5), Some(0.52)), "0.50");
        assert_eq!(shown(Some(0.5), Some(0.6)), "**0.50**");
        assert_eq!(shown(None, Some(0.6)), "");
    }
}
