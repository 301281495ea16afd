//! The report as Markdown.

use std::fmt::Write as _;

use crate::goal::Role;
use crate::legacy::{CaseReport, Cell, Report};

impl Report {
    /// Prints the report: the machine, the ratios with the goals, the figures with their spread, what is doubtful.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        self.ratios(&mut out);
        self.figures(&mut out);
        self.errors(&mut out);
        if !self.doubts.is_empty() {
            out.push_str("\nWhat makes these figures doubtful:\n\n");
            for doubt in &self.doubts {
                line(&mut out, format_args!("- {doubt}"));
            }
        }
        out
    }

    fn head(&self, out: &mut String) {
        let machine = &self.machine;
        line(out, format_args!("## `{}`\n", self.table));
        line(
            out,
            format_args!(
                "{} CPUs ({}), {} MiB, Linux {}, {}. Lower file system: {}. Large files of {} MiB, {} small files a \
                 job{}. Medians of {} round(s); ratios are to `bare`.\n",
                machine.cpus,
                machine.processor,
                machine.memory_mib,
                machine.kernel,
                machine.fio,
                self.lower,
                self.file_len >> 20,
                self.files,
                self.tree.map_or(String::new(), |(files, bytes)| format!(
                    ", a tree of {files} files and {} MiB",
                    bytes >> 20
                )),
                self.rounds,
            ),
        );
        for target in &self.targets {
            let version = target.version.as_ref().map_or(String::new(), |version| format!(" ({version})"));
            line(out, format_args!("- {}: `{}`{version}", target.name, target.command));
        }
    }

    fn ratios(&self, out: &mut String) {
        let names: Vec<&str> = self.targets.iter().map(|target| target.name.as_str()).collect();
        let columns = names[1..].join(" | ");
        line(
            out,
            format_args!("\n| case | bare, ops/s | {columns} | goal | met | best peer on record | reached |"),
        );
        line(out, format_args!("|---|{}", "---|".repeat(names.len() + 4)));
        for case in &self.cases {
            let _ =
                write!(out, "| {} | {} |", case.name, case.cells.get("bare").map_or(String::new(), figure));
            for &name in &names[1..] {
                let _ = write!(out, " {} |", case.cells.get(name).map_or(String::new(), ratio));
            }
            line(out, format_args!(" {} |", verdict(case)));
        }
    }

    fn figures(&self, out: &mut String) {
        let names: Vec<&str> = self.targets.iter().map(|target| target.name.as_str()).collect();
        line(out, format_args!("\nOperations a second, median (least to largest):\n"));
        line(out, format_args!("| case | {} |", names.join(" | ")));
        line(out, format_args!("|---|{}", "---|".repeat(names.len())));
        for case in &self.cases {
            let cells: Vec<String> =
                names.iter().map(|&name| case.cells.get(name).map_or(String::new(), spread)).collect();
            line(out, format_args!("| {} | {} |", case.name, cells.join(" | ")));
        }
    }

    fn errors(&self, out: &mut String) {
        let mut first = true;
        for case in &self.cases {
            for (target, cell) in &case.cells {
                let Some(error) = &cell.error else { continue };
                if std::mem::take(&mut first) {
                    out.push_str("\nWhat failed:\n\n");
                }
                line(out, format_args!("- {} on {target}: {error}", case.name));
            }
        }
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

fn verdict(case: &CaseReport) -> String {
    let word = |met: Option<bool>| match met {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "",
    };
    let goal = case.goal.map_or(String::new(), |goal| match goal.role {
        Role::Default => format!("{:.2}", goal.ratio),
        Role::Served => format!("{:.2} served", goal.ratio),
    });
    let peer = case.best_peer.map_or(String::new(), |ratio| format!("{ratio:.2}"));
    format!("{goal} | {} | {peer} | {}", word(case.met), word(case.best_peer_met))
}

fn ratio(cell: &Cell) -> String {
    match (cell.ratio, &cell.error) {
        (Some(ratio), None) => format!("{ratio:.2}"),
        (Some(ratio), Some(_)) => format!("{ratio:.2} (failed)"),
        (None, Some(_)) => "failed".to_owned(),
        (None, None) => String::new(),
    }
}

fn figure(cell: &Cell) -> String {
    cell.median.map_or_else(|| "failed".to_owned(), number)
}

fn spread(cell: &Cell) -> String {
    match (cell.median, cell.range()) {
        (Some(median), Some((least, largest))) => {
            format!("{} ({} to {})", number(median), number(least), number(largest))
        }
        _ => "failed".to_owned(),
    }
}

/// Prints a figure with three digits that mean something.
pub(crate) fn number(figure: f64) -> String {
    match figure {
        small if small < 10.0 => format!("{small:.2}"),
        middle if middle < 100.0 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::legacy::tests::sample;

    #[test]
    fn rows_carry_goal_and_verdict() {
        let text = sample().to_markdown();
        assert!(
            text.contains("| seed0 read 4k | 100 | 1.00 | 0.70 | 1.00 | yes | 1.11 | **no** |"),
            "{text}"
        );
        assert!(
            text.contains("| seed3 dio 1m j1 | 100 | 1.00 | 0.70 | 0.75 served | **no** | 0.99 | yes |"),
            "{text}"
        );
        assert!(text.contains("100 (90.0 to 104)"), "{text}");
    }

    #[test]
    fn every_row_of_a_table_has_the_same_number_of_columns() {
        let text = sample().to_markdown();
        let rows =
            text.lines().filter(|line| line.starts_with("| seed0") || line.starts_with("| case | bare, ops"));
        let columns: Vec<_> = rows.map(|line| line.matches('|').count()).collect();
        assert_eq!(columns[0], columns[1]);
    }

    #[test]
    fn a_failed_cell_says_so() {
        let mut report = sample();
        let cell = report.cases[0].cells.get_mut("shunt").unwrap();
        cell.error = Some("no luck".to_owned());
        let text = report.to_markdown();
        assert!(
            text.contains("1.00 (failed)") && text.contains("- seed0 read 4k on shunt: no luck"),
            "{text}"
        );
    }
}
