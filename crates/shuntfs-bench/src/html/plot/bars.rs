//! Bars: a block for each row, a bar for each column, all as ratios to the baseline.

use anyhow::Result;
use plotters::chart::{ChartBuilder, ChartContext, LabelAreaPosition};
use plotters::coord::types::RangedCoordf64;
use plotters::element::{PathElement, Polygon, Rectangle, Text};
use plotters::prelude::{Cartesian2d, SVGBackend};
use plotters::style::{Color as _, TRANSPARENT};

use super::super::ink::{BAND, FAINT, FLOOR, GOAL, GRID, Ink, OURS, PAPER, PEER, TEXT};
use super::super::state::absent;
use super::super::words::short;
use super::Plot;
use super::frame::{Area, At, EDGE, NAME, Said, WIDTH, bold, draw as on_paper, px, stroke, text};
use super::layout::{Bar, Block, Line, blocks, scale_end};
use super::measure::{bold_width, fit, fit_bold, width};
use crate::report::{Kind, Report, Row};

/// The height of a bar's line, of a block's head and of the space below a block.
const LINE: u32 = 19;
const HEAD: u32 = 26;
const GAP: u32 = 14;
/// A row of the legend, between the plot's name and the scale.
const LEGEND: u32 = 22;
/// The scale, above and below.
const SCALE: u32 = 28;
/// A mark of the legend with the space beside it.
const MARK: u32 = 26;
/// Half a bar's height.
const HALF: f64 = 6.0;
/// Room for a column's name, for the baseline's figure and for the words beside a bar, at most.
const NAME_ROOM: u32 = 200;
const BASE_ROOM: u32 = 280;
const WORDS_ROOM: u32 = 190;

/// Draws rows of a table.
pub(super) fn draw(report: &Report, rows: &[&Row], name: &str) -> Result<Plot> {
    let blocks = blocks(report, rows);
    let said = said(report, rows, name);
    let sheet = Sheet::new(&blocks, &report.baseline);
    let svg = on_paper(&said, sheet.height(), |area| sheet.draw(area))?;
    let (table, caption) = (report.table.clone(), said.description);
    Ok(Plot { table, file: format!("{name}.svg"), caption, svg })
}

fn said(report: &Report, rows: &[&Row], name: &str) -> Said {
    let usual = report.baseline.as_str();
    let first = rows.first().map_or(usual, |row| row.base(usual));
    let base = if rows.iter().all(|row| row.base(usual) == first) { first } else { usual };
    let absent: Vec<&str> = absent(report).map(|column| column.name.as_str()).collect();
    let columns = report.columns.len().saturating_sub(1 + absent.len());
    let absent =
        if absent.is_empty() { String::new() } else { format!(" Not measured: {}.", absent.join(", ")) };
    Said {
        id: format!("plot-{name}"),
        title: format!("{}: ratio to {base}, longer is better", report.table),
        description: format!(
            "{} rows on {columns} columns; each bar is the median of a column as a ratio to {base}: 1 is as good, longer is better.{absent}",
            rows.len(),
        ),
    }
}

/// The paper with its measures.
struct Sheet<'a> {
    blocks: &'a [Block],
    baseline: &'a str,
    /// Where the scale begins, from the left.
    left: u32,
    /// Where it ends, from the right.
    right: u32,
    /// The ratio at its end.
    end: f64,
    /// What the marks are.
    legend: Vec<(Mark, String, (u32, u32))>,
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

impl<'a> Sheet<'a> {
    fn new(blocks: &'a [Block], baseline: &'a str) -> Self {
        let lines = || blocks.iter().flat_map(|block| &block.lines);
        let bars = lines().filter(|line| line.bar.is_some());
        let names = lines().map(|line| match line.kind {
            Kind::Ours => bold_width(&shown(line)),
            Kind::Floor | Kind::Peer => width(&shown(line)),
        });
        let words = bars.map(|line| width(&fit(&line.words, WORDS_ROOM)));
        let mut sheet = Self {
            blocks,
            baseline,
            left: names.max().unwrap_or(0) + 2 * EDGE,
            right: words.max().unwrap_or(0).max(width("0.00")) + 2 * EDGE,
            end: scale_end(blocks),
            legend: Vec::new(),
        };
        sheet.legend = placed(sheet.items());
        sheet
    }

    /// Returns where the first block begins.
    fn top(&self) -> u32 {
        let rows = self.legend.last().map_or(0, |(_, _, (_, row))| row + 1);
        NAME + rows * LEGEND + SCALE
    }

    fn height(&self) -> u32 {
        self.top() + self.blocks.iter().map(height).sum::<u32>() + SCALE
    }

