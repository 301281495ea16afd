//! The rows in which we are behind: a goal that is missed, or a peer of the same run that is better.

use crate::report::{Better, Cell, Goal, Measure, Report, Row, Run};

/// A row in which we are behind.
#[derive(Debug)]
pub(super) struct Behind<'a> {
    /// The table.
    pub(super) report: &'a Report,
    /// The row.
    pub(super) row: &'a Row,
    /// The goal, with how much of it the best of its columns reaches.
    pub(super) goal: Option<(&'a Goal, Reached<'a>)>,
    /// The best peer with its ratio, and our best with its own, where the peer is better.
    pub(super) peer: Option<Lead<'a>>,
}

/// How much of a goal is reached.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached<'a> {
    /// The best of the goal's columns.
    pub(super) column: &'a str,
    /// Its ratio, or its figure, as the goal measures.
    pub(super) value: f64,
    /// How good that is beside the goal: 1 is met.
    pub(super) part: f64,
}

/// A peer that is better than we are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lead<'a> {
    /// The peer, and its ratio.
    pub(super) theirs: (&'a str, f64),
    /// Our best column, and its ratio.
    pub(super) ours: (&'a str, f64),
}

impl Lead<'_> {
    /// Returns how good we are beside the peer.
    pub(super) fn part(&self) -> f64 {
        self.ours.1 / self.theirs.1
    }
}

impl Behind<'_> {
    /// Returns how far behind the row is: the less, the further.
    pub(super) fn part(&self) -> f64 {
        let goal = self.goal.as_ref().map_or(f64::INFINITY, |(_, reached)| reached.part);
        goal.min(self.peer.as_ref().map_or(f64::INFINITY, Lead::part))
    }
}

/// Returns the rows in which we are behind, the furthest first.
pub(super) fn behind(run: &Run) -> Vec<Behind<'_>> {
    let rows = run.tables.iter().flat_map(|report| report.rows.iter().map(move |row| (report, row)));
    let mut found: Vec<Behind<'_>> = rows.filter_map(|(report, row)| look(report, row)).collect();
    found.sort_by(|one, other| one.part().total_cmp(&other.part()));
    found
}

fn look<'a>(report: &'a Report, row: &'a Row) -> Option<Behind<'a>> {
    let missed = row.goal.as_ref().filter(|_| row.met == Some(false));
    let goal = missed.and_then(|goal| Some((goal, reached(row, goal)?)));
    let peer = lead(row);
    (goal.is_some() || peer.is_some()).then_some(Behind { report, row, goal, peer })
}

/// Returns how much of a goal the best of its columns reaches; nothing where none was measured.
pub(super) fn reached<'a>(row: &Row, goal: &'a Goal) -> Option<Reached<'a>> {
    let column = |name: &'a String| {
        let value = measured(row.cells.get(name)?, goal.measure)?;
        let better = if goal.measure == Measure::Ratio { Better::Higher } else { row.better };
        Some(Reached { column: name, value, part: better.ratio(value, goal.value) })
    };
    goal.columns
        .iter()
        .filter_map(column)
        .reduce(|best, next| if next.part > best.part { next } else { best })
}

fn measured(cell: &Cell, measure: Measure) -> Option<f64> {
    let value = if measure == Measure::Ratio { cell.ratio } else { cell.median };
    value.filter(|value| value.is_finite())
}

/// Returns the peer that is better than we are, as far as two digits can tell.
fn lead(row: &Row) -> Option<Lead<'_>> {
    let (ours, theirs) = row.best_of_ours.as_ref().zip(row.best_peer.as_ref())?;
    let printed = |ratio: f64| (ratio * 100.0).round();
    let better = printed(theirs.1) > printed(ours.1);
    better.then_some(Lead { theirs: (&theirs.0, theirs.1), ours: (&ours.0, ours.1) })
}
