//! What every plot has: its size, its texts, a title and a description, a style of its own.

use anyhow::{Result, bail};
use maud::{PreEscaped, html};
use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::element::Text;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, FontDesc, FontFamily, FontStyle, ShapeStyle, TextStyle};

use super::super::ink::{Ink, PAPER, TEXT, dark_rules};
use super::super::words::clean;
use super::measure::fit_bold;

/// A plot's width in pixels; the page scales it.
pub(super) const WIDTH: u32 = 520;
/// Between text and the paper's edge.
pub(super) const EDGE: u32 = 8;
/// The size of text in pixels.
const TEXT_SIZE: u32 = 14;
/// The height of the plot's name, above everything else.
pub(super) const NAME: u32 = 28;

/// Where to draw.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Where a text's position lies in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum At {
    /// At its left end.
    Left,
    /// At its right end.
    Right,
}

/// Returns a style whose text lies beside its position, at mid height.
pub(super) fn text(ink: Ink, at: At) -> TextStyle<'static> {
    styled(ink, at, FontStyle::Normal)
}

/// The same, bold.
pub(super) fn bold(ink: Ink, at: At) -> TextStyle<'static> {
    styled(ink, at, FontStyle::Bold)
}

fn styled(ink: Ink, at: At, style: FontStyle) -> TextStyle<'static> {
    /// What plotters divides a font's size by when it writes SVG.
    const SVG_DIVISOR: f64 = 1.24;
    let size = f64::from(TEXT_SIZE) * SVG_DIVISOR;
    let side = match at {
        At::Left => HPos::Left,
        At::Right => HPos::Right,
    };
    TextStyle {
        font: FontDesc::new(FontFamily::SansSerif, size, style),
        color: ink.light.to_backend_color(),
        pos: Pos::new(side, VPos::Center),
    }
}

/// What is said of a plot to those who cannot see it.
#[derive(Debug)]
pub(super) struct Said {
    /// A name that is unique on the page.
    pub(super) id: String,
    /// A few words.
    pub(super) title: String,
    /// What is seen.
    pub(super) description: String,
}

/// Draws on paper of this height, its name on top, and returns the SVG.
pub(super) fn draw(
    said: &Said,
    height: u32,
    picture: impl FnOnce(&Area<'_>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&PAPER.light)?;
        area.draw(&Text::new(fit_bold(&said.title, WIDTH - 2 * EDGE), (px(EDGE), 14), bold(TEXT, At::Left)))?;
        picture(&area)?;
        area.present()?;
    }
    named(&svg, said)
}

/// Puts name, description and style into the SVG's head.
fn named(svg: &str, said: &Said) -> Result<String> {
    let Some((head, rest)) = svg.split_once('>') else { bail!("the plot is no SVG") };
    let (title, description) = (format!("{}-title", said.id), format!("{}-desc", said.id));
    let inside = html! {
        title id=(title) { (clean(&said.title)) }
        desc id=(description) { (clean(&said.description)) }
        style { (PreEscaped(dark_rules())) }
    };
    let role = format!(r#" class="plot" role="img" aria-labelledby="{title} {description}""#);
    Ok(format!("{head}{role}>{}{rest}", inside.into_string()))
}

/// Pixels as plotters counts them.
pub(super) fn px(length: u32) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

pub(super) fn stroke(ink: Ink, width: u32) -> ShapeStyle {
    ink.light.stroke_width(width)
}
