//! What the pages say, and in which order.

use std::fmt::Write as _;

use super::front;
use super::history::History;
use crate::behind::behind;
use crate::html::Plot;
use crate::markdown::{goal, line, list, peers, sure};
use crate::report::{Cell, Report, Run};

/// What the program writes ends with this line, and what begins like it.
pub(super) const MARK: &str =
    "<!-- What follows is written by hand; what is above is written by `shunt-bench --docs`. -->";
const MARK_START: &str = "<!-- What follows is written by hand;";

/// The runs that the history shows.
const RUNS_MAX: usize = 6;

/// What is beside the short page.
#[derive(Debug)]
pub(super) struct Beside<'a> {
    /// The folder with the runs and plots.
    pub(super) folder: &'a str,
    /// The page with everything.
    pub(super) full: &'a str,
    pub(super) plots: &'a [Plot],
}

/// Writes the short page.
pub(super) fn short(history: &History, newest: &Run, beside: &Beside<'_>, by_hand: &str) -> String {
    let mut out = SHORT.replace("FOLDER", beside.folder).replace("FULL", beside.full);
    front::rows(&mut out, newest, history);
    let rows = newest.tables.iter().map(|report| report.judged().count()).sum::<usize>();
    line(
        &mut out,
        format_args!(
            "\nOf {rows} rows, {} are behind their goal or a peer beyond doubt: [{full}]({full}#what-is-slower-first).\n\n{MARK}",
            behind(newest).len(),
            full = beside.full
        ),
    );
    out.push_str(by_hand);
    out
}

/// Writes the page with everything.
pub(super) fn full(history: &History, newest: &Run, beside: &Beside<'_>, by_hand: &str) -> String {
    let mut out = FULL.replace("FOLDER", beside.folder);
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
    let rest = page.split_once(MARK_START).and_then(|(_, rest)| rest.split_once('\n'));
    rest.map_or("", |(_, rest)| rest.trim_start())
}

const SHORT: &str = "\
# Benchmarks

Ratios to the bare folder of the same run: 1 is as fast, more is better. In parentheses is the 95 % interval (bootstrap
over the rounds); `ahead` and `behind` mean that the whole interval is on that side, otherwise nothing can be told. Which
column of ours is compared is fixed before the measurement. All rows, plots, machines and versions:
[FULL](FULL). The runs: [FOLDER/](FOLDER/).
";

const FULL: &str = "\
# All benchmarks

`shunt-bench` measures shunt, the bare folder below it, and those of mergerfs, bindfs, fuse-overlayfs, libfuse's
`passthrough_hp` and qemu-storage-daemon that are on the PATH. As root it creates ext4 on a loop device over RAM. In each
round it mounts each column for each case, in random order, drops caches before each figure, and keeps every figure. Ratios
are those of medians to the bare folder; 1 is as good as bare, and more is better. Compare ratios of one run; absolute
figures belong to the machine that they came from.

A goal is reached, or a peer is behind, only if the whole 95 % interval of the ratio says so (bootstrap over the rounds;
for older runs, whose single figures were not kept, the widest interval that least and largest allow). With fewer than five
rounds nothing is decided. One column of ours, named before the measurement, is compared.

This page is written by `shunt-bench --docs` (or `cargo xtask bench --docs`) from its runs, which are kept in
[FOLDER/](FOLDER/). The newest was:
";

fn slower(out: &mut String, run: &Run) {
    out.push_str("\n## What is slower, first\n\n");
    let rows = behind(run);
    if rows.is_empty() {
        out.push_str("No row is behind its goal or behind a peer of its run beyond doubt.\n");
        return;
    }
    out.push_str("Rows that miss their goal or are behind a peer of their run, the furthest first.\n\n");
    out.push_str("| table | case | compared | reached | goal | beside peers |\n|---|---|---|---|---|---|\n");
    for behind in &rows {
        let row = behind.row;
        let reached = row.reached.as_ref().map_or(String::new(), sure);
        let goal = row.goal.as_ref().map_or(String::new(), |aim| goal(aim, row));
        let ours = row.ours.as_deref().unwrap_or_default();
        let (table, name, peers) = (&behind.report.table, &row.name, peers(row, sure));
        line(out, format_args!("| {table} | {name} | {ours} | {reached} | {goal} | {peers} |"));
    }
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
    let doubts: Vec<String> = run.doubts.iter().chain(&report.doubts).cloned().collect();
    list(out, "What makes these figures doubtful:", &doubts);
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
        let Some(column) = row.ours.as_deref() else { continue };
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
