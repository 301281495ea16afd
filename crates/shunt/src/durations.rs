//! Durations, as they are typed.

use std::time::Duration;

/// Reads a number of seconds, or one with `us`, `ms`, `s` or `m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_us = match &text[digits.len()..] {
        "us" => Some(1),
        "ms" => Some(1000),
        "" | "s" => Some(1_000_000),
        "m" => Some(60_000_000),
        _ => None,
    };
    let number: Option<u64> =
        digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let us = number.zip(unit_us).and_then(|(number, unit)| number.checked_mul(unit));
    us.map(Duration::from_micros).ok_or_else(|| "a time, such as 30s, 500ms or 100us".to_owned())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, us) in
            [("0", 0), ("7", 7_000_000), ("7s", 7_000_000), ("5ms", 5000), ("9us", 9), ("1m", 60_000_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_micros(us)), "{text}");
        }
        for text in ["", "s", "1h", "-1s", "+5s", "1.5s", "5 s", "99999999999999999999m", "9999999999999999m"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
