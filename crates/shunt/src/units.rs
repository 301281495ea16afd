//! Sizes and durations as they are typed. Their syntax is that of rules files: [`shuntfs_rules::units`].

use std::time::Duration;

use shuntfs_rules::units;

/// Reads a size in bytes that a file can have. Errors are what is needed.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let size = units::size(text)
        .ok_or("a size: a number of bytes, or a number with K, M, G, T or P, as in `20G`")?;
    if i64::try_from(size).is_err() {
        return Err("a size of less than 8192P".to_owned());
    }
    Ok(size)
}

/// Reads a size of less than 4 GiB.
pub(crate) fn small_size(text: &str) -> Result<u32, String> {
    size(text)?.try_into().map_err(|_| "a size of less than 4G".to_owned())
}

/// Reads a duration.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    units::duration(text)
        .ok_or_else(|| "a time: a number with us, ms, s, m, h, d or w, as in `500ms`".to_owned())
}

/// A duration as it could be typed.
pub(crate) fn duration_text(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn sizes_are_those_of_files() {
        for (text, bytes) in [("0", 0), ("512", 512), ("4k", 4096), ("1T", 1 << 40), ("7B", 7)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "1X", "-1", "1.5G", "9P9", "99999999T", "8192P", " 1", "1 G"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(small_size("4096M").ok(), None);
        assert_eq!(small_size("4095M"), Ok(4095 << 20));
    }

    #[test]
    fn durations_survive() {
        for text in ["0", "7s", "1.5s", "250ms", "9us", "60m", "1w"] {
            let read = duration(text).unwrap();
            assert_eq!(duration(&duration_text(read)), Ok(read), "{text}");
        }
        assert!(duration("fast").is_err_and(|why| why.contains("500ms")));
    }
}
