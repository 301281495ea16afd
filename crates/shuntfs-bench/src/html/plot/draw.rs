//! The drawing: SVG written as a template.

use maud::{Markup, PreEscaped, html};

use super::super::state::absent;
use super::super::words::{clean, short};
use super::layout::{Bar, Block, Line, blocks, scale_end};
use super::measure::{bold_width, fit, fit_bold, width};
use super::{Plot, rules};
use crate::report::{Kind, Report, Row};

/// The paper's width in pixels; the page scales it.
const WIDTH: u32 = 520;
/// Between text and the paper's edge.
const EDGE: u32 = 8;
/// The height of the plot's name and of the scale's numbers, above and below.
const NAME: u32 = 28;
const SCALE: u32 = 28;
/// The height of a block's head, of a bar's line and of the space below a block.
const HEAD: u32 = 26;
const LINE: u32 = 19;
const GAP: u32 = 14;
/// Room for a column's name, for the baseline's figure and for the words beside a bar, at most.
const NAME_ROOM: u32 = 200;
const BASE_ROOM: u32 = 280;
const WORDS_ROOM: u32 = 190;

/// Draws rows of a table.
pub(super) fn draw(report: &Report, rows: &[&Row], name: &str) -> Plot {
    let blocks = blocks(report, rows);
    let usual = report.baseline.as_str();
    let first = rows.first().map_or(usual, |row| row.base(usual));
    let base = if rows.iter().all(|row| row.base(usual) == first) { first } else { usual };
    let title = format!("{}: ratio to {base}, longer is better", report.table);
    let absent: Vec<&str> = absent(report).map(|column| column.name.as_str()).collect();
    let absent =
        if absent.is_empty() { String::new() } else { format!(" Not measured: {}.", absent.join(", ")) };
    let caption = format!(
        "Each bar is the median of a column as a ratio to {base}: 1 is as good, longer is better. Blue is shunt, orange another \
         program, grey a floor. A line in a bar goes from the worst round to the best, the pale band does so for {usual}; a red \
         stroke is the goal; a bar with two gaps is longer than shown.{absent}"
    );
    let svg = paper(&blocks, &format!("plot-{name}"), [&title, &caption]).into_string();
    Plot { table: report.table.clone(), file: format!("{name}.svg"), caption, svg }
}

fn paper(blocks: &[Block], id: &str, [title, caption]: [&str; 2]) -> Markup {
    let scale = Scale::new(blocks);
    let top = NAME + SCALE;
    let tops: Vec<u32> = std::iter::once(top)
        .chain(blocks.iter().scan(top, |y, block| {
            *y += height(block);
            Some(*y)
        }))
        .collect();
    let bottom = tops.last().copied().unwrap_or(top);
    let tall = bottom + SCALE;
    html! {
        svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" width=(WIDTH) height=(tall)
            viewBox={ "0 0 " (WIDTH) " " (tall) } aria-labelledby={ (id) "-title " (id) "-desc" } {
            title id={ (id) "-title" } { (clean(title)) }
            desc id={ (id) "-desc" } { (clean(caption)) }
            style { (PreEscaped(rules())) }
            rect.paper x="0" y="0" width=(WIDTH) height=(tall) {}
            (words(EDGE, NAME / 2, Side::Left, "text bold", &fit_bold(title, WIDTH - 2 * EDGE)))
            @for (block, top) in blocks.iter().zip(&tops) { (band(&scale, block, *top)) }
            @for ratio in scale.ticks() {
                (upright("grid", scale.x(ratio), [top, bottom]))
                @for y in [top - SCALE / 2, bottom + SCALE / 2] {
                    (words(scale.x(ratio), y, Side::Middle, "faint", &short(ratio)))
                }
            }
            (upright("one", scale.x(1.0), [top, bottom]))
            @for (block, top) in blocks.iter().zip(&tops) { (self::block(&scale, block, *top)) }
        }
    }
}

/// Where the scale lies, and which ratio is at its end.
struct Scale {
    left: u32,
    right: u32,
    end: f64,
}

impl Scale {
    fn new(blocks: &[Block]) -> Self {
        let lines = || blocks.iter().flat_map(|block| &block.lines);
        let names = lines().map(|line| bold_width(&fit_bold(&line.name, NAME_ROOM))).max();
        let words =
            lines().filter(|line| line.bar.is_some()).map(|line| width(&fit(&line.words, WORDS_ROOM))).max();
        Self {
            left: names.unwrap_or(0) + 2 * EDGE,
            right: WIDTH - words.unwrap_or(0).max(width("0.00")) - 2 * EDGE,
            end: scale_end(blocks),
        }
    }

    /// Returns where a ratio is, or the end of the scale for a larger one.
    fn x(&self, ratio: f64) -> f64 {
        let (left, right) = (f64::from(self.left), f64::from(self.right));
        left + (right - left) * (ratio.min(self.end) / self.end)
    }

    /// Returns the ratios with a line, eight at most.
    fn ticks(&self) -> Vec<f64> {
        let mut steps = (-1..9).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)));
        let step = steps.find(|step| self.end / step <= 8.0).unwrap_or(self.end);
        (0_u32..9).map(|number| f64::from(number) * step).take_while(|ratio| *ratio <= self.end).collect()
    }
}

