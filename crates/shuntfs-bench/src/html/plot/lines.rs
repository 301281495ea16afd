//! Lines: the figures of one group of rows against the number of jobs, a line for each column.

use std::ops::Range;

use anyhow::Result;
use plotters::chart::{ChartBuilder, LabelAreaPosition};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::element::{Circle, PathElement, Polygon, Rectangle, Text};
use plotters::style::{Color as _, TRANSPARENT};

use super::super::ink::{FAINT, FLOOR, GOAL, GRID, Ink, LINES, TEXT};
use super::super::state::goal_as_figure;
use super::super::words::{short, slug};
use super::Plot;
use super::frame::{Area, At, EDGE, NAME, Said, WIDTH, bold, draw as on_paper, px, stroke, text};
use super::measure::{bold_width, fit, fit_bold};
use crate::report::{Better, Column, Kind, Report, Row};

const HEIGHT: u32 = 358;
/// Above: the plot's name and the goal's mark.
const TOP: u32 = NAME + 28;
const BOTTOM: u32 = 44;
const LEFT: u32 = 56;
/// Between two names at the lines' ends.
const APART: i32 = 18;
/// Room for a column's name, at most.
const NAME_ROOM: u32 = 140;

/// Draws a group of rows.
pub(super) fn draw(report: &Report, group: &str, rows: &[&Row], name: &str) -> Result<Plot> {
    let said = said(report, group, rows, name);
    let sheet = Sheet::new(report, rows);
    let svg = on_paper(&said, HEIGHT, |area| sheet.draw(area))?;
    let (table, caption) = (report.table.clone(), said.description);
    Ok(Plot { table, file: format!("{}.svg", slug(name)), caption, svg })
}

fn said(report: &Report, group: &str, rows: &[&Row], name: &str) -> Said {
    let better = match rows.first().map(|row| row.better) {
        Some(Better::Lower) => "lower",
        _ => "higher",
    };
    Said {
        id: format!("plot-{name}"),
        title: format!("{}: {group}, {} ({better} is better)", report.table, unit(rows)),
        description: "A line for each column, against the number of jobs; marks above and below a point are the best and \
                      the worst round."
            .to_owned(),
    }
}

fn unit(rows: &[&Row]) -> &'static str {
    rows.first().map_or("", |row| row.unit.label())
}

/// A column's points.
struct Line<'a> {
    column: &'a Column,
    look: Look,
    /// Which number of jobs, the median, least and largest.
    points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
struct Point {
    x: f64,
    median: f64,
    range: (f64, f64),
}

/// How a line is told from the others: by colour, by the shape of its points, and by its name at its end.
#[derive(Debug, Clone, Copy)]
struct Look {
    ink: Ink,
    shape: usize,
    width: u32,
}

struct Sheet<'a> {
    jobs: Vec<(f64, u32)>,
    lines: Vec<Line<'a>>,
    goals: Goals,
    top: f64,
    right: u32,
}

impl<'a> Sheet<'a> {
    fn new(report: &'a Report, rows: &[&Row]) -> Self {
        let mut jobs: Vec<u32> = rows.iter().filter_map(|row| row.jobs).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let jobs: Vec<(f64, u32)> = (0_u32..).map(f64::from).zip(jobs).collect();
        let mut lines = Vec::new();
        for (column, look) in report.columns.iter().zip(looks(&report.columns)) {
            let points = points(column, rows, &jobs);
            if !points.is_empty() {
                lines.push(Line { column, look, points });
            }
        }
        let tops = lines.iter().flat_map(|line| line.points.iter().map(|point| point.range.1));
        let goals = Goals::new(report, rows, &jobs);
        let tops = tops.chain(goals.places.iter().map(|(_, figure)| *figure));
        let top = tops.fold(0.0, f64::max) * 1.06;
        let names = lines.iter().map(|line| bold_width(&fit_bold(&line.column.name, NAME_ROOM)));
        let right = names.max().unwrap_or(0) + 30;
        let top = if top > 0.0 { top } else { 1.0 };
        Self { jobs, lines, goals, top, right }
    }

