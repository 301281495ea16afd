//! The plots of a run, each an SVG text of its own: for each table a block for each row, in it a bar for each column, all as
//! ratios to the baseline.

mod draw;
mod layout;
mod measure;
mod style;

use std::collections::HashSet;

use super::words::slug;
use crate::report::{Row, Run};

pub(super) use style::rules;

/// A plot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plot {
    /// The table that it is of.
    pub table: String,
    /// A file name for it, unique in its run: `peers.svg`.
    pub file: String,
    /// What is seen, in a few sentences.
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
#[must_use]
pub fn plots(run: &Run) -> Vec<Plot> {
    let mut used = HashSet::new();
    let mut plots = Vec::new();
    for report in &run.tables {
        let rows: Vec<&Row> = report.judged().collect();
        if rows.is_empty() {
            continue;
        }
        let wanted = slug(&report.table);
        let more = (2..).map(|number: u32| format!("{wanted}-{number}"));
        let mut names = std::iter::once(wanted.clone()).chain(more);
        let name = names.find(|name| used.insert(name.clone())).unwrap_or_default();
        plots.push(draw::draw(report, &rows, &name));
    }
    plots
}
