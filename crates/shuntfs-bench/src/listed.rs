//! A large folder that is listed: a part of it on each branch, and all of it on one.
//!
//! Its names are those of few empty files: a folder of a million files would need gigabytes for what nobody looks at.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::case::{Amount, ListStep};
use crate::process;
use crate::stop::Stop;
use crate::target::{Mounting, Target};

/// The folder of which each branch has a part, and the one that has all of it.
const PART: &str = "part";
const WHOLE: &str = "whole";

/// What each name begins with.
const NAME: &str = "name.";

/// A file has so many names at most; ext4 lets it have 65,000.
const LINKS_MAX: u64 = 60_000;

/// Makes the folders where they are missing. The last branch is the one that has all of it, too.
pub(crate) fn prepare(branches: &[PathBuf], amount: &Amount) -> Result<()> {
    let part = part(branches, amount)?;
    let mut first = 0;
    for branch in branches {
        fill(&branch.join(PART), first..first + part)?;
        first += part;
    }
    fill(&branches.last().context("no branch")?.join(WHOLE), 0..first)
}

/// Returns how many names a branch has.
fn part(branches: &[PathBuf], amount: &Amount) -> Result<u64> {
    Ok((amount.entries / u64::try_from(branches.len())?).max(1))
}

fn fill(folder: &Path, numbers: Range<u64>) -> Result<()> {
    let name = |number: u64| folder.join(format!("{NAME}{number}"));
    if name(numbers.end - 1).exists() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    let (start, mut file) = (numbers.start, PathBuf::new());
    for number in numbers {
        if (number - start).is_multiple_of(LINKS_MAX) {
            file = folder.with_extension(format!("file.{number}"));
            fs::File::create(&file)?;
        }
        fs::hard_link(&file, name(number)).context("cannot fill the folder that is listed")?;
    }
    Ok(())
}

/// Returns what is listed where a target shows it: the parts one after the other where nobody shows them as one.
fn folders(target: &Target, root: &Path, branches: &[PathBuf]) -> Vec<PathBuf> {
    match target.mounting {
        Mounting::Bare => branches.iter().map(|branch| branch.join(PART)).collect(),
        _ if target.shows_branches() => vec![root.join(PART)],
        _ => vec![root.join(WHOLE)],
    }
}

/// Lists the folder and returns how long it took.
///
/// # Errors
/// When not every name is listed once.
pub(crate) fn run(
    step: ListStep,
    (target, root): (&Target, &Path),
    branches: &[PathBuf],
    amount: &Amount,
    stop: &Stop,
) -> Result<Duration> {
    let folders = folders(target, root, branches);
    let list = || process::run_ok(Command::new("ls").arg("-f").args(&folders), amount.limit, stop);
    // The program itself shall not be what is read from the disk.
    process::run_ok(Command::new("ls").arg("--version"), amount.limit, stop)?;
    if step == ListStep::Warm {
        list()?;
    }
    let ended = list()?;
    let mut names: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with(NAME)).collect();
    let listed = names.len();
    names.sort_unstable();
    names.dedup();
    let expected = part(branches, amount)? * u64::try_from(branches.len())?;
    if u64::try_from(listed)? != expected || names.len() != listed {
        bail!("{listed} names were listed, {} of them different, and not {expected}", names.len());
    }
    Ok(ended.elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_the_whole_have_the_same_names() {
        let top = tempfile::tempdir().unwrap();
        let branches = ["a", "b", "c"].map(|name| top.path().join(name)).to_vec();
        branches.iter().for_each(|branch| fs::create_dir(branch).unwrap());
        prepare(&branches, &Amount::TINY).unwrap();
        let names = |folder: PathBuf| -> Vec<_> {
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        let mut parts: Vec<_> = branches.iter().flat_map(|branch| names(branch.join(PART))).collect();
        let mut whole = names(branches[2].join(WHOLE));
        parts.sort();
        whole.sort();
        assert_eq!((parts.len(), parts), (99, whole));
        let stop = Stop::default();
        let list =
            |amount: &Amount| run(ListStep::Warm, (&Target::bare(), top.path()), &branches, amount, &stop);
        assert!(list(&Amount::TINY).is_ok());
        assert!(list(&Amount { entries: 200, ..Amount::TINY }).is_err(), "not all of them are there");
    }
}
