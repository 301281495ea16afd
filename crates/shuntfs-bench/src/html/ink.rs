//! The colours: drawn light, turned dark by a style sheet.
//!
//! plotters writes a colour into each mark as an attribute. Each of ours stands for one use, so that a rule on the
//! attribute's value can give that use another colour in the dark, in a page as well as in an SVG file of its own.

use std::fmt::Write as _;

use plotters::style::RGBColor;

/// One use of a colour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ink {
    /// On a light page.
    pub(super) light: RGBColor,
    /// On a dark page.
    dark: RGBColor,
}

const fn ink(light: [u8; 3], dark: [u8; 3]) -> Ink {
    Ink { light: RGBColor(light[0], light[1], light[2]), dark: RGBColor(dark[0], dark[1], dark[2]) }
}

/// Behind everything.
pub(super) const PAPER: Ink = ink([0xFF, 0xFF, 0xFF], [0x16, 0x1B, 0x21]);
/// Text and whiskers.
pub(super) const TEXT: Ink = ink([0x1A, 0x20, 0x27], [0xE6, 0xEA, 0xEE]);
/// Text that matters less.
pub(super) const FAINT: Ink = ink([0x55, 0x5F, 0x6A], [0xA3, 0xAE, 0xB9]);
/// The lines of the scale.
pub(super) const GRID: Ink = ink([0xDD, 0xE1, 0xE6], [0x30, 0x38, 0x41]);
/// How far the baseline itself scatters.
pub(super) const BAND: Ink = ink([0xEC, 0xEE, 0xF1], [0x26, 0x2D, 0x35]);
/// The goal.
pub(super) const GOAL: Ink = ink([0xB0, 0x1E, 0x54], [0xFF, 0x8F, 0xB8]);
/// What is to be reached: no server, or one without contents.
pub(super) const FLOOR: Ink = ink([0x8A, 0x94, 0x9E], [0x76, 0x82, 0x8E]);
/// Ours.
pub(super) const OURS: Ink = ink([0x2F, 0x7F, 0xC8], [0x2F, 0x74, 0xB5]);
/// A peer.
pub(super) const PEER: Ink = ink([0xD0, 0x8A, 0x2E], [0xA8, 0x6A, 0x1C]);

/// Lines that must be told apart, in the order to use them; after the last comes the first again.
pub(super) const LINES: [Ink; 7] = [
    ink([0x00, 0x6D, 0xB8], [0x5C, 0xB2, 0xF5]),
    ink([0xC2, 0x4E, 0x00], [0xFF, 0x9D, 0x57]),
    ink([0x00, 0x7F, 0x61], [0x3E, 0xD0, 0xA8]),
    ink([0x9C, 0x3C, 0x8C], [0xE4, 0x94, 0xD6]),
    ink([0x7A, 0x66, 0x00], [0xD9, 0xC2, 0x3D]),
    ink([0x2B, 0x3F, 0xA0], [0x9A, 0xAB, 0xFF]),
    ink([0x8C, 0x2A, 0x2A], [0xF2, 0x92, 0x92]),
];

const USES: [Ink; 9] = [PAPER, TEXT, FAINT, GRID, BAND, GOAL, FLOOR, OURS, PEER];

/// Returns the rules that turn plots dark where the reader's machine is.
pub(super) fn dark_rules() -> String {
    let mut rules = String::from("@media (prefers-color-scheme: dark) {\n");
    for Ink { light, dark } in USES.iter().chain(&LINES) {
        let (light, dark) = (hex(*light), hex(*dark));
        // Writing to a String cannot fail.
        let _ = writeln!(rules, ".plot [fill=\"{light}\"] {{ fill: {dark} }}");
        let _ = writeln!(rules, ".plot [stroke=\"{light}\"] {{ stroke: {dark} }}");
    }
    rules + "}\n"
}

/// Writes a colour as plotters does.
fn hex(color: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", color.0, color.1, color.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, WCAG 2.
    fn luminance(color: RGBColor) -> f64 {
        let part = |byte: u8| {
            let value = f64::from(byte) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(color.0) + 0.7152 * part(color.1) + 0.0722 * part(color.2)
    }

    fn contrast(one: RGBColor, other: RGBColor) -> f64 {
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        (one / other).max(other / one)
    }

    #[test]
    fn text_and_marks_stand_out_from_the_paper() {
        for (ink, least) in [(TEXT, 7.0), (FAINT, 4.5), (GOAL, 4.5)] {
            assert!(contrast(ink.light, PAPER.light) >= least, "{ink:?}");
            assert!(contrast(ink.dark, PAPER.dark) >= least, "{ink:?}");
        }
        for ink in LINES.iter().chain(&[OURS, FLOOR, PEER]) {
            assert!(contrast(ink.light, PAPER.light) >= 2.8, "{ink:?}");
            assert!(contrast(ink.dark, PAPER.dark) >= 2.8, "{ink:?}");
        }
    }

    #[test]
    fn whiskers_stand_out_from_bars() {
        for ink in [OURS, FLOOR, PEER] {
            assert!(contrast(ink.light, TEXT.light) >= 3.0, "{ink:?}");
            assert!(contrast(ink.dark, TEXT.dark) >= 3.0, "{ink:?}");
        }
    }

    /// A rule finds its marks by their colour: two uses of one colour would both get the last rule.
    #[test]
    fn no_two_uses_share_a_light_colour() {
        let all: Vec<String> = USES.iter().chain(&LINES).map(|ink| hex(ink.light)).collect();
        for (at, color) in all.iter().enumerate() {
            assert!(!all[..at].contains(color), "{color} is used twice");
        }
    }
}
