//! What the bars of a table say, line by line: everything but the drawing.

use super::super::state::{State, absent, base, goal_as_ratio, range_as_ratios};
use super::super::words::{figure, ratio};
use crate::report::{Column, Kind, Report, Row};

/// A row's block of lines.
#[derive(Debug, PartialEq)]
pub(super) struct Block {
    /// The row's name.
    pub(super) name: String,
    /// What the ratios are to, and its figure.
    pub(super) base: String,
    /// How far the baseline scatters around 1, as ratios.
    pub(super) band: Option<(f64, f64)>,
    /// A line for each other column.
    pub(super) lines: Vec<Line>,
}

/// A column's line in a block.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    /// The column's name.
    pub(super) name: String,
    /// Whose it is.
    pub(super) kind: Kind,
    /// The bar, where there is a ratio.
    pub(super) bar: Option<Bar>,
    /// What stands at the line's end: the ratio, or why there is none.
    pub(super) words: String,
    /// Where the goal is, if it is about this column.
    pub(super) goal: Option<f64>,
}

/// A bar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bar {
    /// The ratio.
    pub(super) ratio: f64,
    /// The worst and the best round, as ratios to the baseline's median.
    pub(super) range: Option<(f64, f64)>,
}

/// Lays the rows out.
pub(super) fn blocks(report: &Report, rows: &[&Row]) -> Vec<Block> {
    rows.iter().map(|row| block(report, row)).collect()
}

fn block(report: &Report, row: &Row) -> Block {
    let base = base(report, row);
    let figure = base.and_then(|cell| cell.median).map(|median| figure(median, row.unit));
    let absent: Vec<&Column> = absent(report).collect();
    let shown = |column: &&Column| column.name != report.baseline && !absent.contains(column);
    let others = report.columns.iter().filter(shown);
    Block {
        name: row.name.clone(),
        base: format!("{}: {}", row.base(&report.baseline), figure.unwrap_or_else(|| "no figure".to_owned())),
        band: base.and_then(|cell| range_as_ratios(report, row, cell)),
        lines: others.map(|column| line(report, row, column)).collect(),
    }
}

fn line(report: &Report, row: &Row, column: &Column) -> Line {
    let cell = row.cells.get(&column.name);
    let (bar, words) = match State::of(row, column) {
        State::Figure { ratio: Some(value), error, .. } => {
            let range = cell.and_then(|cell| range_as_ratios(report, row, cell));
            let failed = if error.is_some() { " (failed)" } else { "" };
            (Some(Bar { ratio: value, range }), format!("{}{failed}", ratio(value)))
        }
        State::Figure { median, ratio: None, .. } => (None, figure(median, row.unit)),
        State::Failed(_) => (None, "failed".to_owned()),
        State::Skipped(_) | State::Unknown => (None, "not measured".to_owned()),
    };
    let goal = row.goal.as_ref().filter(|goal| goal.columns.contains(&column.name));
    let goal = goal.and_then(|_| goal_as_ratio(report, row));
    Line { name: column.name.clone(), kind: column.kind, bar, words, goal }
}

/// Returns where the scale ends. Few bars that are far longer than all others do not flatten those: they are cut.
pub(super) fn scale_end(blocks: &[Block]) -> f64 {
    /// The scale reaches at least a little beyond the baseline.
    const LEAST: f64 = 1.2;
    /// Twice as good as the baseline: beyond, the exact length is of little interest.
    const USUAL: f64 = 2.0;
    let lines = || blocks.iter().flat_map(|block| &block.lines);
    let ratios: Vec<f64> = lines().filter_map(|line| line.bar).map(|bar| bar.ratio).collect();
    let ends = ratios.iter().copied().chain(lines().filter_map(|line| line.goal));
    let largest = ends.fold(LEAST, f64::max) * 1.04;
    let long = ratios.iter().filter(|ratio| **ratio > USUAL).count();
    if long * 3 > ratios.len() { largest } else { largest.min(USUAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(ratios: &[f64]) -> f64 {
        let line = |&ratio: &f64| Line {
            name: String::new(),
            kind: Kind::Ours,
            bar: Some(Bar { ratio, range: None }),
            words: String::new(),
            goal: None,
        };
        let lines = ratios.iter().map(line).collect();
        scale_end(&[Block { name: String::new(), base: String::new(), band: None, lines }])
    }

    #[test]
    fn a_few_long_bars_do_not_flatten_the_others() {
        assert!((ending(&[0.3, 0.5]) - 1.248).abs() < 1e-9, "the baseline is always seen");
        assert!((ending(&[0.3, 1.5]) - 1.56).abs() < 1e-9);
        assert!((ending(&[0.3, 0.5, 0.9, 40.0]) - 2.0).abs() < 1e-9);
        assert!((ending(&[30.0, 0.5, 40.0]) - 41.6).abs() < 1e-9, "most are long");
        assert!((ending(&[]) - 1.248).abs() < 1e-9);
    }
}
