//! Sizes, durations, shares and modes as text: the one syntax of command lines, mount options and rules files.

use std::time::Duration;

/// Reads a number of bytes: digits, then B, K, M, G, T or P in either case or nothing. Each unit is 1024 times the one before.
/// `None` for anything else, and beyond 64 bits.
#[must_use]
pub fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift: u32 = match &text[digits.len()..] {
        "" | "B" | "b" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        "P" | "p" => 50,
        _ => return None,
    };
    number(digits)?.checked_mul(1 << shift)
}

/// What is said of a text that is no size.
pub(crate) fn no_size(text: &str) -> String {
    format!("`{text}` is no size: a number of bytes, or a number with K, M, G, T or P, as in `20G`")
}

/// Reads a duration: a number, also one with a decimal point, then us, ms, s, m, h, d or w, or nothing for seconds. `None` for
/// anything else, and beyond 2^64 seconds. What is below a nanosecond is cut.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    const SECOND_NS: u128 = 1_000_000_000;
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_ns = match &text[digits.len()..] {
        "us" => 1000,
        "ms" => 1_000_000,
        "" | "s" => SECOND_NS,
        "m" => 60 * SECOND_NS,
        "h" => 60 * 60 * SECOND_NS,
        "d" => 24 * 60 * 60 * SECOND_NS,
        "w" => 7 * 24 * 60 * 60 * SECOND_NS,
        _ => return None,
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let parts = 10_u128.checked_pow(part.len().try_into().ok().filter(|len| *len <= 9)?)?;
    let ns = u128::from(number(whole)?) * unit_ns + u128::from(number(part)?) * unit_ns / parts;
    let secs = u64::try_from(ns / SECOND_NS).ok()?;
    Some(Duration::new(secs, u32::try_from(ns % SECOND_NS).ok()?))
}

/// A share, from `1%` to `99%`.
pub(crate) fn percent(text: &str) -> Option<u8> {
    let percent = number(text.strip_suffix('%')?)?;
    u8::try_from(percent).ok().filter(|percent| (1..=99).contains(percent))
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// A mode in octal digits, without a type.
pub(crate) fn mode(text: &str) -> Option<u32> {
    let is_octal = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let bits = is_octal.then(|| u32::from_str_radix(text, 8).ok()).flatten();
    bits.filter(|bits| *bits <= 0o7777)
}

/// What is said of a text that is no mode.
pub(crate) fn no_mode(text: &str) -> String {
    format!("`{text}` is no mode: octal digits up to `7777`")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("10", Some(10)),
            ("10M", Some(10 << 20)),
            ("1T", Some(1 << 40)),
            ("", None),
            ("7b", Some(7)),
            ("2k", Some(2048)),
            ("1P", Some(1 << 50)),
            ("18446744073709551615", Some(u64::MAX)),
            ("16777216T", None),
            ("M", None),
            ("+1", None),
            ("1.5G", None),
            ("1 G", None),
            ("\u{e9}", None),
            ("1\n", None),
            ("10MB", None),
            ("99999999999999T", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, expected) in [
            ("90s", Some(90_000_000)),
            ("2m", Some(120_000_000)),
            ("1h", Some(3_600_000_000)),
            ("30d", Some(2_592_000_000_000)),
            ("2w", Some(1_209_600_000_000)),
            ("30", Some(30_000_000)),
            ("0", Some(0)),
            ("500ms", Some(500_000)),
            ("9us", Some(9)),
            ("1.5s", Some(1_500_000)),
            ("0.25", Some(250_000)),
            ("0.5h", Some(1_800_000_000)),
            ("", None),
            ("d", None),
            ("-1d", None),
            ("+5s", None),
            ("5 s", None),
            ("1\u{b5}", None),
            ("1.s", None),
            (".5s", None),
            ("1.2.3s", None),
            ("0.1234567891s", None),
            ("NaN", None),
            ("1e3s", None),
            ("99999999999999999999w", None),
            ("9999999999999999999w", None),
        ] {
            assert_eq!(duration(text), expected.map(Duration::from_micros), "{text}");
        }
    }

    #[test]
    fn shares_are_percents_and_modes_are_octal() {
        for (text, expected) in [
            ("80%", Some(80)),
            ("1%", Some(1)),
            ("99%", Some(99)),
            ("0%", None),
            ("100%", None),
            ("80", None),
            ("%", None),
        ] {
            assert_eq!(percent(text), expected, "{text}");
        }
        for (text, expected) in [
            ("0644", Some(0o644)),
            ("7777", Some(0o7777)),
            ("17777", None),
            ("8", None),
            ("", None),
            ("+7", None),
        ] {
            assert_eq!(mode(text), expected, "{text}");
        }
    }
}
