//! Sizes and modes as text.

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
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse::<u64>().ok()?.checked_mul(1 << shift)).flatten()
}

/// What is said of a text that is no size.
pub(crate) fn no_size(text: &str) -> String {
    format!("`{text}` is no size: a number, with K, M, G or T or without")
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
    fn sizes_have_units_and_modes_are_octal() {
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
