//! What was measured.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::goal::{Goal, Recorded, Role, recorded};
use crate::machine::Machine;
use crate::table::Table;
use crate::target::Target;

/// A whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The table's name.
    pub table: String,
    /// The machine.
    pub machine: Machine,
    /// What the lower file system is.
    pub lower: String,
    /// Rounds that were asked for.
    pub rounds: usize,
    /// Bytes of each large file.
    pub file_len: u64,
    /// Small files of each job.
    pub files: u64,
    /// Files and bytes of the tree, if a case needed one.
    pub tree: Option<(usize, u64)>,
    /// The columns.
    pub targets: Vec<TargetReport>,
    /// The rows.
    pub cases: Vec<CaseReport>,
    /// Whether the run was ended before its last round.
    pub interrupted: bool,
    /// What makes the figures doubtful.
    pub doubts: Vec<String>,
}

/// One column's head.
#[derive(Debug, Clone, Serialize)]
pub struct TargetReport {
    /// The target's name.
    pub name: String,
    /// What is run.
    pub command: String,
    /// What the program says its version is.
    pub version: Option<String>,
    /// Which goals it is held to.
    pub role: Option<Role>,
}

/// One row.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// The case's name.
    pub name: String,
    /// The cells, by the target's name.
    pub cells: BTreeMap<String, Cell>,
    /// What is aimed at.
    pub goal: Option<Goal>,
    /// Whether it is met; nothing where its target was not measured.
    pub met: Option<bool>,
    /// The best ratio that a peer is on record with.
    pub best_peer: Option<f64>,
    /// Whether the best of our targets reaches it.
    pub best_peer_met: Option<bool>,
}

/// One figure: operations a second over the rounds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Cell {
    /// Every round's figure, in order.
    pub samples: Vec<f64>,
    /// The middle one.
    pub median: Option<f64>,
    /// The median as a ratio to the bare folder's.
    pub ratio: Option<f64>,
    /// What went wrong, the first time something did.
    pub error: Option<String>,
}

impl Cell {
    /// Returns the least and the largest figure.
    #[must_use]
    pub fn range(&self) -> Option<(f64, f64)> {
        let least = self.samples.iter().copied().reduce(f64::min)?;
        let largest = self.samples.iter().copied().reduce(f64::max)?;
        Some((least, largest))
    }

    /// Returns how far the figures lie apart, as a part of the median.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        let (least, largest) = self.range()?;
        Some((largest - least) / self.median?)
    }

    pub(crate) fn fail(&mut self, error: &anyhow::Error) {
        self.error.get_or_insert_with(|| format!("{error:#}"));
    }
}

impl Report {
    pub(crate) fn new(table: &Table, targets: &[Target]) -> Self {
        let head = |target: &Target| TargetReport {
            name: target.name.clone(),
            command: target.about(),
            version: None,
            role: target.role,
        };
        let row = |name: &str| CaseReport {
            name: name.to_owned(),
            cells: targets.iter().map(|target| (target.name.clone(), Cell::default())).collect(),
            goal: None,
            met: None,
            best_peer: None,
            best_peer_met: None,
        };
        Self {
            table: table.name.to_owned(),
            machine: Machine::look(),
            lower: String::new(),
            rounds: 0,
            file_len: 0,
            files: 0,
            tree: None,
            targets: targets.iter().map(head).collect(),
            cases: table.cases.iter().map(|case| row(case.name)).collect(),
            interrupted: false,
            doubts: Vec::new(),
        }
    }

    /// Returns whether there is any figure.
    pub(crate) fn has_figures(&self) -> bool {
        let mut cells = self.cases.iter().flat_map(|case| case.cells.values());
        cells.any(|cell| !cell.samples.is_empty())
    }

