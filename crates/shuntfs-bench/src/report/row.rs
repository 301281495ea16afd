//! A row: one figure on every column, with its goal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cell::Cell;
use super::column::{Column, Kind};
use super::unit::{Better, Unit};

/// One row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The row's name, unique in its table.
    pub name: String,
    /// What rows that belong into one plot have in common: `paged 128k` of `paged 128k j4`.
    pub group: String,
    /// Processes at work, where a plot over them makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// What the figures count.
    pub unit: Unit,
    /// Which quantile of single calls' times they are (`p99`), the end of the row's name; such rows are shown together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile: Option<String>,
    /// Which way is better.
    pub better: Better,
    /// The cells, by the column's name.
    pub cells: BTreeMap<String, Cell>,
    /// The column that this row's ratios are to, where that is not the table's baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// What is aimed at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// Whether it is met; nothing where its columns were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// The best ratio that a peer is on record with, on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_on_record: Option<f64>,
    /// The best peer of this run, and its ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_peer: Option<(String, f64)>,
    /// The best of our columns in this run, and its ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_of_ours: Option<(String, f64)>,
    /// What keeps the row from being better, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// What is aimed at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// The columns that it is about; it is met when the best of them meets it.
    pub columns: Vec<String>,
    /// What is compared.
    pub measure: Measure,
    /// The value to reach: a ratio to be reached, or a figure to be reached or kept below.
    pub value: f64,
}

/// What a goal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Measure {
    /// The ratio to the baseline.
    Ratio,
    /// The figure itself.
    Figure,
}

impl Row {
    /// Returns whether it is judged by itself, beside the baseline and the peers. Quantiles are shown together, unless one has a goal.
    pub(crate) fn is_judged(&self) -> bool {
        self.quantile.is_none() || self.goal.is_some()
    }

    /// Returns the row's name, without the quantile that it is.
    pub(crate) fn case(&self) -> &str {
        let rest = self.quantile.as_deref().and_then(|quantile| self.name.strip_suffix(quantile));
        rest.map_or(&self.name, |rest| rest.trim_end_matches(", "))
    }

    /// Returns the column that ratios are to.
    pub(crate) fn base<'a>(&'a self, baseline: &'a str) -> &'a str {
        self.beside.as_deref().unwrap_or(baseline)
    }

    pub(super) fn settle(&mut self, columns: &[Column], baseline: &str, against: Option<&str>) {
        self.cells.values_mut().for_each(Cell::settle);
        let median = |name: &str| self.cells.get(name).and_then(|cell| cell.median);
        let (base, rival) = (median(self.base(baseline)), against.and_then(median));
        let better = self.better;
        for cell in self.cells.values_mut() {
            // Beside nothing (no processor time that a tick could count) there is no ratio; JSON has no infinity either.
            let beside = |other: Option<f64>| {
                let (median, other) = cell.median.zip(other)?;
                Some(better.ratio(median, other)).filter(|ratio| ratio.is_finite())
            };
            (cell.ratio, cell.gain) = (beside(base), beside(rival));
        }
        self.best_of_ours = self.best(columns, Kind::Ours);
        self.best_peer = self.best(columns, Kind::Peer);
        self.met = self.goal.as_ref().and_then(|goal| self.meets(goal));
    }

    /// Returns whether the samples of the baseline lie too far apart to say much.
    pub(super) fn is_noisy(&self, baseline: &str) -> bool {
        /// A quarter: what the field's own tables differ by.
        const SPREAD_MAX: f64 = 0.25;
        let spread = self.cells.get(self.base(baseline)).and_then(Cell::spread);
        self.is_judged() && spread.is_some_and(|spread| spread > SPREAD_MAX)
    }

    /// Returns the same of a row that is not settled yet.
    pub(crate) fn wavers(&self, baseline: &str) -> bool {
        let mut row = self.clone();
        row.cells.values_mut().for_each(Cell::settle);
        row.is_noisy(baseline)
    }

