//! Every argument and flag of `shunt top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::units::duration;

/// Arguments of `shunt top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The mount point [default: all mounts of shunt].
    #[arg(value_name = "MNT", value_hint = clap::ValueHint::DirPath)]
    pub mountpoint: Option<PathBuf>,
    /// Prints one interval as text and exits; the default without a terminal.
    #[arg(long)]
    pub once: bool,
    /// Prints one JSON document per interval, each on one line; with --once, only one.
    #[arg(long)]
    pub json: bool,
    /// The length of an interval, from 100ms to 1h.
    #[arg(long, short = 'n', value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
}

/// The shortest and the longest interval.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3600);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text).ok().filter(|interval| (SHORTEST..=LONGEST).contains(interval));
    interval.ok_or_else(|| "a time from 100ms to 1h, such as 0.5s".to_owned())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn intervals_have_bounds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!((interval("3600"), interval("1h")), (Ok(LONGEST), Ok(LONGEST)));
        for text in ["0", "-1", "0.01", "3601", "NaN", "inf", "2h", ""] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
