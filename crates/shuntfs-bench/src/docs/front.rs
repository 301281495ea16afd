//! The ten rows that a person wants to see first.

use std::fmt::Write as _;

use super::history::History;
use crate::markdown::{line, number, peers, sure};
use crate::report::{Measure, Report, Row, Run, Verdict};

/// Table, row, and what it is in plain words. Chosen for what people do, whatever the figures are.
const ROWS: [(&str, &str, &str); 10] = [
    ("peers", "seed0 write 4k", "write a file, 4 KiB at a time"),
    ("peers", "seed0 randread 4k", "read 4 KiB at random, cold"),
    ("peers", "seed3 mmap 4k j1", "read a mapped file, cold"),
    ("peers", "seed3 create j1", "create small files"),
    ("peers", "meta delete", "remove small files"),
    ("peers", "tree untar", "unpack a source tree"),
    ("peers", "tree find cold", "`find`, cold"),
    ("peers", "tree grep cold", "`grep -r`, cold"),
    ("smallfiles", "build", "build a C project"),
    ("queues", "randread aio32 j1", "exported disk: direct 4 KiB reads, 32 in flight"),
];

/// Writes the rows that were measured, and on which machines.
pub(super) fn rows(out: &mut String, newest: &Run, history: &History) {
    let found = |(table, name, words): (&'static str, &str, &'static str)| {
        let report = newest.tables.iter().find(|report| report.table == table)?;
        Some((report, report.rows.iter().find(|row| row.name == name)?, words))
    };
    let found: Vec<_> = ROWS.into_iter().filter_map(found).collect();
    if found.is_empty() {
        out.push_str("\nNone of the rows that belong here has been measured.\n");
        return;
    }
    out.push_str("\n| | bare | shunt | goal | beside other programs |\n|---|---|---|---|---|\n");
    let mut runs: Vec<&Run> = Vec::new();
    for (report, row, words) in found {
        line(out, format_args!("| {words} | {} |", cells(report, row).join(" | ")));
        if let Some(run) = history.run_of(&report.table).filter(|run| !runs.contains(run)) {
            runs.push(run);
        }
    }
    out.push('\n');
    for run in runs {
        let machine = &run.machine;
        let tables: Vec<&str> = run.tables.iter().map(|report| report.table.as_str()).collect();
        line(
            out,
            format_args!(
                "- {}: {} ({} CPUs), Linux {}, rounds: {}, {}. Tables: {}.",
                run.started.get(..10).unwrap_or_default(),
                machine.processor,
                machine.cpus,
                machine.kernel,
                run.rounds,
                run.lower,
                tables.join(", ")
            ),
        );
    }
}

/// Baseline, our column, goal and peers of a row.
fn cells(report: &Report, row: &Row) -> [String; 4] {
    let none = || "not measured".to_owned();
    let base = row.cells.get(row.base(&report.baseline)).and_then(|cell| cell.median);
    let base = base.map_or_else(none, |median| format!("{} {}", number(median), row.unit.label()));
    let ours = row.ours.as_ref().and_then(|name| row.cells.get(name)?.ratio);
    let is_ratio = row.goal.as_ref().is_some_and(|goal| goal.measure == Measure::Ratio);
    let reached = row.reached.as_ref();
    let ours = match reached.filter(|_| is_ratio) {
        Some(reached) => sure(reached),
        None => ours.map_or_else(none, |ratio| format!("{ratio:.2}")),
    };
    let mut goal = row.goal.as_ref().map_or_else(String::new, |goal| number(goal.value));
    if let Some(reached) = reached {
        let said = match reached.verdict {
            Verdict::Ahead => "reached",
            Verdict::Behind => "**missed**",
            Verdict::CannotTell => "cannot tell",
        };
        let _ = write!(goal, ", {said}");
    }
    // With intervals the table would not fit a screen; the full page has them.
    [base, ours, goal, peers(row, |one| format!("{:.2}", one.ratio))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::tables;
    use crate::tables::tests::setting;

    #[test]
    fn every_row_is_one_of_its_table() {
        for (table, name, _) in ROWS {
            let tables = tables(&setting(2));
            let table = tables.iter().find(|one| one.name == table).unwrap();
            let has = table.cases.iter().any(|case| {
                case.outputs.iter().any(|output| format!("{}{}", case.name, output.suffix) == name)
            });
            assert!(has, "{}: {name}", table.name);
        }
    }
}
