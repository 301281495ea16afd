//! Figures, ratios and goals as a reader sees them.

use maud::{Markup, html};

use crate::report::{Better, Goal, Measure, Row, Unit};

/// Prints a figure with three digits that mean something, and commas between thousands.
pub(super) fn number(figure: f64) -> String {
    if !figure.is_finite() {
        return "no number".to_owned();
    }
    let text = match figure.abs() {
        small if small < 0.1 && small > 0.0 => format!("{figure:.4}"),
        small if small < 10.0 => format!("{figure:.2}"),
        middle if middle < 100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    };
    with_commas(&text)
}

fn with_commas(text: &str) -> String {
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    for (at, letter) in whole.char_indices() {
        let left = whole.len() - at;
        if !out.is_empty() && out != "-" && left % 3 == 0 {
            out.push(',');
        }
        out.push(letter);
    }
    out + rest
}

/// Prints a figure for an axis: 120k, 1.5M.
pub(super) fn short(figure: f64) -> String {
    let (scaled, suffix) = match figure.abs() {
        large if large >= 1e6 => (figure / 1e6, "M"),
        middle if middle >= 1e3 => (figure / 1e3, "k"),
        _ => (figure, ""),
    };
    let text = format!("{scaled:.2}");
    format!("{}{suffix}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Prints a ratio.
pub(super) fn ratio(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "no number".to_owned() }
}

/// Prints a part of one in percent.
pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// Prints a figure with its unit.
pub(super) fn figure(figure: f64, unit: Unit) -> String {
    format!("{} {}", number(figure), unit.label())
}

/// Says what a goal asks for, and of whom.
pub(super) fn goal(goal: &Goal, row: &Row, baseline: &str) -> String {
    let baseline = row.base(baseline);
    let whose = goal.columns.join(" or ");
    let least = match (goal.measure, row.better) {
        (Measure::Figure, Better::Lower) => "at most",
        _ => "at least",
    };
    match goal.measure {
        Measure::Ratio => format!("{least} {} of {baseline}, by {whose}", ratio(goal.value)),
        Measure::Figure => format!("{least} {}, by {whose}", figure(goal.value, row.unit)),
    }
}

/// Makes a name that an anchor and a file may have.
pub(super) fn slug(text: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let mapped: String = text.chars().map(plain).collect();
    let parts: Vec<&str> = mapped.split('-').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "unnamed".to_owned() } else { parts.join("-") }
}

/// Cuts a text to a number of letters, with an ellipsis; letters that XML cannot carry become a visible one.
pub(super) fn cut(text: &str, letters: usize) -> String {
    let clean = clean(text);
    if clean.chars().count() <= letters {
        return clean;
    }
    let kept: String = clean.chars().take(letters.saturating_sub(1)).collect();
    kept.trim_end().to_owned() + "\u{2026}"
}

/// Replaces control characters, which are no XML and no HTML, not even escaped.
pub(super) fn clean(text: &str) -> String {
    let visible = |letter: char| match letter {
        '\n' | '\t' => ' ',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    };
    text.chars().map(visible).collect()
}

/// Writes a sentence; what stands between backticks is code.
pub(super) fn prose(text: &str) -> Markup {
    let clean = clean(text);
    if clean.matches('`').count() % 2 == 1 {
        return html! { (clean) };
    }
    html! {
        @for (at, part) in clean.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        for (figure, text) in [
            (0.0, "0.00"),
            (0.0123, "0.0123"),
            (2.5, "2.50"),
            (46.04, "46.0"),
            (999.6, "1,000"),
            (111_935.4, "111,935"),
            (1_234_567.0, "1,234,567"),
            (-1500.0, "-1,500"),
            (f64::INFINITY, "no number"),
        ] {
            assert_eq!(number(figure), text);
        }
    }

    #[test]
    fn axes_are_short() {
        for (figure, text) in [(0.0, "0"), (0.25, "0.25"), (1500.0, "1.5k"), (120_000.0, "120k"), (2e6, "2M")]
        {
            assert_eq!(short(figure), text);
        }
    }

    #[test]
    fn names_become_anchors() {
        assert_eq!(slug("paged 128k, j1"), "paged-128k-j1");
        assert_eq!(slug("../<script>"), "script");
        assert_eq!(slug("//"), "unnamed");
    }

    #[test]
    fn what_stands_between_backticks_is_code() {
        assert_eq!(prose("a `b<` c").into_string(), "a <code>b&lt;</code> c");
        assert_eq!(prose("it`s").into_string(), "it`s");
    }

    #[test]
    fn texts_are_cut_and_cleaned() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("longer text", 8), "longer\u{2026}");
        assert_eq!(clean("a\u{1}b\nc"), "a\u{fffd}b c");
    }
}
