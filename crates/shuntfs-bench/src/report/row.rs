//! A row: one figure on every column, with its goal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cell::Cell;
use super::column::{Column, Kind};
use super::compare::{Comparison, Rounds, ratio};
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
    /// Whether the columns took turns of milliseconds: ratios are those of the rounds then, and not of the medians.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_turns: bool,
    /// The column that this row's ratios are to, where that is not the table's baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
    /// What is aimed at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// Our column that is compared, chosen before anything is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<String>,
    /// That column beside the goal; nothing where it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Comparison>,
    /// That column beside each peer that was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Comparison>,
}

/// What is aimed at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// The column that it is about. Runs before 2026-11-24 name several, of which the compared one counts, or the first.
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

    pub(super) fn settle(&mut self, baseline: &str, against: Option<&str>) {
        self.cells.values_mut().for_each(Cell::settle);
        let of = |name: &str| self.cells.get(name).cloned();
        let (base, rival) = (of(self.base(baseline)), against.and_then(of));
        for cell in self.cells.values_mut() {
            // Beside nothing (no processor time that a tick could count) there is no ratio; JSON has no infinity either.
            let beside = |other: &Option<Cell>| ratio([cell, other.as_ref()?], self.better, self.in_turns);
            (cell.ratio, cell.gain) = (beside(&base), beside(&rival));
        }
    }

    /// Compares our column with the goal and with each peer. Rows of older runs name none: theirs is the goal's, or `usual`.
    pub(super) fn judge(
        &mut self,
        (columns, baseline): (&[Column], &str),
        usual: Option<&str>,
        rounds: usize,
    ) {
        let rounds = Rounds { count: rounds, in_turns: self.in_turns };
        let of_goal = self.goal.as_ref().map(|goal| goal.columns.as_slice());
        let named = match of_goal {
            Some([column]) => Some(column.as_str()),
            _ => usual,
        };
        self.ours = self.ours.take().or(named.map(str::to_owned));
        let ours = self.ours.as_ref().and_then(|name| self.cells.get(name));
        let compared = |column: &Column| {
            let cells = [ours?, self.cells.get(&column.name)?];
            Comparison::with_peer(&column.name, cells, self.better, rounds)
        };
        let peers = columns.iter().filter(|column| column.kind == Kind::Peer).filter_map(compared).collect();
        let reached = self.goal.as_ref().and_then(|goal| self.compared_with(goal, baseline, rounds));
        (self.peers, self.reached) = (peers, reached);
    }

    fn compared_with(&self, goal: &Goal, baseline: &str, rounds: Rounds) -> Option<Comparison> {
        let ours = self.ours.as_ref().filter(|name| goal.columns.contains(name)).or(goal.columns.first())?;
        let ours = self.cells.get(ours)?;
        match goal.measure {
            Measure::Ratio => {
                let base = self.cells.get(self.base(baseline))?;
                Comparison::with_goal(goal.value, [ours, base], self.better, rounds)
            }
            Measure::Figure => {
                let aim = Cell {
                    samples: vec![goal.value; ours.samples.len()],
                    median: Some(goal.value),
                    range: Some((goal.value, goal.value)),
                    ..Cell::default()
                };
                Comparison::with_goal(1.0, [ours, &aim], self.better, rounds)
            }
        }
    }

    /// Returns every comparison, the one with the goal first.
    pub(crate) fn comparisons(&self) -> impl Iterator<Item = &Comparison> {
        self.reached.iter().chain(&self.peers)
    }

    /// Returns whether the samples of the baseline lie too far apart to say much.
    pub(super) fn is_noisy(&self, baseline: &str) -> bool {
        /// A quarter: what the field's own tables differ by.
        const SPREAD_MAX: f64 = 0.25;
        let spread = self.cells.get(self.base(baseline)).and_then(Cell::spread);
        self.is_judged() && !self.in_turns && spread.is_some_and(|spread| spread > SPREAD_MAX)
    }

    /// Returns the same of a row that is not settled yet.
    pub(crate) fn wavers(&self, baseline: &str) -> bool {
        let mut row = self.clone();
        row.cells.values_mut().for_each(Cell::settle);
        row.is_noisy(baseline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;

    fn row(unit: Unit, figures: &[(&str, f64)], goal: Goal) -> Row {
        let cells = figures
            .iter()
            .map(|&(name, figure)| (name.to_owned(), Cell { samples: vec![figure; 5], ..Cell::default() }));
        Row {
            name: "row".to_owned(),
            group: "row".to_owned(),
            jobs: None,
            unit,
            quantile: None,
            in_turns: false,
            better: unit.better(),
            cells: cells.collect(),
            beside: None,
            goal: Some(goal),
            ours: None,
            reached: None,
            peers: Vec::new(),
        }
    }

    fn goal(columns: &[&str], measure: Measure, value: f64) -> Goal {
        Goal { columns: columns.iter().map(|&name| name.to_owned()).collect(), measure, value }
    }

    fn met(mut row: Row) -> Option<bool> {
        row.settle("bare", None);
        row.judge((&[], "bare"), Some("a"), 5);
        row.reached.map(|reached| reached.verdict == Verdict::Ahead)
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
        row.settle("bare", Some("a"));
        assert_eq!(
            (row.cells["a"].ratio, row.cells["a"].gain, row.cells["bare"].ratio),
            (None, None, Some(1.0))
        );
    }

    #[test]
    fn seconds_are_met_by_less() {
        let figures = [("bare", 10.0), ("a", 20.0), ("b", 12.0)];
        assert_eq!(met(row(Unit::Seconds, &figures, goal(&["b"], Measure::Ratio, 0.8))), Some(true));
        assert_eq!(met(row(Unit::Seconds, &figures, goal(&["a"], Measure::Ratio, 0.8))), Some(false));
        assert_eq!(met(row(Unit::Times, &figures, goal(&["b"], Measure::Figure, 12.5))), Some(true));
        assert_eq!(met(row(Unit::Times, &figures, goal(&["b"], Measure::Figure, 2.5))), Some(false));
    }

    /// Of several columns none is picked for its figure, with a goal of an older run or beside a peer.
    #[test]
    fn the_compared_column_is_named_and_not_the_best() {
        let figures = [("bare", 100.0), ("a", 50.0), ("b", 99.0), ("peer", 60.0)];
        let both = goal(&["b", "a"], Measure::Ratio, 0.9);
        assert_eq!(met(row(Unit::OpsPerSec, &figures, both)), Some(false), "`a` is named, `b` would do");
        let mut row = row(Unit::OpsPerSec, &figures, goal(&["a"], Measure::Ratio, 0.4));
        let peer = Column {
            name: "peer".to_owned(),
            kind: Kind::Peer,
            command: String::new(),
            version: None,
            missing: None,
        };
        row.settle("bare", None);
        row.judge((&[peer], "bare"), Some("b"), 5);
        let verdicts: Vec<_> = row.comparisons().map(|one| (one.with.as_str(), one.verdict)).collect();
        assert_eq!(verdicts, [("goal", Verdict::Ahead), ("peer", Verdict::Behind)]);
    }
}
