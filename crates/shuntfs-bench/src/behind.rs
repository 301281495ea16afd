//! The rows in which we are behind: a goal that is missed, or a peer of the same run that is better.

use crate::report::{Better, Cell, Goal, Measure, Report, Row, Run};

/// A row in which we are behind.
#[derive(Debug)]
pub(crate) struct Behind<'a> {
    /// The table.
    pub(crate) report: &'a Report,
    /// The row.
    pub(crate) row: &'a Row,
    /// The goal, with how much of it the best of its columns reaches.
    pub(crate) goal: Option<(&'a Goal, Reached<'a>)>,
    /// The best peer with its ratio, and our best with its own, where the peer is better.
    pub(crate) peer: Option<Lead<'a>>,
}

/// How much of a goal is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reached<'a> {
    /// The best of the goal's columns.
    pub(crate) column: &'a str,
    /// Its ratio, or its figure, as the goal measures.
    pub(crate) value: f64,
    /// How good that is beside the goal: 1 is met.
    pub(crate) part: f64,
}

/// A peer that is better than we are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lead<'a> {
    /// The peer, and its ratio.
    pub(crate) theirs: (&'a str, f64),
    /// Our best column, and its ratio.
    pub(crate) ours: (&'a str, f64),
}

impl Lead<'_> {
    /// Returns how good we are beside the peer.
    pub(crate) fn part(&self) -> f64 {
        self.ours.1 / self.theirs.1
    }
}

impl Behind<'_> {
    /// Returns how far behind the row is: the less, the further.
    pub(crate) fn part(&self) -> f64 {
        let goal = self.goal.as_ref().map_or(f64::INFINITY, |(_, reached)| reached.part);
        goal.min(self.peer.as_ref().map_or(f64::INFINITY, Lead::part))
    }
}

/// Returns the rows in which we are behind, the furthest first.
pub(crate) fn behind(run: &Run) -> Vec<Behind<'_>> {
    let rows = run.tables.iter().flat_map(|report| report.rows.iter().map(move |row| (report, row)));
    let mut found: Vec<Behind<'_>> = rows.filter_map(|(report, row)| look(report, row)).collect();
    found.sort_by(|one, other| one.part().total_cmp(&other.part()));
    found
}

fn look<'a>(report: &'a Report, row: &'a Row) -> Option<Behind<'a>> {
    if !row.is_judged() {
        return None;
    }
    let missed = row.goal.as_ref().filter(|_| row.met == Some(false));
    let goal = missed.and_then(|goal| Some((goal, reached(row, goal)?)));
    let peer = lead(row);
    (goal.is_some() || peer.is_some()).then_some(Behind { report, row, goal, peer })
}

/// Returns how much of a goal the best of its columns reaches; nothing where none was measured.
pub(crate) fn reached<'a>(row: &Row, goal: &'a Goal) -> Option<Reached<'a>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Column, Kind, Unit};
    use crate::sample;

    /// One row, `peer` and `shunt` beside `bare`, with a goal for shunt.
    fn measured(unit: Unit, figures: [f64; 3], goal: (Measure, f64)) -> Run {
        let mut run = sample::run();
        let report = &mut run.tables[0];
        let names = [("bare", Kind::Floor), ("peer", Kind::Peer), ("shunt", Kind::Ours)];
        let head =
            |(name, kind): (&str, Kind)| Column { name: name.to_owned(), kind, ..report.columns[0].clone() };
        report.columns = names.map(head).to_vec();
        report.rows.truncate(1);
        let row = &mut report.rows[0];
        (row.unit, row.better) = (unit, unit.better());
        let cell = |figure| Cell { samples: vec![figure], ..Cell::default() };
        row.cells =
            names.iter().zip(figures).map(|((name, _), figure)| ((*name).to_owned(), cell(figure))).collect();
        row.goal = Some(Goal { columns: vec!["shunt".to_owned()], measure: goal.0, value: goal.1 });
        run.settle();
        run
    }

    #[test]
    fn a_row_is_behind_its_goal_or_a_peer() {
        for (unit, figures, goal, part) in [
            (Unit::OpsPerSec, [100.0, 50.0, 90.0], (Measure::Ratio, 0.9), None),
            (Unit::OpsPerSec, [100.0, 50.0, 90.0], (Measure::Ratio, 1.0), Some(0.9)),
            (Unit::OpsPerSec, [100.0, 90.0, 45.0], (Measure::Ratio, 0.4), Some(0.5)),
            (Unit::Seconds, [10.0, 40.0, 20.0], (Measure::Ratio, 0.5), None),
            (Unit::Seconds, [10.0, 10.0, 20.0], (Measure::Ratio, 0.5), Some(0.5)),
            (Unit::Times, [1.0, 9.0, 5.0], (Measure::Figure, 2.5), Some(0.5)),
            (Unit::Times, [1.0, 9.0, 2.4], (Measure::Figure, 2.5), None),
        ] {
            let run = measured(unit, figures, goal);
            let parts: Vec<f64> = behind(&run).iter().map(Behind::part).collect();
            let near = parts.iter().zip(part).all(|(got, want)| (got - want).abs() < 1e-9);
            assert!(near && parts.len() == usize::from(part.is_some()), "{unit:?} {figures:?}: {parts:?}");
        }
    }

    #[test]
    fn the_furthest_behind_comes_first() {
        let mut run = measured(Unit::OpsPerSec, [100.0, 10.0, 80.0], (Measure::Ratio, 1.0));
        let far = measured(Unit::OpsPerSec, [100.0, 10.0, 20.0], (Measure::Ratio, 1.0));
        run.tables.extend(far.tables);
        let parts: Vec<f64> = behind(&run).iter().map(Behind::part).collect();
        assert!(parts.len() == 2 && parts[0] < parts[1], "{parts:?}");
    }
}
