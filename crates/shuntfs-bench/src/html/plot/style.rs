//! The colours of plots: light, and dark where the reader's machine is. The rules are in each SVG file, and once in a page.

use std::fmt::Write as _;

/// What a class of marks is painted with: the property, on a light page, on a dark page.
const INKS: [(&str, &str, &str, &str); 11] = [
    ("paper", "fill", "#FFFFFF", "#161B21"),
    ("text", "fill", "#1A2027", "#E6EAEE"),
    ("faint", "fill", "#555F6A", "#A3AEB9"),
    ("grid", "stroke", "#DDE1E6", "#303841"),
    ("one", "stroke", "#555F6A", "#A3AEB9"),
    ("band", "fill", "#ECEEF1", "#262D35"),
    ("range", "stroke", "#1A2027", "#E6EAEE"),
    ("goal", "stroke", "#B01E54", "#FF8FB8"),
    ("floor", "fill", "#8A949E", "#76828E"),
    ("ours", "fill", "#2F7FC8", "#2F74B5"),
    ("peer", "fill", "#D08A2E", "#A86A1C"),
];

/// Returns the rules of every plot.
pub(crate) fn rules() -> String {
    let mut light = String::from(
        ".plot text { font-family: sans-serif; font-size: 14px } .plot .bold { font-weight: bold }\n",
    );
    light.push_str(".plot .one { stroke-width: 2 } .plot .goal { stroke-width: 3; fill: none }\n");
    let mut dark = String::from("@media (prefers-color-scheme: dark) {\n");
    for (class, property, on_light, on_dark) in INKS {
        // Writing to a String cannot fail.
        let _ = writeln!(light, ".plot .{class} {{ {property}: {on_light} }}");
        let _ = writeln!(dark, ".plot .{class} {{ {property}: {on_dark} }}");
    }
    light + &dark + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, WCAG 2.
    fn luminance(color: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        (one / other).max(other / one)
    }

    fn ink(class: &str) -> [&'static str; 2] {
        let (_, _, light, dark) = INKS.into_iter().find(|(name, ..)| *name == class).unwrap();
        [light, dark]
    }

    #[test]
    fn text_and_marks_stand_out() {
        for (class, behind, least) in [
            ("text", "paper", 7.0),
            ("faint", "paper", 4.5),
            ("goal", "paper", 4.5),
            ("ours", "paper", 2.8),
            ("peer", "paper", 2.8),
            ("floor", "paper", 2.8),
            ("range", "ours", 3.0),
            ("range", "peer", 3.0),
            ("range", "floor", 3.0),
        ] {
            for (one, other) in ink(class).into_iter().zip(ink(behind)) {
                assert!(contrast(one, other) >= least, "{class} on {behind}: {one} on {other}");
            }
        }
    }
}