    /// Returns whether every round was run, and every cell has a figure and no error.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let mut cells = self.cases.iter().flat_map(|case| case.cells.values());
        !self.interrupted && cells.all(|cell| cell.error.is_none() && !cell.samples.is_empty())
    }

    /// Works out medians, ratios and goals from the samples.
    pub(crate) fn settle(&mut self) {
        let targets = self.targets.clone();
        for case in &mut self.cases {
            case.settle(&targets);
        }
        self.doubts.extend(self.machine.doubts());
        if self.interrupted {
            self.doubts.push("Interrupted: later rows have fewer figures than earlier ones.".to_owned());
        }
        if self.rounds < 3 {
            self.doubts.push(format!("{} round(s): fewer than 3 have no meaningful median.", self.rounds));
        }
        let noisy: Vec<_> =
            self.cases.iter().filter(|case| case.is_noisy()).map(|case| case.name.clone()).collect();
        if !noisy.is_empty() {
            self.doubts
                .push(format!("Noise: the bare figures differ by more than 25 % in {}.", noisy.join(", ")));
        }
    }
}

impl CaseReport {
    fn settle(&mut self, targets: &[TargetReport]) {
        for cell in self.cells.values_mut() {
            cell.median = median(&cell.samples);
        }
        let bare = self.cells.get("bare").and_then(|cell| cell.median);
        for cell in self.cells.values_mut() {
            cell.ratio = cell.median.zip(bare).map(|(median, bare)| median / bare);
        }
        let Some(row) = recorded().iter().find(|row| row.case == self.name) else { return };
        self.judge(row, targets);
    }

    fn judge(&mut self, row: &Recorded, targets: &[TargetReport]) {
        let ratio = |target: &TargetReport| self.cells.get(&target.name).and_then(|cell| cell.ratio);
        let held = targets.iter().find(|target| target.role == Some(row.goal.role));
        let ours = targets.iter().filter(|target| target.role.is_some()).filter_map(ratio).reduce(f64::max);
        let met = held.and_then(ratio).map(|ratio| reaches(ratio, row.goal.ratio));
        self.goal = Some(row.goal);
        self.met = met;
        self.best_peer = Some(row.best_peer());
        self.best_peer_met = ours.map(|ratio| reaches(ratio, row.best_peer()));
    }

    fn is_noisy(&self) -> bool {
        self.cells.get("bare").and_then(Cell::spread).is_some_and(|spread| spread > 0.25)
    }
}

/// Compares as the table prints: two digits behind the point.
fn reaches(ratio: f64, goal: f64) -> bool {
    (ratio * 100.0).round() >= (goal * 100.0).round()
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::table::tables;
    use crate::target::Mounting;

    pub(crate) fn sample() -> Report {
        let target = |name: &str, role| Target { name: name.to_owned(), mounting: Mounting::Bare, role };
        let targets = [
            target("bare", None),
            target("shunt", Some(Role::Default)),
            target("shunt-uring", Some(Role::Served)),
        ];
        let mut table = tables().remove(0);
        table.cases.retain(|case| ["seed0 read 4k", "seed3 dio 1m j1"].contains(&case.name));
        let mut report = Report::new(&table, &targets);
        report.rounds = 3;
        for (name, samples) in [
            ("bare", [100.0, 104.0, 90.0]),
            ("shunt", [99.6, 99.6, 99.6]),
            ("shunt-uring", [70.0, 70.0, 70.0]),
        ] {
            for case in &mut report.cases {
                case.cells.get_mut(name).unwrap().samples = samples.to_vec();
            }
        }
        report.settle();
        report
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn each_goal_is_judged_on_its_own_target() {
        let report = sample();
        assert_eq!(report.cases[0].met, Some(true), "0.996 prints as 1.00");
        assert_eq!(report.cases[1].met, Some(false), "0.70 on uring is below 0.75");
        assert_eq!(report.cases[0].best_peer_met, Some(false), "the best peer has 1.11");
    }

    #[test]
    fn spread_is_relative_to_the_median() {
        let cell = sample().cases[0].cells["bare"].clone();
        assert!((cell.spread().unwrap() - 0.14).abs() < 1e-9);
    }
}