    fn draw(&self, area: &Area<'_>) -> Result<()> {
        let mut chart = ChartBuilder::on(area)
            .margin_top(TOP)
            .margin_right(self.right)
            .margin_bottom(6)
            .set_label_area_size(LabelAreaPosition::Left, LEFT)
            .set_label_area_size(LabelAreaPosition::Bottom, BOTTOM)
            .build_cartesian_2d(Steps::new(&self.jobs), 0.0..self.top)?;
        chart
            .configure_mesh()
            .y_labels(6)
            .y_label_formatter(&|figure| short(*figure))
            .label_style(text(FAINT, At::Left))
            .x_desc("jobs")
            .axis_desc_style(text(FAINT, At::Left))
            .bold_line_style(GRID.light)
            .light_line_style(TRANSPARENT)
            .axis_style(FAINT.light)
            .draw()?;
        for line in self.lines.iter().rev() {
            let at = |x: f64, y: f64| chart.backend_coord(&(x, y));
            line.draw(area, &at)?;
        }
        for (x, figure) in &self.goals.places {
            goal_mark(area, chart.backend_coord(&(*x, *figure)))?;
        }
        self.goals.legend(area)?;
        let ends = self.lines.iter().filter_map(|line| {
            let last = line.points.last()?;
            Some((line, chart.backend_coord(&(last.x, last.median))))
        });
        names(area, ends.collect(), px(WIDTH - self.right))
    }
}

/// What is aimed at, as figures.
struct Goals {
    /// Whose the goals are.
    columns: Vec<String>,
    /// Which number of jobs, and the figure.
    places: Vec<(f64, f64)>,
}

impl Goals {
    fn new(report: &Report, rows: &[&Row], jobs: &[(f64, u32)]) -> Self {
        let mut goals = Self { columns: Vec::new(), places: Vec::new() };
        for &(x, jobs) in jobs {
            let Some(row) = rows.iter().find(|row| row.jobs == Some(jobs)) else { continue };
            let Some((goal, figure)) = row.goal.as_ref().zip(goal_as_figure(report, row)) else { continue };
            goals.places.push((x, figure));
            for column in &goal.columns {
                if !goals.columns.contains(column) {
                    goals.columns.push(column.clone());
                }
            }
        }
        goals
    }

    fn legend(&self, area: &Area<'_>) -> Result<()> {
        if self.places.is_empty() {
            return Ok(());
        }
        let y = px(NAME + 8);
        goal_mark(area, (px(EDGE) + 12, y))?;
        let words = fit(&format!("goal of {}", self.columns.join(" or ")), WIDTH - 50);
        area.draw(&Text::new(words, (px(EDGE) + 32, y), text(FAINT, At::Left)))?;
        Ok(())
    }
}

/// A stroke to be reached, with a head at either end.
fn goal_mark(area: &Area<'_>, (x, y): (i32, i32)) -> Result<()> {
    area.draw(&PathElement::new([(x - 10, y), (x + 10, y)], stroke(GOAL, 3)))?;
    area.draw(&Polygon::new([(x - 14, y - 5), (x - 14, y + 5), (x - 8, y)], GOAL.light))?;
    area.draw(&Polygon::new([(x + 14, y - 5), (x + 14, y + 5), (x + 8, y)], GOAL.light))?;
    Ok(())
}

/// The scale of jobs: numbers of jobs double from one to the next, so they stand at equal steps.
struct Steps {
    inner: RangedCoordf64,
    jobs: Vec<(f64, u32)>,
}

impl Steps {
    fn new(jobs: &[(f64, u32)]) -> Self {
        /// Beside the first and the last.
        const SPACE: f64 = 0.25;
        let last = jobs.last().map_or(0.0, |(x, _)| *x);
        Self { inner: (-SPACE..last + SPACE).into(), jobs: jobs.to_vec() }
    }
}

impl Ranged for Steps {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.inner.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            return Vec::new();
        }
        self.jobs.iter().map(|(x, _)| *x).collect()
    }

    fn range(&self) -> Range<f64> {
        self.inner.range()
    }
}

impl ValueFormatter<f64> for Steps {
    fn format_ext(&self, value: &f64) -> String {
        let near = self.jobs.iter().find(|(at, _)| (at - value).abs() < 0.1);
        near.map_or(String::new(), |(_, jobs)| jobs.to_string())
    }
}

