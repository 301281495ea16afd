//! What git does with a repository of many files, sources and repository below the folder that a target shows.

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::case::{Amount, GitStep};
use crate::process;
use crate::stop::Stop;
use crate::tree::{find, walked};

/// The working tree with its repository, below the folder that the target shows.
const FOLDER: &str = "git";

/// What is checked out, below that.
const FILES: &str = "files";

/// A repository whose objects are in one pack, and maybe what it has, checked out.
#[derive(Debug)]
pub(crate) struct Repository {
    /// What a walk over everything that is checked out finds.
    entries: usize,
    /// Whether the lower folder has all of it.
    checked_out: bool,
}

impl Repository {
    /// Makes the repository below the lower folder.
    ///
    /// # Errors
    /// When git cannot.
    pub(crate) fn make(lower: &Path, work: &Path, amount: &Amount, stop: &Stop) -> Result<Self> {
        let folder = lower.join(FOLDER);
        fs::create_dir(&folder)?;
        process::run_ok(git(&folder).args(["init", "-q", "-b", "main"]), amount.limit, stop)?;
        let stream = work.join("git.stream");
        let folders =
            write_stream(&stream, amount.git_files).context("cannot write what git is to import")?;
        let mut import = Command::new("sh");
        import.args(["-c", "git -C \"$1\" fast-import --quiet <\"$2\"", "sh"]).arg(&folder).arg(&stream);
        process::run_ok(plain(&mut import), amount.limit, stop).context("cannot make a git repository")?;
        fs::remove_file(&stream)?;
        Ok(Self { entries: usize::try_from(amount.git_files)? + folders, checked_out: false })
    }

    /// Puts the lower folder into the state that the step starts from.
    pub(crate) fn prepare(
        &mut self,
        step: GitStep,
        lower: &Path,
        amount: &Amount,
        stop: &Stop,
    ) -> Result<()> {
        let folder = lower.join(FOLDER);
        if step == GitStep::Status && self.checked_out {
            return Ok(());
        }
        self.checked_out = false;
        for gone in [fs::remove_dir_all(folder.join(FILES)), fs::remove_file(folder.join(".git/index"))] {
            if let Err(error) = gone
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(error).context("cannot clear the working tree");
            }
        }
        if step == GitStep::Status {
            process::run_ok(&mut checkout(&folder), amount.limit, stop)?;
            self.checked_out = true;
        }
        Ok(())
    }

    /// Runs the step below a folder and returns how long it took.
    pub(crate) fn run(
        &mut self,
        step: GitStep,
        root: &Path,
        amount: &Amount,
        stop: &Stop,
    ) -> Result<Duration> {
        let folder = root.join(FOLDER);
        if step == GitStep::Checkout {
            // The program itself shall not be what is read from the disk.
            process::run_ok(Command::new("git").arg("--version"), amount.limit, stop)?;
            return Ok(process::run_ok(&mut checkout(&folder), amount.limit, stop)?.elapsed);
        }
        // Whatever the index says of files that were looked at elsewhere, by other inode numbers, is settled by the first.
        process::run_ok(&mut status(&folder), amount.limit, stop)?;
        let ended = process::run_ok(&mut status(&folder), amount.limit, stop)?;
        if let Some(line) = ended.stdout.lines().next() {
            self.checked_out = false;
            bail!("git takes what was checked out for changed: {line}");
        }
        Ok(ended.elapsed)
    }

    /// Checks on the lower folder that the step did what it was timed for.
    pub(crate) fn verify(&self, step: GitStep, lower: &Path, amount: &Amount, stop: &Stop) -> Result<()> {
        if step == GitStep::Status {
            return Ok(());
        }
        let ended = process::run_ok(&mut find(&lower.join(FOLDER).join(FILES)), amount.limit, stop)?;
        // The folder itself is found, too.
        let there = walked(&ended.stdout) - 1;
        if there != self.entries {
            bail!("{there} files and folders are there after the checkout, not {}", self.entries);
        }
        Ok(())
    }
}

/// Says why nothing can be checked out, if so.
pub(crate) fn missing() -> Option<&'static str> {
    (!process::on_path("git")).then_some("`git` is not installed (Debian package git)")
}

/// Git in a folder, whoever owns that, without what this machine's users have set.
fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    plain(&mut command).arg("-C").arg(folder).args(["-c", "safe.directory=*"]);
    command
}

fn plain(command: &mut Command) -> &mut Command {
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null")
}

fn checkout(folder: &Path) -> Command {
    let mut command = git(folder);
    command.args(["checkout", "-q", "-f", "main"]);
    command
}

fn status(folder: &Path) -> Command {
    let mut command = git(folder);
    command.args(["status", "--porcelain"]);
    command
}

/// Writes one commit for `git fast-import`; how many folders its files are in.
fn write_stream(path: &Path, files: u32) -> Result<usize> {
    /// Files of a folder, and folders of a folder.
    const EACH: u32 = 50;
    let mut out = BufWriter::new(fs::File::create(path)?);
    writeln!(out, "commit refs/heads/main\ncommitter bench <bench@localhost> 1 +0000\ndata 0")?;
    for number in 0..files {
        let (upper, lower) = (number / EACH / EACH, number / EACH % EACH);
        let line = format!("int part{number}(int x) {{ return x + {number}; }}\n");
        // 50 bytes to 4 KiB, as sources are; no two alike.
        let text = line.repeat(usize::try_from(number * 7 % 83 + 1)?);
        write!(out, "M 100644 inline {FILES}/{upper}/{lower}/part{number}.c\ndata {}\n{text}\n", text.len())?;
    }
    out.flush()?;
    let folders = files.div_ceil(EACH) + files.div_ceil(EACH * EACH);
    Ok(usize::try_from(folders)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_and_a_status_are_what_they_say() {
        if let Some(why) = missing() {
            println!("SKIPPED: {why}");
            return;
        }
        let (lower, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (amount, stop) = (Amount::TINY, Stop::default());
        let mut repository = Repository::make(lower.path(), work.path(), &amount, &stop).unwrap();
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
        for step in [GitStep::Checkout, GitStep::Status, GitStep::Status, GitStep::Checkout] {
            repository.prepare(step, lower.path(), &amount, &stop).unwrap();
            repository.run(step, lower.path(), &amount, &stop).unwrap();
            repository.verify(step, lower.path(), &amount, &stop).unwrap();
        }
        // 60 files in two folders of one.
        assert_eq!(repository.entries, 63);
        let gone = lower.path().join(FOLDER).join(FILES).join("0/1/part59.c");
        fs::remove_file(gone).unwrap();
        assert!(repository.verify(GitStep::Checkout, lower.path(), &amount, &stop).is_err());
        assert!(repository.run(GitStep::Status, lower.path(), &amount, &stop).is_err());
    }
}
