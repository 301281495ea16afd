//! Times as the kernel counts them: seconds since 1970, negative before, and nanoseconds from there on.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NANOS: u32 = 1_000_000_000;

/// A time as it travels; what lies too far away becomes the nearest that travels.
pub(crate) fn to_wire(time: SystemTime) -> (u64, u32) {
    let (secs, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            let whole = i64::try_from(before.as_secs()).map_or(i64::MIN, |secs| -secs);
            match before.subsec_nanos() {
                0 => (whole, 0),
                nanos => (whole.saturating_sub(1), NANOS - nanos),
            }
        }
    };
    (secs.cast_unsigned(), nanos)
}

/// A time that came.
pub(crate) fn from_wire(secs: u64, nanos: u32) -> SystemTime {
    let secs = secs.cast_signed();
    let whole = Duration::from_secs(secs.unsigned_abs());
    let whole = if secs < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let nanos = Duration::from_nanos(u64::from(nanos));
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn times_travel_there_and_back() {
        let ago = |secs, nanos| UNIX_EPOCH - Duration::new(secs, nanos);
        for (time, secs, nanos) in [
            (UNIX_EPOCH, 0, 0),
            (UNIX_EPOCH + Duration::new(5, 7), 5, 7),
            (ago(5, 0), -5, 0),
            (ago(1, 200_000_000), -2, 800_000_000),
            (ago(0, 1), -1, 999_999_999),
        ] {
            assert_eq!(to_wire(time), (i64::cast_unsigned(secs), nanos));
            assert_eq!(from_wire(i64::cast_unsigned(secs), nanos), time);
        }
        assert_eq!(to_wire(ago(1 << 63, 0)), (1 << 63, 0));
    }
}