    fn best(&self, columns: &[Column], kind: Kind) -> Option<(String, f64)> {
        let of_kind = columns.iter().filter(|column| column.kind == kind);
        let ratios =
            of_kind.filter_map(|column| Some((column.name.clone(), self.cells.get(&column.name)?.ratio?)));
        ratios.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }

    fn meets(&self, goal: &Goal) -> Option<bool> {
        let cells = goal.columns.iter().filter_map(|name| self.cells.get(name));
        let verdicts = cells.filter_map(|cell| match (goal.measure, self.better) {
            (Measure::Ratio, _) => Some(reaches(cell.ratio?, goal.value)),
            (Measure::Figure, Better::Higher) => Some(reaches(cell.median?, goal.value)),
            (Measure::Figure, Better::Lower) => Some(reaches(goal.value, cell.median?)),
        });
        verdicts.reduce(|some, next| some || next)
    }
}

/// Compares as the table prints: two digits behind the point.
fn reaches(value: f64, goal: f64) -> bool {
    (value * 100.0).round() >= (goal * 100.0).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: Unit, figures: &[(&str, f64)], goal: Goal) -> Row {
        let cells = figures
            .iter()
            .map(|&(name, figure)| (name.to_owned(), Cell { samples: vec![figure], ..Cell::default() }));
        Row {
            name: "row".to_owned(),
            group: "row".to_owned(),
            jobs: None,
            unit,
            quantile: None,
            better: unit.better(),
            cells: cells.collect(),
            beside: None,
            goal: Some(goal),
            met: None,
            peer_on_record: None,
            best_peer: None,
            best_of_ours: None,
            limit: None,
        }
    }

    fn goal(columns: &[&str], measure: Measure, value: f64) -> Goal {
        Goal { columns: columns.iter().map(|&name| name.to_owned()).collect(), measure, value }
    }

    fn met(mut row: Row) -> Option<bool> {
        row.settle(&[], "bare", None);
        row.met
    }

    #[test]
    fn a_ratio_is_met_as_it_is_printed() {
        let figures = [("bare", 100.0), ("a", 99.6), ("b", 10.0)];
        assert_eq!(met(row(Unit::OpsPerSec, &figures, goal(&["a"], Measure::Ratio, 1.0))), Some(true));
        assert_eq!(met(row(Unit::OpsPerSec, &figures, goal(&["b"], Measure::Ratio, 1.0))), Some(false));
        assert_eq!(met(row(Unit::OpsPerSec, &figures, goal(&["absent"], Measure::Ratio, 1.0))), None);
    }

    #[test]
    fn a_row_may_be_beside_another_column() {
        let figures = [("bare", 100.0), ("served", 50.0), ("a", 45.0)];
        let mut row = row(Unit::MibPerSec, &figures, goal(&["a"], Measure::Ratio, 0.9));
        row.beside = Some("served".to_owned());
        assert_eq!(met(row.clone()), Some(true));
        row.beside = None;
        assert_eq!(met(row), Some(false));
    }

    #[test]
    fn beside_nothing_there_is_no_ratio() {
        let mut row =
            row(Unit::CpuSecPerGib, &[("bare", 0.1), ("a", 0.0)], goal(&["a"], Measure::Ratio, 1.0));
        row.settle(&[], "bare", Some("a"));
        assert_eq!(
            (row.cells["a"].ratio, row.cells["a"].gain, row.cells["bare"].ratio),
            (None, None, Some(1.0))
        );
    }

    #[test]
    fn seconds_are_met_by_less_and_by_the_best_column() {
        let figures = [("bare", 10.0), ("a", 20.0), ("b", 12.0)];
        assert_eq!(met(row(Unit::Seconds, &figures, goal(&["a", "b"], Measure::Ratio, 0.8))), Some(true));
        assert_eq!(met(row(Unit::Seconds, &figures, goal(&["a"], Measure::Ratio, 0.8))), Some(false));
        assert_eq!(met(row(Unit::Times, &figures, goal(&["b"], Measure::Figure, 12.5))), Some(true));
        assert_eq!(met(row(Unit::Times, &figures, goal(&["a", "b"], Measure::Figure, 2.5))), Some(false));
    }
}