/// How high the head of a block is: where its name and its baseline do not fit beside each other, the baseline is below.
fn head(block: &Block) -> u32 {
    if fits_beside(block) { HEAD } else { HEAD + LINE }
}

fn fits_beside(block: &Block) -> bool {
    bold_width(&block.name) + width(&fit(&block.base, BASE_ROOM)) + 3 * EDGE <= WIDTH
}

fn height(block: &Block) -> u32 {
    head(block) + u32::try_from(block.lines.len()).unwrap_or(0) * LINE + GAP
}

/// How far the baseline itself scatters, behind a block's bars.
fn band(scale: &Scale, block: &Block, top: u32) -> Markup {
    html! { @if let Some((least, largest)) = block.band {
        (bar("band", [scale.x(least), scale.x(largest)], [top + head(block), top + height(block) - GAP]))
    } }
}

fn block(scale: &Scale, block: &Block, top: u32) -> Markup {
    let base = fit(&block.base, BASE_ROOM);
    let name = fit_bold(&block.name, WIDTH - 2 * EDGE);
    let below = top + head(block);
    let lines = (0_u32..).zip(&block.lines).map(|(at, line)| (below + at * LINE, line));
    html! {
        // The head lies over the scale's lines.
        (bar("paper", [0.0, f64::from(WIDTH)], [top, below]))
        (words(EDGE, top + HEAD / 2, Side::Left, "text bold", &name))
        (words(WIDTH - EDGE, below - HEAD / 2, Side::Right, "faint", &base))
        @for (y, line) in lines { (self::line(scale, line, y)) }
    }
}

fn line(scale: &Scale, line: &Line, top: u32) -> Markup {
    let middle = top + LINE / 2;
    let style = if line.kind == Kind::Ours { "text bold" } else { "text" };
    let said = fit(&line.words, WORDS_ROOM);
    html! {
        (words(scale.left - EDGE, middle, Side::Right, style, &fit_bold(&line.name, NAME_ROOM)))
        @if let Some(one) = line.bar {
            (bar_of(scale, one, line.kind, middle))
            (words(WIDTH - EDGE, middle, Side::Right, "text", &said))
            @if let Some(goal) = line.goal.filter(|goal| *goal <= scale.end) {
                (upright("goal", scale.x(goal), [middle - 8, middle + 8]))
            }
        } @else {
            // Over the scale's lines, as heads are.
            (bar("paper", [f64::from(scale.left + 4), f64::from(scale.left + 8 + width(&said))], [middle - 8, middle + 8]))
            (words(scale.left + 6, middle, Side::Left, "faint", &said))
        }
    }
}

fn bar_of(scale: &Scale, one: Bar, kind: Kind, middle: u32) -> Markup {
    let class = match kind {
        Kind::Floor => "floor",
        Kind::Ours => "ours",
        Kind::Peer => "peer",
    };
    let is_cut = one.ratio > scale.end;
    html! {
        (bar(class, [scale.x(0.0), scale.x(one.ratio)], [middle - 6, middle + 6]))
        @if let Some((least, largest)) = one.range.filter(|(least, largest)| least < largest) {
            line.range x1=(px(scale.x(least))) x2=(px(scale.x(largest))) y1=(middle) y2=(middle) {}
            @for end in [least, largest] { @if end <= scale.end { (upright("range", scale.x(end), [middle - 3, middle + 3])) } }
        }
        @if is_cut {
            @for part in [0.93, 0.96] {
                (bar("paper", [scale.x(scale.end * part), scale.x(scale.end * (part + 0.01))], [middle - 6, middle + 6]))
            }
        }
    }
}

fn bar(class: &str, [from, to]: [f64; 2], [top, bottom]: [u32; 2]) -> Markup {
    html! { rect class=(class) x=(px(from)) y=(top) width=(px(to - from)) height=(bottom - top) {} }
}

fn upright(class: &str, x: f64, [top, bottom]: [u32; 2]) -> Markup {
    html! { line class=(class) x1=(px(x)) x2=(px(x)) y1=(top) y2=(bottom) {} }
}

/// Where a text's position lies in it.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Middle,
    Right,
}

/// Writes words at mid height of their position.
fn words(x: impl Into<f64>, middle: u32, side: Side, class: &str, text: &str) -> Markup {
    /// From the middle of a line of text to its base.
    const BASE: u32 = 5;
    let anchor = match side {
        Side::Left => "start",
        Side::Middle => "middle",
        Side::Right => "end",
    };
    html! { text class=(class) x=(px(x.into())) y=(middle + BASE) text-anchor=(anchor) { (clean(text)) } }
}

/// Pixels, to a tenth.
fn px(length: f64) -> String {
    format!("{length:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_has_few_round_numbers() {
        let ticks = |end: f64| Scale { left: 0, right: 100, end }.ticks();
        for end in [1.248, 1.56, 2.0, 41.6, 1e6] {
            let ticks = ticks(end);
            assert!((3..=9).contains(&ticks.len()), "{end}: {ticks:?}");
        }
        assert!((ticks(1.248)[1] - 0.2).abs() < 1e-9);
    }
}
