//! The run as Markdown.

use std::fmt::Write as _;

use crate::report::{Cell, Comparison, Goal, Measure, Report, Row, Run, Tail, Unit, Verdict};

impl Run {
    /// Prints the run: the machine, then for each table the ratios with the goals, the figures with their spread, and what
    /// is doubtful.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut out = String::new();
        line(&mut out, format_args!("{}\n", self.about()));
        list(&mut out, "What makes these figures doubtful:", &self.doubts);
        for table in &self.tables {
            out.push('\n');
            out.push_str(&table.to_markdown());
        }
        out
    }

    /// Says in a paragraph what was measured where.
    pub(crate) fn about(&self) -> String {
        let machine = &self.machine;
        let versions: Vec<&str> = self.versions.iter().map(|program| program.version.as_str()).collect();
        format!(
            "{}: {} CPUs ({}), {} MiB, Linux {}. Lower file system: {}. Size {}, medians of {} round(s){}{}. {}.",
            self.started,
            machine.cpus,
            machine.processor,
            machine.memory_mib,
            machine.kernel,
            self.lower,
            self.size,
            self.rounds,
            if self.more == 0 {
                String::new()
            } else {
                format!(" and {} more where bare wavered", self.more)
            },
            if self.elapsed_s == 0 {
                String::new()
            } else {
                format!(", {} min", self.elapsed_s.div_ceil(60))
            },
            versions.join("; "),
        )
    }
}

impl Report {
    /// Prints one table.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut out = String::new();
        line(&mut out, format_args!("## `{}`\n\n{}.\n", self.table, self.about));
        if let Some(why) = &self.skipped {
            line(&mut out, format_args!("Not measured: {why}."));
            return out;
        }
        for column in &self.columns {
            let missing = column.missing.as_ref().map_or(String::new(), |why| format!("; missing: {why}"));
            line(&mut out, format_args!("- {}: `{}`{missing}", column.name, column.command));
        }
        out.push('\n');
        self.ratios(&mut out);
        self.figures(&mut out);
        list(&mut out, "What failed:", &self.errors());
        list(&mut out, "What to know:", &self.notes);
        list(&mut out, "What makes these figures doubtful:", &self.doubts);
        out
    }

    /// Prints how good each column is beside the baseline: 1 as good, more is better.
    pub(crate) fn ratios(&self, out: &mut String) {
        if self.judged().next().is_none() {
            return;
        }
        let names = self.others();
        let columns = names.join(" | ");
        line(out, format_args!("| case | {} | {columns} | goal | reached | beside peers |", self.baseline));
        line(out, format_args!("|---|{}", "---|".repeat(names.len() + 4)));
        for row in self.judged() {
            let bare = row.cells.get(&self.baseline).map_or(String::new(), |cell| median(cell, row.unit));
            let _ = write!(out, "| {} | {bare} |", row.name);
            for &name in &names {
                let _ = write!(out, " {} |", row.cells.get(name).map_or(String::new(), ratio));
            }
            line(out, format_args!(" {} |", verdict(row)));
        }
    }

    /// Prints the medians with what they range over.
    pub(crate) fn figures(&self, out: &mut String) {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        for (call, tails) in self.tails() {
            quantiles(out, call, &tails, &names);
        }
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.quantile.is_none()).collect();
        if rows.is_empty() {
            return;
        }
        line(out, format_args!("\nMedians (least to largest):\n"));
        line(out, format_args!("| case | unit | {} |", names.join(" | ")));
        line(out, format_args!("|---|---|{}", "---|".repeat(names.len())));
        for row in rows {
            let cells: Vec<String> =
                names.iter().map(|&name| row.cells.get(name).map_or(String::new(), spread)).collect();
            line(out, format_args!("| {} | {} | {} |", row.name, row.unit.label(), cells.join(" | ")));
        }
    }

    /// Returns the columns beside the baseline.
    pub(crate) fn others(&self) -> Vec<&str> {
        let names = self.columns.iter().map(|column| column.name.as_str());
        names.filter(|&name| name != self.baseline).collect()
    }

    /// Says what failed; what failed for one reason in a whole column is said once.
    pub(crate) fn errors(&self) -> Vec<String> {
        let mut said: Vec<(String, Vec<&str>)> = Vec::new();
        for row in self.firsts() {
            for (name, cell) in &row.cells {
                let Some(error) = &cell.error else { continue };
                let error = format!("{name}: {error}");
                match said.iter_mut().find(|(known, _)| *known == error) {
                    Some((_, rows)) => rows.push(row.case()),
                    None => said.push((error, vec![row.case()])),
                }
            }
        }
        said.into_iter().map(|(error, rows)| format!("{error} ({})", rows.join(", "))).collect()
    }
}

