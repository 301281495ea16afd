//! The rows in which we are behind: a goal that is missed, or a peer of the same run that is better, beyond doubt.

use crate::report::{Comparison, Report, Row, Run, Verdict};

/// A row in which we are behind.
#[derive(Debug)]
pub(crate) struct Behind<'a> {
    /// The table.
    pub(crate) report: &'a Report,
    /// The row.
    pub(crate) row: &'a Row,
}

impl Behind<'_> {
    /// Returns how far behind the row is: the less, the further.
    fn part(&self) -> f64 {
        lost(self.row).map(Comparison::part).fold(f64::INFINITY, f64::min)
    }
}

/// Returns the comparisons that a row loses.
pub(crate) fn lost(row: &Row) -> impl Iterator<Item = &Comparison> {
    row.comparisons().filter(|one| one.verdict == Verdict::Behind)
}

/// Returns the rows in which we are behind, the furthest first.
pub(crate) fn behind(run: &Run) -> Vec<Behind<'_>> {
    let rows = run.tables.iter().flat_map(|report| report.judged().map(move |row| Behind { report, row }));
    let mut found: Vec<Behind<'_>> = rows.filter(|behind| lost(behind.row).next().is_some()).collect();
    found.sort_by(|one, other| one.part().total_cmp(&other.part()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Cell, Column, Goal, Kind, Measure, Unit};
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
        (row.unit, row.better, row.ours) = (unit, unit.better(), None);
        let cell = |figure| Cell { samples: vec![figure; 5], ..Cell::default() };
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
