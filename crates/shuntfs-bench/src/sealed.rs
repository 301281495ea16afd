//! What is run beside fio on the sealed file: a program that hashes it, and `shunt status`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::case::Amount;
use crate::fio::Counted;
use crate::process;
use crate::stop::Stop;

/// How long a mount may take to say what it did.
const LIMIT: Duration = Duration::from_secs(15);

/// Has a program read a file once, and counts that as fio does.
///
/// # Errors
/// When it fails or takes too long.
pub(crate) fn read_by(words: &[String], file: &Path, amount: &Amount, stop: &Stop) -> Result<Counted> {
    let words: Vec<String> =
        words.iter().map(|word| word.replace("{FILE}", &file.to_string_lossy())).collect();
    let (program, rest) = words.split_first().context("no program")?;
    let ended = process::run_ok(Command::new(program).args(rest), amount.limit, stop)?;
    // In KiB, which fit a number of 32 bits up to 4 TiB, and so convert without a loss.
    let kib = f64::from(u32::try_from(amount.file_len >> 10)?);
    let per_sec = kib * 1024.0 / ended.elapsed.as_secs_f64();
    Ok(Counted {
        bytes_per_sec: per_sec,
        read_len: amount.file_len,
        len: amount.file_len,
        ..Counted::default()
    })
}

/// Asks a mount how often it read a hash tree; nothing where it checks none.
///
/// # Errors
/// When it does not say.
pub(crate) fn tree_reads(shunt: &str, root: &Path, stop: &Stop) -> Result<Option<u64>> {
    let mut command = Command::new(shunt);
    command.arg("status").arg(root).arg("--json");
    let said = process::run_ok(&mut command, LIMIT, stop)?.stdout;
    parse(&said).context("cannot read what `shunt status --json` says")
}

#[derive(Deserialize)]
struct Status {
    verify: Option<Verify>,
}

#[derive(Deserialize)]
struct Verify {
    facts: Facts,
}

#[derive(Deserialize)]
struct Facts {
    tree_reads: u64,
}

fn parse(said: &str) -> Result<Option<u64>> {
    let status: Status = serde_json::from_str(said)?;
    Ok(status.verify.map(|verify| verify.facts.tree_reads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_reads_are_found_where_there_are_checks() {
        assert_eq!(parse(r#"{"verify":{"facts":{"tree_reads":7,"reads":9}},"pid":1}"#).unwrap(), Some(7));
        assert_eq!(parse(r#"{"verify":null}"#).unwrap(), None);
        assert!(parse("{").is_err());
    }

    #[test]
    fn a_program_gets_the_file() {
        let words = ["test", "{FILE}", "=", "/a"].map(str::to_owned);
        let counted = read_by(&words, Path::new("/a"), &Amount::TINY, &Stop::default()).unwrap();
        assert!(counted.len == Amount::TINY.file_len && counted.bytes_per_sec > 0.0);
        assert!(read_by(&words, Path::new("/b"), &Amount::TINY, &Stop::default()).is_err());
    }
}
