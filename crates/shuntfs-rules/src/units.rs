//! Sizes, times, shares and modes as text.

/// A number of bytes, with or without K, M, G or T, each 1024 times the one before.
pub(crate) fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift: u32 = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    number(digits)?.checked_mul(1 << shift)
}

/// What is said of a text that is no size.
pub(crate) fn no_size(text: &str) -> String {
    format!("`{text}` is no size: a number, with K, M, G or T or without")
}

/// A time in seconds: a number with s, m, h, d or w.
pub(crate) fn duration(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        'w' => 7 * 24 * 60 * 60,
        _ => return None,
    };
    number(text.strip_suffix(unit)?)?.checked_mul(seconds)
}

/// What is said of a text that is no time.
pub(crate) fn no_duration(text: &str) -> String {
    format!("`{text}` is no time: a number with s, m, h, d or w, as in `30d`")
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
    fn sizes_and_times_have_units_and_modes_are_octal() {
        for (text, expected) in [
            ("10", Some(10)),
            ("10M", Some(10 << 20)),
            ("1T", Some(1 << 40)),
            ("", None),
            ("M", None),
            ("+1", None),
            ("10MB", None),
            ("99999999999999T", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
        for (text, expected) in [
            ("90s", Some(90)),
            ("2m", Some(120)),
            ("1h", Some(3600)),
            ("30d", Some(2_592_000)),
            ("2w", Some(1_209_600)),
            ("30", None),
            ("d", None),
            ("-1d", None),
            ("1µ", None),
            ("99999999999999999999w", None),
            ("9999999999999999999w", None),
        ] {
            assert_eq!(duration(text), expected, "{text}");
        }
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
