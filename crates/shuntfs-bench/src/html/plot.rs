//! The plots of a run, each an SVG text of its own.
//!
//! A table whose rows go over numbers of jobs becomes a plot of lines for each group of rows, all others bars: ratios to
//! the baseline, a block of bars a row.

mod bars;
mod frame;
mod layout;
mod lines;
mod measure;

use std::collections::HashSet;

use anyhow::Result;

use super::words::slug;
use crate::report::{Report, Row, Run};

/// A plot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plot {
    /// The table that it is of.
    pub table: String,
    /// A file name for it, unique in its run: `peers.svg`.
    pub file: String,
    /// What is seen, in a sentence.
    pub caption: String,
    /// The SVG.
    pub svg: String,
}

impl Plot {
    /// Returns the SVG for a page, whose own style sheet has the plots' rules.
    pub(super) fn inline(&self) -> String {
        let (head, rest) = self.svg.split_once("<style>").unwrap_or((&self.svg, ""));
        let (_, rest) = rest.split_once("</style>").unwrap_or(("", rest));
        format!("{head}{rest}")
    }
}

/// Draws every plot of a run.
///
/// # Errors
/// When a plot cannot be laid out.
pub fn plots(run: &Run) -> Result<Vec<Plot>> {
    let mut names = Names::default();
    let mut plots = Vec::new();
    for report in &run.tables {
        of_table(report, &mut names, &mut plots)?;
    }
    Ok(plots)
}

fn of_table(report: &Report, names: &mut Names, plots: &mut Vec<Plot>) -> Result<()> {
    let (lines, bars) = split(report);
    if !bars.is_empty() {
        let name = names.unique(&slug(&report.table));
        plots.push(bars::draw(report, &bars, &name)?);
    }
    for (group, rows) in lines {
        let name = names.unique(&format!("{}-{}", slug(&report.table), slug(group)));
        plots.push(lines::draw(report, group, &rows, &name)?);
    }
    Ok(())
}

/// Names that files and anchors may have, each used once.
#[derive(Debug, Default)]
struct Names(HashSet<String>);

impl Names {
    fn unique(&mut self, wanted: &str) -> String {
        let more = (2..).map(|number: u32| format!("{wanted}-{number}"));
        let mut candidates = std::iter::once(wanted.to_owned()).chain(more);
        candidates.find(|name| self.0.insert(name.clone())).unwrap_or_default()
    }
}

type Groups<'a> = Vec<(&'a str, Vec<&'a Row>)>;

/// Splits a table into groups to draw as lines and rows to draw as bars.
fn split(report: &Report) -> (Groups<'_>, Vec<&Row>) {
    let with_figures = || report.judged().filter(|row| row.cells.values().any(|cell| cell.median.is_some()));
    let alike = |one: &Row, other: &Row| one.group == other.group && one.unit == other.unit;
    let grows = |row: &Row| {
        let others = with_figures().filter(|other| alike(row, other));
        row.jobs.is_some() && others.filter_map(|other| other.jobs).collect::<HashSet<_>>().len() > 1
    };
    let growing = with_figures().filter(|row| grows(row)).count();
    // A table of single rows with a few pairs among them is read more easily as bars.
    if growing * 2 <= report.judged().count() {
        return (Vec::new(), report.judged().collect());
    }
    let mut groups: Groups<'_> = Vec::new();
    let mut single = Vec::new();
    for row in report.judged() {
        if !grows(row) {
            single.push(row);
        } else if let Some((_, rows)) =
            groups.iter_mut().find(|(_, rows)| rows.iter().all(|one| alike(one, row)))
        {
            rows.push(row);
        } else {
            groups.push((&row.group, vec![row]));
        }
    }
    (groups, single)
}