    fn draw(&self, area: &Area<'_>) -> Result<()> {
        legend(area, &self.legend)?;
        let depth = f64::from(self.height() - self.top() - SCALE);
        let mut chart = ChartBuilder::on(area)
            .margin_top(self.top() - SCALE)
            .set_label_area_size(LabelAreaPosition::Left, self.left)
            .set_label_area_size(LabelAreaPosition::Right, self.right)
            .set_label_area_size(LabelAreaPosition::Top, SCALE)
            .set_label_area_size(LabelAreaPosition::Bottom, SCALE)
            .build_cartesian_2d(0.0..self.end, depth..0.0)?;
        let tops = self.tops();
        chart.draw_series(self.blocks.iter().zip(&tops).filter_map(|(block, top)| self.band(block, *top)))?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .disable_y_axis()
            .x_labels(8)
            .x_label_formatter(&|ratio| short(*ratio))
            .x_label_style(text(FAINT, At::Left))
            .bold_line_style(GRID.light)
            .light_line_style(TRANSPARENT)
            .axis_style(GRID.light)
            .draw()?;
        chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, depth)], stroke(FAINT, 2))])?;
        for (block, top) in self.blocks.iter().zip(tops) {
            self.block(&mut chart, area, block, top)?;
        }
        Ok(())
    }

    /// Returns where each block begins.
    fn tops(&self) -> Vec<f64> {
        let next = |top: &mut u32, block: &Block| {
            let this = *top;
            *top += height(block);
            Some(f64::from(this))
        };
        self.blocks.iter().scan(0, next).collect()
    }

    /// How far the baseline itself scatters, behind a block's bars.
    fn band(&self, block: &Block, top: f64) -> Option<Rectangle<(f64, f64)>> {
        let (least, largest) = block.band?;
        let bottom = top + f64::from(height(block) - GAP);
        let corners = [(least.min(self.end), top), (largest.min(self.end), bottom)];
        Some(Rectangle::new(corners, BAND.light.filled()))
    }

    fn block(&self, chart: &mut Chart<'_, '_>, area: &Area<'_>, block: &Block, top: f64) -> Result<()> {
        let (_, head) = chart.backend_coord(&(0.0, top));
        // The head lies over the scale's lines.
        let (from, to) = ((0, head), (px(WIDTH), head + px(HEAD)));
        area.draw(&Rectangle::new([from, to], PAPER.light.filled()))?;
        let middle = head + px(HEAD / 2);
        let base = fit(&block.base, BASE_ROOM);
        let name = fit_bold(&block.name, WIDTH - 3 * EDGE - width(&base));
        area.draw(&Text::new(name, (px(EDGE), middle), bold(TEXT, At::Left)))?;
        area.draw(&Text::new(base, (px(WIDTH - EDGE), middle), text(FAINT, At::Right)))?;
        let mut y = top + f64::from(HEAD + LINE / 2);
        for line in &block.lines {
            self.line(chart, area, line, y)?;
            y += f64::from(LINE);
        }
        Ok(())
    }

    fn line(&self, chart: &mut Chart<'_, '_>, area: &Area<'_>, line: &Line, y: f64) -> Result<()> {
        let (x, middle) = chart.backend_coord(&(0.0, y));
        let name = shown(line);
        let style = if line.kind == Kind::Ours { bold(TEXT, At::Right) } else { text(TEXT, At::Right) };
        area.draw(&Text::new(name, (x - 8, middle), style))?;
        let words = fit(&line.words, WORDS_ROOM);
        if let Some(bar) = line.bar {
            self.bar(chart, bar, line.kind, y)?;
            area.draw(&Text::new(words, (px(WIDTH - EDGE), middle), text(TEXT, At::Right)))?;
        } else {
            // Over the scale's lines, as heads are.
            let (from, to) = ((x + 4, middle - 8), (x + 8 + px(width(&words)), middle + 8));
            area.draw(&Rectangle::new([from, to], PAPER.light.filled()))?;
            area.draw(&Text::new(words, (x + 6, middle), text(FAINT, At::Left)))?;
        }
        if let Some(goal) = line.goal.filter(|goal| line.bar.is_some() && *goal <= self.end) {
            let (x, _) = chart.backend_coord(&(goal, y));
            goal_mark(area, (x, middle))?;
        }
        Ok(())
    }

    fn bar(&self, chart: &mut Chart<'_, '_>, bar: Bar, kind: Kind, y: f64) -> Result<()> {
        let long = bar.ratio > self.end;
        let end = bar.ratio.min(self.end);
        let color = match kind {
            Kind::Floor => FLOOR,
            Kind::Ours => OURS,
            Kind::Peer => PEER,
        };
        chart.draw_series([Rectangle::new([(0.0, y - HALF), (end, y + HALF)], color.light.filled())])?;
        if let Some((least, largest)) = bar.range.filter(|(least, largest)| least < largest) {
            let (from, to) = (least.min(self.end), largest.min(self.end));
            let caps = [least, largest].into_iter().filter(|x| *x <= self.end);
            let caps = caps.map(|x| PathElement::new([(x, y - 3.0), (x, y + 3.0)], stroke(TEXT, 1)));
            let whisker = PathElement::new([(from, y), (to, y)], stroke(TEXT, 1));
            chart.draw_series(std::iter::once(whisker).chain(caps))?;
        }
        if long {
            // Two strokes cut a bar that goes on beyond the scale.
            let cut = |part: f64| {
                let x = self.end * part;
                PathElement::new([(x, y + HALF), (x + self.end * 0.012, y - HALF)], stroke(PAPER, 3))
            };
            chart.draw_series([cut(0.955), cut(0.975)])?;
        }
        Ok(())
    }

    /// Says what the marks are; those that are not there are not named.
    fn items(&self) -> Vec<(Mark, String)> {
        let lines = || self.blocks.iter().flat_map(|block| &block.lines);
        let has = |kind: Kind| lines().any(|line| line.kind == kind);
        let named = |mark, words: &str| (mark, words.to_owned());
        let mut items = Vec::new();
        for (kind, ink, words) in [
            (Kind::Ours, OURS, "shunt"),
            (Kind::Peer, PEER, "another program"),
            (Kind::Floor, FLOOR, "floor"),
        ] {
            items.extend(has(kind).then(|| named(Mark::Fill(ink), words)));
        }
        let goal = lines().any(|line| line.goal.is_some());
        items.extend(goal.then(|| named(Mark::Goal, "goal")));
        let whisker = lines().filter_map(|line| line.bar?.range).any(|(least, largest)| least < largest);
        items.extend(whisker.then(|| named(Mark::Whisker, "worst to best round")));
        let band = self.blocks.iter().filter_map(|block| block.band).any(|(least, largest)| least < largest);
        items.extend(band.then(|| (Mark::Fill(BAND), format!("{}, worst to best", self.baseline))));
        let long = lines().filter_map(|line| line.bar).any(|bar| bar.ratio > self.end);
        items.extend(long.then(|| named(Mark::Cut, "longer than shown")));
        items
    }
}

