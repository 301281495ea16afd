//! One table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::column::Column;
use super::row::Row;
use crate::tables::compared;

/// The quantiles of one case.
#[derive(Debug)]
pub(crate) struct Tail<'a> {
    /// The case, without what is called: `idle j1`.
    pub(crate) name: &'a str,
    /// Its rows, the least quantile first.
    pub(crate) rows: Vec<&'a Row>,
}

impl Tail<'_> {
    /// Returns what its rows are, in their order.
    pub(crate) fn quantiles(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(|row| row.quantile.as_deref())
    }
}

/// One table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What `--table` calls it.
    pub table: String,
    /// One line that says what is compared.
    pub about: String,
    /// The column that ratios are to.
    pub baseline: String,
    /// The column that the table's headline compares with, besides: what the server does today without the gain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The columns, in the order to show them; the baseline is the first.
    pub columns: Vec<Column>,
    /// The rows, in the order they were measured.
    pub rows: Vec<Row>,
    /// Why the table was not measured, if so: then it has no rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// What a reader needs to know: sizes, what was measured on, what could not be had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What makes the figures doubtful, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// What was run for each row and column, where it can be said in one command: by the row's name, with `{MNT}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, String>,
}

impl Report {
    /// Returns whether there is any figure.
    #[must_use]
    pub fn has_figures(&self) -> bool {
        let mut cells = self.rows.iter().flat_map(|row| row.cells.values());
        cells.any(|cell| cell.median.is_some() || !cell.samples.is_empty())
    }

    /// Returns whether every cell has a figure and no error; what was skipped with a reason is whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let mut cells = self.rows.iter().flat_map(|row| row.cells.values());
        cells.all(|cell| {
            cell.skipped.is_some()
                || (cell.error.is_none() && (cell.median.is_some() || !cell.samples.is_empty()))
        })
    }

    /// Returns the rows that are judged by themselves.
    pub(crate) fn judged(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.is_judged())
    }

    /// Returns the rows without what differs from the row before by its quantile alone: what fails, fails in all of those.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = &Row> {
        let before = std::iter::once(None).chain(self.rows.iter().map(Some));
        let alike =
            |row: &Row, before: Option<&Row>| before.is_some_and(|before| before.case() == row.case());
        self.rows.iter().zip(before).filter(move |(row, before)| !alike(row, *before)).map(|(row, _)| row)
    }

    /// Returns the quantiles, by what is called; the calls in the order in which they were measured.
    pub(crate) fn tails(&self) -> Vec<(&str, Vec<Tail<'_>>)> {
        let mut groups: Vec<(&str, Vec<Tail<'_>>)> = Vec::new();
        for row in &self.rows {
            if row.quantile.is_none() {
                continue;
            }
            let name = row.case().strip_prefix(row.group.as_str()).unwrap_or(row.case()).trim_start();
            if groups.last().is_none_or(|(group, _)| *group != row.group) {
                groups.push((&row.group, Vec::new()));
            }
            let Some((_, tails)) = groups.last_mut() else { continue };
            match tails.last_mut() {
                Some(tail) if tail.name == name => tail.rows.push(row),
                _ => tails.push(Tail { name, rows: vec![row] }),
            }
        }
        groups
    }

    pub(super) fn settle(&mut self) {
        for row in &mut self.rows {
            row.settle(&self.baseline, self.against.as_deref());
        }
        let noisy = self.rows.iter().filter(|row| row.is_noisy(&self.baseline));
        let noisy: Vec<&str> = noisy.map(|row| row.name.as_str()).collect();
        if !noisy.is_empty() {
            self.doubts.push(format!(
                "Noise: the figures of `{}` differ by more than 25 % between rounds in {}.",
                self.baseline,
                noisy.join(", ")
            ));
        }
    }

    pub(super) fn judge(&mut self, rounds: usize) {
        let usual = compared(&self.table);
        for row in self.rows.iter_mut().filter(|row| row.is_judged()) {
            row.judge((&self.columns, &self.baseline), usual, rounds);
        }
    }
}
