//! Every argument and flag of `shunt top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

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
    /// The length of an interval in seconds, from 0.1 to 3600.
    #[arg(long, short = 'n', value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,
}

/// The shortest and the longest interval.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3600);

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let interval = seconds.filter(|interval| (SHORTEST..=LONGEST).contains(interval));
    interval.ok_or_else(|| "a number of seconds from 0.1 to 3600".to_owned())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("3600"), Ok(LONGEST));
        for text in ["0", "-1", "0.01", "3601", "NaN", "inf", "1s", ""] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
