//! The command line arguments, and how much work they ask for.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::calls::Timed;
use crate::case::Amount;
use crate::probe::Probe;

/// What to measure; flatten it into a command line with `#[command(flatten)]`.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Measures this table, or several [default: all]; `--list` shows them.
    #[arg(long = "table", value_name = "NAME", value_delimiter = ',')]
    pub tables: Vec<String>,

    /// Measures these columns only; `--list` shows them. The baseline is always measured.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub targets: Vec<String>,

    /// Adds a column: a command that stays in the foreground and shows {SRC} on {MNT}; it may use {WORK} and {EMPTY}, too. With
    /// {BRANCHES} for {SRC}, folders separated by colons, it is a column of the table `pool`, too.
    #[arg(long = "target", value_name = "NAME=COMMAND")]
    pub templates: Vec<String>,

    /// Only the cases whose name contains one of these.
    #[arg(long = "case", value_name = "TEXT,..", value_delimiter = ',')]
    pub cases: Vec<String>,

    /// Rounds; each measures every case on every column once, in random order [default: 5]. Fewer than 5 decide nothing.
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,

    /// The order of columns is drawn from this number [default: any]; the run names it.
    #[arg(long, value_name = "N")]
    pub seed: Option<u32>,

    /// So many rounds more for each case whose baseline differs by more than a quarter between its rounds; a build is never
    /// repeated so.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub more: usize,

    /// `smoke` proves in a minute that everything works and measures nothing; `full`; or the length of each large file
    /// (512M, 2G) with everything else as in `full`, where it is 1G.
    #[arg(long, value_name = "SIZE", default_value = "full")]
    pub size: Size,

    /// Small files of each job [default: 10000].
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,

    /// Names of the folder that the table `pool` lists, all branches together [default: 100000].
    #[arg(long, value_name = "N")]
    pub entries: Option<u64>,

    /// A data case ends after this many seconds or one pass over the file [default: 3].
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,

    /// A step that takes longer is ended and counts as failed [default: 180; a build 1800].
    #[arg(long, value_name = "SECONDS")]
    pub limit: Option<u64>,

    /// Writes the run as JSON to this file.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub json: Option<PathBuf>,

    /// Writes the run as one HTML file with plots.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub html: Option<PathBuf>,

    /// Writes the tables as Markdown to this file, not to standard output.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub markdown: Option<PathBuf>,

    /// Puts the run into the pages of the documentation: ten rows into this one, everything into NAME-full.md beside it. The runs are
    /// kept in the folder NAME; with `--from` a run of that folder, the pages are written again.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub docs: Option<PathBuf>,

    /// Measures nothing, and shows the run of this JSON file in the ways asked for.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub from: Option<PathBuf>,

    /// The `shunt` to measure [default: the one beside this program, or else on the PATH].
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub shunt: Option<PathBuf>,

    /// Works in this folder, on whatever file system it is, not on ext4 over RAM.
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub folder: Option<PathBuf>,

    /// Shows tables, cases and columns, and measures nothing.
    #[arg(long)]
    pub list: bool,

    /// What a child of ours measures, and prints.
    #[arg(long, hide = true)]
    pub probe: Option<Probe>,

    /// What a child of ours calls again and again; it prints the quantiles of the calls' times.
    #[arg(long, hide = true)]
    pub calls: Option<Timed>,
}

/// How much is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Size {
    /// As much as makes figures.
    Full,
    /// As little as runs everything.
    Smoke,
    /// Large files of this many bytes.
    Bytes(u64),
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "full" => return Ok(Self::Full),
            "smoke" => return Ok(Self::Smoke),
            _ => {}
        }
        let (digits, unit) = match text.char_indices().last() {
            Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
            Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
            Some((at, 'G' | 'g')) => (&text[..at], 1 << 30),
            _ => (text, 1),
        };
        let count: u64 =
            digits.parse().map_err(|_| "not `smoke`, `full`, or a length such as 512M".to_owned())?;
        count.checked_mul(unit).map(Self::Bytes).ok_or_else(|| "too large".to_owned())
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full => out.write_str("full"),
            Self::Smoke => out.write_str("smoke"),
            Self::Bytes(len) => write!(out, "{} MiB", len >> 20),
        }
    }
}

/// How often, and how much of, each workload is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) rounds: usize,
    /// Rounds more for cases that waver.
    pub(crate) more: usize,
    /// What the order of columns is drawn from.
    pub(crate) seed: u32,
    pub(crate) amount: Amount,
}

impl Options {
    /// Settles the sizes.
    ///
    /// # Errors
    /// When one of them is zero, or a large file is not a whole number of MiB.
    pub(crate) fn scale(&self) -> Result<Scale> {
        let usual = if self.size == Size::Smoke { SMOKE } else { FULL };
        let mut amount = usual.amount;
        if let Size::Bytes(len) = self.size {
            amount.file_len = len;
        }
        amount.files = self.files.unwrap_or(amount.files);
        amount.entries = self.entries.unwrap_or(amount.entries);
        amount.runtime = self.seconds.map_or(amount.runtime, Duration::from_secs);
        if let Some(limit) = self.limit.map(Duration::from_secs) {
            (amount.limit, amount.build_limit) = (limit, limit);
        }
        let rounds = self.rounds.unwrap_or(usual.rounds);
        let none = [u64::try_from(rounds)?, amount.files, amount.entries].contains(&0);
        if none || amount.runtime.is_zero() || amount.limit.is_zero() {
            bail!("--rounds, --files, --entries, --seconds and --limit must be at least 1");
        }
        if amount.file_len == 0 || !amount.file_len.is_multiple_of(1 << 20) {
            bail!("--size must be a whole number of MiB, such as 512M");
        }
        let seed = self.seed.unwrap_or_else(|| fastrand::u32(..));
        Ok(Scale { rounds, more: self.more, seed, amount })
    }
}

const FULL: Scale = Scale {
    rounds: 5,
    more: 0,
    seed: 0,
    amount: Amount {
        file_len: 1 << 30,
        files: 10_000,
        entries: 100_000,
        tree_files: 10_000,
        sources: 400,
        real_build: true,
        round_trips: 20_000,
        calls: 100_000,
        names: 16_000,
        calling: Duration::from_millis(400),
        git_files: 50_000,
        cold_each: true,
        runtime: Duration::from_secs(3),
        limit: Duration::from_secs(180),
        build_limit: Duration::from_secs(1800),
    },
};

const SMOKE: Scale = Scale {
    rounds: 1,
    more: 0,
    seed: 0,
    amount: Amount {
        file_len: 4 << 20,
        files: 100,
        entries: 2_000,
        tree_files: 200,
        sources: 8,
        real_build: false,
        round_trips: 500,
        calls: 2_000,
        names: 400,
        calling: Duration::from_millis(50),
        git_files: 500,
        cold_each: false,
        runtime: Duration::from_secs(1),
        limit: Duration::from_secs(30),
        build_limit: Duration::from_secs(30),
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_words_or_lengths() {
        assert_eq!("full".parse(), Ok(Size::Full));
        assert_eq!("smoke".parse(), Ok(Size::Smoke));
        assert_eq!("512M".parse(), Ok(Size::Bytes(512 << 20)));
        assert_eq!("2g".parse(), Ok(Size::Bytes(2 << 30)));
        assert_eq!("4096".parse(), Ok(Size::Bytes(4096)));
        for wrong in ["", "M", "-1M", "12X", "99999999999999999999", "999999999999999999G", "smok"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