/// Returns a column's name as far as there is room for it.
fn shown(line: &Line) -> String {
    match line.kind {
        Kind::Ours => fit_bold(&line.name, NAME_ROOM),
        Kind::Floor | Kind::Peer => fit(&line.name, NAME_ROOM),
    }
}

/// What the legend shows.
#[derive(Debug, Clone, Copy)]
enum Mark {
    Fill(Ink),
    Whisker,
    Goal,
    Cut,
}

/// Gives each item of the legend its place: from the left, and its row.
fn placed(items: Vec<(Mark, String)>) -> Vec<(Mark, String, (u32, u32))> {
    let (mut x, mut row) = (EDGE, 0);
    let place = |(mark, words): (Mark, String)| {
        let wide = width(&words) + MARK + 14;
        if x > EDGE && x + wide > WIDTH {
            (x, row) = (EDGE, row + 1);
        }
        let place = (x, row);
        x += wide;
        (mark, words, place)
    };
    items.into_iter().map(place).collect()
}

fn legend(area: &Area<'_>, items: &[(Mark, String, (u32, u32))]) -> Result<()> {
    for (mark, words, (x, row)) in items {
        let y = px(NAME + row * LEGEND + LEGEND / 2);
        draw_mark(area, *mark, (px(*x), y))?;
        area.draw(&Text::new(fit(words, WIDTH - 2 * EDGE - MARK), (px(x + MARK), y), text(FAINT, At::Left)))?;
    }
    Ok(())
}

fn draw_mark(area: &Area<'_>, mark: Mark, (x, y): (i32, i32)) -> Result<()> {
    let bar = |ink: Ink| Rectangle::new([(x, y - 6), (x + 20, y + 6)], ink.light.filled());
    match mark {
        Mark::Fill(ink) => area.draw(&bar(ink))?,
        Mark::Goal => goal_mark(area, (x + 10, y))?,
        Mark::Whisker => {
            for ends in [[(x, y), (x + 20, y)], [(x, y - 3), (x, y + 3)], [(x + 20, y - 3), (x + 20, y + 3)]]
            {
                area.draw(&PathElement::new(ends, stroke(TEXT, 1)))?;
            }
        }
        Mark::Cut => {
            area.draw(&bar(FLOOR))?;
            for at in [x + 8, x + 13] {
                area.draw(&PathElement::new([(at, y + 6), (at + 4, y - 6)], stroke(PAPER, 3)))?;
            }
        }
    }
    Ok(())
}

/// A stroke through the bar's whole line with a head on top.
fn goal_mark(area: &Area<'_>, (x, y): (i32, i32)) -> Result<()> {
    area.draw(&PathElement::new([(x, y - 8), (x, y + 8)], stroke(GOAL, 3)))?;
    area.draw(&Polygon::new([(x - 5, y - 9), (x + 5, y - 9), (x, y - 3)], GOAL.light))?;
    Ok(())
}

fn height(block: &Block) -> u32 {
    let lines = u32::try_from(block.lines.len()).unwrap_or(0);
    HEAD + lines * LINE + GAP
}