/// Gives each column its look: what is to be reached is grey.
fn looks(columns: &[Column]) -> Vec<Look> {
    let (mut colored, mut grey) = (0, 0);
    let look = |column: &Column| {
        if column.kind == Kind::Floor {
            grey += 1;
            return Look { ink: FLOOR, shape: grey - 1, width: 2 };
        }
        colored += 1;
        let width = if column.kind == Kind::Ours { 3 } else { 2 };
        Look { ink: LINES[(colored - 1) % LINES.len()], shape: colored - 1, width }
    };
    columns.iter().map(look).collect()
}

fn points(column: &Column, rows: &[&Row], jobs: &[(f64, u32)]) -> Vec<Point> {
    let point = |&(x, jobs): &(f64, u32)| {
        let row = rows.iter().find(|row| row.jobs == Some(jobs))?;
        let cell = row.cells.get(&column.name)?;
        let median = cell.median.filter(|median| median.is_finite())?;
        let range = cell.range.filter(|(least, largest)| least.is_finite() && largest.is_finite());
        Some(Point { x, median, range: range.unwrap_or((median, median)) })
    };
    jobs.iter().filter_map(point).collect()
}

impl Line<'_> {
    fn draw(&self, area: &Area<'_>, at: &dyn Fn(f64, f64) -> (i32, i32)) -> Result<()> {
        let ink = self.look.ink;
        let medians: Vec<(i32, i32)> = self.points.iter().map(|point| at(point.x, point.median)).collect();
        for point in &self.points {
            let (low, high) = (at(point.x, point.range.0), at(point.x, point.range.1));
            if low == high {
                continue;
            }
            area.draw(&PathElement::new([low, high], stroke(ink, 1)))?;
            for (x, y) in [low, high] {
                area.draw(&PathElement::new([(x - 4, y), (x + 4, y)], stroke(ink, 1)))?;
            }
        }
        area.draw(&PathElement::new(medians.clone(), stroke(ink, self.look.width)))?;
        medians.into_iter().try_for_each(|place| marker(area, self.look, place))
    }
}

/// Draws a point's shape.
fn marker(area: &Area<'_>, look: Look, (x, y): (i32, i32)) -> Result<()> {
    let fill = look.ink.light;
    match look.shape % 5 {
        0 => area.draw(&Circle::new((x, y), 5, fill.filled()))?,
        1 => area.draw(&Rectangle::new([(x - 5, y - 5), (x + 5, y + 5)], fill.filled()))?,
        2 => area.draw(&Polygon::new([(x, y - 7), (x + 6, y + 5), (x - 6, y + 5)], fill))?,
        3 => area.draw(&Polygon::new([(x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y)], fill))?,
        _ => area.draw(&Polygon::new([(x, y + 7), (x + 6, y - 5), (x - 6, y - 5)], fill))?,
    }
    Ok(())
}

/// Writes the lines' names beside their ends, apart from each other, each with its shape.
fn names(area: &Area<'_>, mut ends: Vec<(&Line<'_>, (i32, i32))>, x: i32) -> Result<()> {
    ends.sort_by_key(|(_, (_, y))| *y);
    let wanted: Vec<i32> = ends.iter().map(|(_, (_, y))| *y).collect();
    let places = apart(&wanted, px(HEIGHT - BOTTOM) - 10);
    for ((line, (from, end)), y) in ends.into_iter().zip(places) {
        area.draw(&PathElement::new([(from + 8, end), (x + 2, y)], stroke(GRID, 1)))?;
        marker(area, line.look, (x + 10, y))?;
        let style = if line.column.kind == Kind::Ours { bold } else { text };
        let name = fit_bold(&line.column.name, NAME_ROOM);
        area.draw(&Text::new(name, (x + 22, y), style(TEXT, At::Left)))?;
    }
    Ok(())
}

/// Moves sorted places apart, none below the lowest.
fn apart(wanted: &[i32], lowest: i32) -> Vec<i32> {
    let mut places = Vec::with_capacity(wanted.len());
    for &want in wanted {
        let least = places.last().map_or(i32::MIN, |last: &i32| last + APART);
        places.push(want.max(least));
    }
    let mut most = lowest;
    for place in places.iter_mut().rev() {
        *place = (*place).min(most);
        most = *place - APART;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_overlap() {
        assert_eq!(apart(&[10, 100], 200), [10, 100]);
        assert_eq!(apart(&[50, 52, 53], 200), [50, 68, 86]);
        assert_eq!(apart(&[190, 195, 199], 200), [164, 182, 200]);
    }
}
