//! How wide a text is, about: the reader's machine picks the font, so that nobody knows before.

use super::super::words::clean;

/// Returns about how wide a text is in a wide sans-serif font, in pixels.
pub(super) fn width(text: &str) -> u32 {
    text.chars().map(letter).sum()
}

/// The same, bold.
pub(super) fn bold_width(text: &str) -> u32 {
    width(text) * 11 / 10
}

/// Cuts a text to what there is room for, with an ellipsis.
pub(super) fn fit(text: &str, room: u32) -> String {
    let mut kept = clean(text);
    if width(&kept) <= room {
        return kept;
    }
    while !kept.is_empty() && width(&kept) + letter(ELLIPSIS) > room {
        kept.pop();
    }
    kept.truncate(kept.trim_end().len());
    kept.push(ELLIPSIS);
    kept
}

/// The same for a bold text.
pub(super) fn fit_bold(text: &str, room: u32) -> String {
    fit(text, room * 10 / 11)
}

const ELLIPSIS: char = '\u{2026}';

/// Letters of DejaVu Sans, one of the widest fonts that `sans-serif` stands for, at 14 pixels.
fn letter(letter: char) -> u32 {
    match letter {
        'i' | 'j' | 'l' | 'f' | 't' | 'r' | 'I' | ' ' | '.' | ',' | ':' | ';' | '-' | '/' | '|' | '!'
        | '\'' => 5,
        '(' | ')' | '[' | ']' => 6,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | ELLIPSIS => 14,
        '<' | '>' | '=' | '+' | '~' | 'A'..='Z' => 11,
        '\0'..='\u{24f}' => 9,
        _ => 15,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_stays_and_what_does_not_is_cut() {
        assert_eq!(fit("bare", width("bare")), "bare");
        assert_eq!(fit("bare", width("bare") - 1), "b\u{2026}");
        assert_eq!(fit("a b", width("a b") - 1), "\u{2026}", "no room for a letter and the ellipsis");
        for text in [
            "passthrough_hp-passthrough",
            "WWWWWWWWWWWW",
            "<script>alert(1)</script>",
            "\u{6f22}\u{5b57}\u{6f22}",
        ] {
            assert!(width(&fit(text, 40)) <= 40, "{text}");
            assert!(bold_width(&fit_bold(text, 40)) <= 40, "{text}");
        }
    }
}
