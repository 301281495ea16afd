//! Small tables, set beside each other as far as there is room.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// What stands between two columns, and between two panels.
const GAP: usize = 2;
const BETWEEN: u16 = 4;

/// A row of a table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    pub(super) style: Style,
}

/// A table as it is drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Panel {
    pub(super) lines: Vec<Line<'static>>,
    pub(super) width: u16,
}

impl Row {
    pub(super) fn new(cells: impl Into<Vec<String>>) -> Self {
        Self { cells: cells.into(), style: Style::new() }
    }

    pub(super) fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

impl Panel {
    /// A table that is no wider than that: its first column, names, stands on the left and is cut in front. Of the others, numbers stand
    /// on the right, and those whose head ends in a space, words, on the left; the last are left out where names would not have
    /// `name_min` columns.
    pub(super) fn table(heads: &[&str], rows: &[Row], limit: u16, name_min: usize) -> Self {
        let limit = usize::from(limit);
        let width_of = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.cells.get(column)).map(|cell| width(cell));
            cells.chain([width(heads[column].trim_end())]).max().unwrap_or(0)
        };
        let mut columns = heads.len();
        let widths: Vec<usize> = (0..columns).map(width_of).collect();
        let others = |columns: usize| widths[1..columns].iter().map(|width| width + GAP).sum::<usize>();
        let name_min = name_min.min(widths[0]);
        while columns > 1 && others(columns) + name_min > limit {
            columns -= 1;
        }
        let name = widths[0].min(limit.saturating_sub(others(columns)));
        let line = |cells: &[String], style: Style| {
            let mut text = pad_right(&cut(cells.first().map_or("", String::as_str), name), name);
            for (column, width) in widths.iter().enumerate().take(columns).skip(1) {
                let cell = cells.get(column).map_or("", String::as_str);
                let cell =
                    if heads[column].ends_with(' ') { pad_right(cell, *width) } else { cell.to_owned() };
                text.push_str(&pad_left(&cell, width + GAP));
            }
            Line::from(Span::styled(text, style))
        };
        let titles: Vec<String> = heads.iter().map(|head| head.trim_end().to_owned()).collect();
        let mut lines = vec![line(&titles, Style::new().add_modifier(Modifier::BOLD))];
        lines.extend(rows.iter().map(|row| line(&row.cells, row.style)));
        Self { lines, width: u16::try_from(name + others(columns)).unwrap_or(u16::MAX) }
    }

    /// Sentences, a line each or as many as they need, as wide as everything, so that nothing stands beside them; nothing where there are
    /// none.
    pub(super) fn notes(sentences: &[String], limit: u16) -> Option<Self> {
        let mut lines: Vec<String> = Vec::new();
        for sentence in sentences {
            let mut line = String::new();
            for word in sentence.split(' ') {
                let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
                if width(&longer) > usize::from(limit) && !line.is_empty() {
                    lines.push(std::mem::replace(&mut line, word.to_owned()));
                } else {
                    line = longer;
                }
            }
            lines.push(line);
        }
        let dim = |line: String| {
            Line::styled(cut(&line, usize::from(limit)), Style::new().add_modifier(Modifier::DIM))
        };
        (!lines.is_empty()).then(|| Self { lines: lines.into_iter().map(dim).collect(), width: limit })
    }
}

/// Sets panels beside each other, and below where there is no room. Returns where each begins, and the height of all.
pub(super) fn flow(panels: &[Panel], width: u16) -> (Vec<(u16, u16)>, u16) {
    let (mut x, mut y, mut tallest) = (0, 0, 0);
    let mut places = Vec::new();
    for panel in panels {
        let height = u16::try_from(panel.lines.len()).unwrap_or(u16::MAX);
        if x > 0 && x + panel.width > width {
            (x, y, tallest) = (0, y + tallest + 1, 0);
        }
        places.push((x, y));
        x = x.saturating_add(panel.width).saturating_add(BETWEEN);
        tallest = tallest.max(height);
    }
    (places, y + tallest)
}

/// Draws panels where they flow to; what is outside of the area is not drawn.
pub(super) fn draw(panels: &[Panel], area: Rect, buffer: &mut Buffer) {
    let (places, _) = flow(panels, area.width);
    for (panel, (x, y)) in panels.iter().zip(places) {
        for (line, row) in panel.lines.iter().zip(y..) {
            put(line, (x, row), area, buffer);
        }
    }
}

/// Draws a line at a place in an area, as far as it is in it.
pub(super) fn put(line: &Line<'_>, (x, y): (u16, u16), area: Rect, buffer: &mut Buffer) {
    if x < area.width && y < area.height {
        buffer.set_line(area.x + x, area.y + y, line, area.width - x);
    }
}

/// The columns that text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Text that is no wider, cut in front: the end of a path says more than its begin.
pub(super) fn cut(text: &str, limit: usize) -> String {
    if width(text) <= limit {
        return text.to_owned();
    }
    if limit == 0 {
        return String::new();
    }
    let fits = |from: &usize| width(&text[*from..]) < limit;
    let from = text.char_indices().map(|(place, _)| place).find(fits).unwrap_or(text.len());
    format!("…{}", &text[from..])
}

fn pad_right(text: &str, to: usize) -> String {
    format!("{text}{}", " ".repeat(to.saturating_sub(width(text))))
}

fn pad_left(text: &str, to: usize) -> String {
    format!("{}{text}", " ".repeat(to.saturating_sub(width(text))))
}

#[cfg(test)]
mod test {
    use super::*;

    fn texts(panel: &Panel) -> Vec<String> {
        panel.lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_cut_in_front_and_numbers_stand_on_the_right() {
        let rows = [Row::new(["/a/long/path".to_owned(), "5".into(), "1.0k".into()])];
        let panel = Panel::table(&["MOUNT", "OPS", "ERRORS"], &rows, 40, 8);
        assert_eq!(texts(&panel), ["MOUNT         OPS  ERRORS", "/a/long/path    5    1.0k"]);
        let panel = Panel::table(&["MOUNT", "OPS", "ERRORS"], &rows, 22, 8);
        assert_eq!(texts(&panel), ["MOUNT      OPS  ERRORS", "…ong/path    5    1.0k"]);
        assert_eq!(panel.width, 22);
        let panel = Panel::table(&["MOUNT", "OPS", "ERRORS"], &rows, 14, 8);
        assert_eq!(texts(&panel), ["MOUNT      OPS", "…ong/path    5"]);
        let panel = Panel::table(&["MOUNT", "OPS", "ERRORS"], &rows, 3, 8);
        assert_eq!(texts(&panel), ["…NT", "…th"]);
    }

    #[test]
    fn wide_letters_take_their_room() {
        assert_eq!(width("写真"), 4);
        assert_eq!(cut("/写真", 4), "…真");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut("é", 1), "é");
    }

    #[test]
    fn panels_go_below_where_there_is_no_room() {
        let panel = |width: u16, lines: usize| Panel { width, lines: vec![Line::default(); lines] };
        let panels = [panel(30, 5), panel(30, 2), panel(30, 3)];
        assert_eq!(flow(&panels, 200), (vec![(0, 0), (34, 0), (68, 0)], 5));
        assert_eq!(flow(&panels, 80), (vec![(0, 0), (34, 0), (0, 6)], 9));
        assert_eq!(flow(&panels, 20), (vec![(0, 0), (0, 6), (0, 9)], 12));
    }
}
