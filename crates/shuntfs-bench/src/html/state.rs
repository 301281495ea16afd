//! What there is to say about a cell: a figure, or why there is none.

use crate::report::{Cell, Column, Measure, Report, Row};

/// What there is to say about a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State<'a> {
    /// A figure, and an error where other rounds had one.
    Figure {
        /// The median.
        median: f64,
        /// The ratio to the baseline, where the baseline has a figure.
        ratio: Option<f64>,
        /// What went wrong in another round.
        error: Option<&'a str>,
    },
    /// It was tried.
    Failed(&'a str),
    /// It was not tried, and why.
    Skipped(&'a str),
    /// Nothing is known about it.
    Unknown,
}

impl<'a> State<'a> {
    pub(super) fn of(row: &'a Row, column: &'a Column) -> Self {
        let cell = row.cells.get(&column.name);
        let median = cell.and_then(|cell| cell.median).filter(|median| median.is_finite());
        let error = cell.and_then(|cell| cell.error.as_deref());
        if let Some(median) = median {
            let ratio = cell.and_then(|cell| cell.ratio).filter(|ratio| ratio.is_finite());
            return Self::Figure { median, ratio, error };
        }
        if let Some(error) = error {
            return Self::Failed(error);
        }
        let skipped = cell.and_then(|cell| cell.skipped.as_deref());
        skipped.or(column.missing.as_deref()).map_or(Self::Unknown, Self::Skipped)
    }
}

/// Returns the baseline's cell of a row.
pub(super) fn base<'a>(report: &Report, row: &'a Row) -> Option<&'a Cell> {
    row.cells.get(row.base(&report.baseline))
}

/// Returns how far the baseline's rounds lie apart in a row, as a part of its median, where that is much.
pub(super) fn noise(report: &Report, row: &Row) -> Option<f64> {
    /// A difference of less is seen through the noise.
    const MUCH: f64 = 0.25;
    base(report, row)?.spread().filter(|spread| *spread > MUCH)
}

/// Returns least and largest of a cell as ratios to the baseline's median, the worse one first.
pub(super) fn range_as_ratios(report: &Report, row: &Row, cell: &Cell) -> Option<(f64, f64)> {
    let base = base(report, row)?.median?;
    let (least, largest) = cell.range?;
    let (one, other) = (row.better.ratio(least, base), row.better.ratio(largest, base));
    (one.is_finite() && other.is_finite()).then(|| (one.min(other), one.max(other)))
}

/// Returns a row's goal as a ratio to the baseline.
pub(super) fn goal_as_ratio(report: &Report, row: &Row) -> Option<f64> {
    let goal = row.goal.as_ref()?;
    let value = match goal.measure {
        Measure::Ratio => goal.value,
        Measure::Figure => row.better.ratio(goal.value, base(report, row)?.median?),
    };
    value.is_finite().then_some(value)
}

/// Returns the columns of which there is nothing to show in any row, and why is known.
pub(super) fn absent(report: &Report) -> impl Iterator<Item = &Column> {
    let known = |row: &Row, name: &str| {
        row.cells.get(name).is_some_and(|cell| cell.median.is_some() || cell.error.is_some())
    };
    let absent = move |column: &&Column| {
        column.missing.is_some() && !report.rows.iter().any(|row| known(row, &column.name))
    };
    report.columns.iter().filter(absent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Unit;
    use crate::sample;

    #[test]
    fn a_goal_is_drawn_as_a_ratio() {
        for (unit, measure, value) in [
            (Unit::OpsPerSec, Measure::Ratio, 0.5),
            (Unit::OpsPerSec, Measure::Figure, 50.0),
            (Unit::Seconds, Measure::Ratio, 0.5),
            (Unit::Seconds, Measure::Figure, 200.0),
        ] {
            let mut run = sample::run();
            let report = &mut run.tables[0];
            let row = &mut report.rows[0];
            row.better = unit.better();
            row.cells.get_mut("bare").unwrap().median = Some(100.0);
            let goal = row.goal.as_mut().unwrap();
            (goal.measure, goal.value) = (measure, value);
            let report = &run.tables[0];
            assert_eq!(goal_as_ratio(report, &report.rows[0]), Some(0.5), "{unit:?} {measure:?}");
        }
    }
}
