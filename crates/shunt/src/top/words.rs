//! Numbers for people.

/// A rate: three digits, and a letter for a thousand, a million.
pub(super) fn rate(per_s: f64) -> String {
    scaled(per_s, 1000.0, &["", "k", "M", "G", "T"])
}

/// Bytes, or bytes a second, in powers of 1024.
pub(super) fn bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // What is shown as 1000 is shown in the next unit.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = usize::from(value > 0.0 && value < 9.95 && (unit > 0 || units[0].is_empty()));
    format!("{value:.digits$}{}", units[unit])
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.2"),
            (9.96, "10"),
            (123.4, "123"),
            (999.7, "1.0k"),
            (12_345.0, "12k"),
            (2e6, "2.0M"),
        ] {
            assert_eq!(rate(value), text, "{value}");
        }
        for (value, text) in
            [(0.0, "0 B"), (1.0, "1 B"), (1023.0, "1023 B"), (1536.0, "1.5 KiB"), (1e9, "954 MiB")]
        {
            assert_eq!(bytes(value), text, "{value}");
        }
    }
}