/// Prints the quantiles of one call, those of a case in one cell.
fn quantiles(out: &mut String, call: &str, tails: &[Tail<'_>], names: &[&str]) {
    let Some(first) = tails.first() else { return };
    let which: Vec<&str> = first.quantiles().collect();
    let unit = first.rows.first().map_or("", |row| row.unit.label());
    line(out, format_args!("\n### `{call}`: {}, in {unit}\n", which.join(" / ")));
    line(out, format_args!("| beside | {} |", names.join(" | ")));
    line(out, format_args!("|---|{}", "---|".repeat(names.len())));
    for tail in tails {
        let figure = |row: &Row, name: &str| match row.cells.get(name) {
            Some(Cell { median: Some(median), .. }) => number(*median),
            cell => cell.map_or(String::new(), ratio),
        };
        let cell = |&name: &&str| {
            let mut figures: Vec<String> = tail.rows.iter().map(|row| figure(row, name)).collect();
            figures.dedup_by(|one, other| one == other && other.parse::<f64>().is_err());
            figures.join(" / ")
        };
        let cells: Vec<String> = names.iter().map(cell).collect();
        line(out, format_args!("| {} | {} |", tail.name, cells.join(" | ")));
    }
}

/// Prints a list below a heading, if there is anything in it.
pub(crate) fn list(out: &mut String, heading: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    line(out, format_args!("\n{heading}\n"));
    for item in items {
        line(out, format_args!("- {item}"));
    }
}

pub(crate) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

/// Prints goal, verdict on it, and what the row says of each peer.
fn verdict(row: &Row) -> String {
    let goal = row.goal.as_ref().map_or(String::new(), |aim| goal(aim, row));
    let reached = row.reached.as_ref().map_or(String::new(), |reached| match reached.verdict {
        Verdict::Ahead => format!("yes: {}", sure(reached)),
        Verdict::Behind => format!("**no**: {}", sure(reached)),
        Verdict::CannotTell => format!("cannot tell: {}", sure(reached)),
    });
    format!("{goal} | {reached} | {}", peers(row, sure))
}

/// Says of which peers our column is ahead, of which it is behind, and of which nothing can be told, each with a figure.
pub(crate) fn peers(row: &Row, figure: fn(&Comparison) -> String) -> String {
    let of = |verdict: Verdict, word: &str| {
        let with = row.peers.iter().filter(|one| one.verdict == verdict);
        let with: Vec<String> = with.map(|one| format!("{} {}", one.with, figure(one))).collect();
        (!with.is_empty()).then(|| format!("{word} {}", with.join(", ")))
    };
    let said = [
        of(Verdict::Behind, "**behind**"),
        of(Verdict::Ahead, "ahead of"),
        of(Verdict::CannotTell, "cannot tell from"),
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Prints a ratio with its interval: `0.27 (0.24 to 0.31)`.
pub(crate) fn sure(comparison: &Comparison) -> String {
    match comparison.interval {
        Some((low, high)) => format!("{:.2} ({low:.2} to {high:.2})", comparison.ratio),
        None => format!("{:.2}", comparison.ratio),
    }
}

pub(crate) fn goal(goal: &Goal, row: &Row) -> String {
    let columns = goal.columns.join(" or ");
    match (goal.measure, &row.beside) {
        (Measure::Figure, _) => format!("at most {} by {columns}", goal.value),
        (_, Some(beside)) => format!("{:.2} of {beside} by {columns}", goal.value),
        _ => format!("{:.2} by {columns}", goal.value),
    }
}

fn ratio(cell: &Cell) -> String {
    match (cell.ratio, &cell.error) {
        (Some(ratio), None) => format!("{ratio:.2}"),
        (Some(ratio), Some(_)) => format!("{ratio:.2} (failed)"),
        (None, Some(_)) => "failed".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

fn median(cell: &Cell, unit: Unit) -> String {
    match cell.median {
        Some(median) => figure_in(median, unit),
        None => ratio(cell),
    }
}

fn spread(cell: &Cell) -> String {
    match (cell.median, cell.range) {
        (Some(median), Some((least, largest))) => {
            format!("{} ({} to {})", number(median), number(least), number(largest))
        }
        _ => ratio(cell),
    }
}

/// Prints a figure with its unit.
pub(crate) fn figure_in(figure: f64, unit: Unit) -> String {
    format!("{} {}", number(figure), unit.label())
}

/// Prints a figure with three digits that mean something.
pub(crate) fn number(figure: f64) -> String {
    match figure {
        small if small < 0.1 => format!("{small:.3}"),
        small if small < 10.0 => format!("{small:.2}"),
        middle if middle < 100.0 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::behind::behind;
    use crate::sample::{quantiles, run};

    #[test]
    fn rows_carry_goal_and_verdict() {
        let text = run().to_markdown();
        assert!(
            text.contains(
                "| read 4k | 100 ops/s | 0.70 | 1.00 | 0.95 by passthrough | yes: 1.00 (0.96 to 1.11) |  |"
            ),
            "{text}"
        );
        assert!(text.contains("100 (90.0 to 104)"), "{text}");
    }

    #[test]
    fn every_row_of_a_table_has_the_same_number_of_columns() {
        let text = run().to_markdown();
        let rows =
            text.lines().filter(|line| line.starts_with("| read 4k | 100") || line.contains("| goal |"));
        let columns: Vec<_> = rows.map(|line| line.matches('|').count()).collect();
        assert_eq!(columns.len(), 2, "{text}");
        assert_eq!(columns[0], columns[1]);
    }

    #[test]
    fn a_failed_cell_says_so_and_a_failed_column_once() {
        let mut run = run();
        for row in &mut run.tables[0].rows {
            row.cells.get_mut("passthrough").unwrap().error = Some("no luck".to_owned());
        }
        let text = run.to_markdown();
        assert!(text.contains("1.00 (failed)"), "{text}");
        assert_eq!(text.matches("no luck").count(), 1, "{text}");
    }

    /// Two calls, one beside two loads; the last column of one of them failed.
    fn tails() -> Run {
        let mut run = run();
        let table = &mut run.tables[0];
        let figures =
            |bare, served, passthrough| [("bare", bare), ("served", served), ("passthrough", passthrough)];
        table.rows = [
            quantiles("getattr", "idle j1", &figures([0.5, 9.0], [4.5, 1860.0], [4.25, 20.0])),
            quantiles("getattr", "make j8", &figures([0.5, 9.0], [5.0, 5.0], [6.0, 30.0])),
            quantiles("open", "idle j1", &figures([1.5, 2.0], [7.0, 8.0], [-1.0, -1.0])),
        ]
        .concat();
        table.rows[0].goal =
            Some(Goal { columns: vec!["passthrough".to_owned()], measure: Measure::Ratio, value: 0.5 });
        run.settle();
        run
    }

    #[test]
    fn quantiles_are_shown_together_by_call() {
        let text = tails().to_markdown();
        for line in [
            "### `getattr`: p50 / longest, in us",
            "| idle j1 | 0.50 / 9.00 | 4.50 / 1860 | 4.25 / 20.0 |",
            "| make j8 | 0.50 / 9.00 | 5.00 / 5.00 | 6.00 / 30.0 |",
            "### `open`: p50 / longest, in us",
            "| idle j1 | 1.50 / 2.00 | 7.00 / 8.00 | failed |",
            "- passthrough: no such call (open idle j1)",
        ] {
            assert!(text.lines().any(|one| one == line), "no `{line}` in {text}");
        }
        assert_eq!(text.matches("| getattr idle j1, p50 |").count(), 1, "the row with a goal: {text}");
        assert!(!text.contains("longest |") && !text.contains("Medians (least to largest)"), "{text}");
        assert!(!text.contains("differ by more than 25 %"), "{text}");
    }

    #[test]
    fn only_quantiles_with_a_goal_are_behind() {
        let run = tails();
        let rows: Vec<&str> = behind(&run).iter().map(|behind| behind.row.name.as_str()).collect();
        assert_eq!(rows, ["getattr idle j1, p50"]);
    }
}
