//! The command line arguments, and how much work they ask for.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::case::Amount;

/// What to measure; flatten it into a command line with `#[command(flatten)]`.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The table to measure (`--list` shows them)
    #[arg(long, value_name = "NAME", default_value = "peers")]
    pub table: String,

    /// Measure these targets only, by name (`--list` shows them); the bare folder is always measured
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub targets: Vec<String>,

    /// Add a target: a command that stays in the foreground and mounts {SRC} on {MNT}
    #[arg(long = "target", value_name = "NAME=COMMAND")]
    pub templates: Vec<String>,

    /// Only the cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,

    /// Rounds; each measures every case on every target once [default: 3, or 1 with --smoke]
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,

    /// Length of each large file, with K, M or G [default: 1G]
    #[arg(long, value_name = "BYTES")]
    pub size: Option<ByteSize>,

    /// Small files of each job [default: 10000]
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,

    /// A data case ends after this many seconds or one pass over the file [default: 5]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,

    /// Proves in a few seconds that everything works; its figures mean nothing
    #[arg(long)]
    pub smoke: bool,

    /// Writes the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Writes the report as Markdown to this file, not to standard output
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,

    /// The `shunt` program to measure [default: $SHUNT_BIN, beside this program, or on the PATH]
    #[arg(long, value_name = "FILE")]
    pub shunt: Option<PathBuf>,

    /// Works in this folder, on whatever file system it is, not on ext4 over RAM
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,

    /// Shows tables, cases and targets, and measures nothing
    #[arg(long)]
    pub list: bool,
}

/// A number of bytes, written as `512M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (digits, unit) = match text.char_indices().last() {
            Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
            Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
            Some((at, 'G' | 'g')) => (&text[..at], 1 << 30),
            _ => (text, 1),
        };
        let count: u64 = digits.parse().with_context(|| format!("`{text}` is not a size such as 512M"))?;
        count.checked_mul(unit).map(Self).with_context(|| format!("`{text}` is too large"))
    }
}

/// How often, and how much of, each workload is run.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Rounds.
    pub rounds: usize,
    pub(crate) amount: Amount,
}

impl Options {
    /// Settles the sizes.
    ///
    /// # Errors
    /// When one of them is zero, or a large file is not a whole number of MiB.
    pub fn scale(&self) -> Result<Scale> {
        let usual = if self.smoke { SMOKE } else { FULL };
        let amount = Amount {
            file_len: self.size.map_or(usual.amount.file_len, |size| size.0),
            files: self.files.unwrap_or(usual.amount.files),
            tree_files: usual.amount.tree_files,
            runtime: self.seconds.map_or(usual.amount.runtime, Duration::from_secs),
            limit: usual.amount.limit,
        };
        let rounds = self.rounds.unwrap_or(usual.rounds);
        if rounds == 0 || amount.files == 0 || amount.runtime.is_zero() {
            bail!("--rounds, --files and --seconds must be at least 1");
        }
        if amount.file_len == 0 || !amount.file_len.is_multiple_of(1 << 20) {
            bail!("--size must be a whole number of MiB, such as 512M");
        }
        Ok(Scale { rounds, amount })
    }
}

const FULL: Scale = Scale {
    rounds: 3,
    amount: Amount {
        file_len: 1 << 30,
        files: 10_000,
        tree_files: 10_000,
        runtime: Duration::from_secs(5),
        limit: Duration::from_secs(180),
    },
};

const SMOKE: Scale = Scale {
    rounds: 1,
    amount: Amount {
        file_len: 4 << 20,
        files: 100,
        tree_files: 200,
        runtime: Duration::from_secs(1),
        limit: Duration::from_secs(30),
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!("512M".parse::<ByteSize>().unwrap(), ByteSize(512 << 20));
        assert_eq!("2g".parse::<ByteSize>().unwrap(), ByteSize(2 << 30));
        assert_eq!("4096".parse::<ByteSize>().unwrap(), ByteSize(4096));
        for wrong in ["", "M", "-1M", "12X", "99999999999999999999", "999999999999999999G"] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
    }
}
