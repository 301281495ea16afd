//! Many small files, through fio's file engines.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::case::{Amount, Meta, MetaStep};
use crate::fio::{self, Counted};
use crate::stop::Stop;

/// The folder of the small files, below the folder that the target shows.
const FOLDER: &str = "small";

const FILE_LEN: usize = 4096;

/// Puts several lower folders into the state that the step starts from: the first has what exists, and the others nothing.
pub(crate) fn prepare_on(meta: &Meta, branches: &[PathBuf], amount: &Amount) -> Result<()> {
    for folder in branches.iter().map(|branch| branch.join(FOLDER)) {
        if folder.exists() {
            fs::remove_dir_all(&folder).context("cannot clear the small files")?;
        }
    }
    prepare(meta, branches.first().context("no branch")?, amount)
}

/// Puts the lower folder into the state that the step starts from.
pub(crate) fn prepare(meta: &Meta, lower: &Path, amount: &Amount) -> Result<()> {
    let folder = lower.join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("cannot clear the small files")?;
    }
    fs::create_dir(&folder)?;
    if meta.step == MetaStep::Create {
        return Ok(());
    }
    for job in 0..meta.jobs {
        for number in 0..amount.files_of(meta.jobs) {
            // fio's own naming: its stat and delete engines look for these.
            fs::write(folder.join(format!("small.{job}.{number}")), [0x5a; FILE_LEN])?;
        }
    }
    Ok(())
}

/// Runs the step.
pub(crate) fn run(meta: &Meta, root: &Path, amount: &Amount, cold: bool, stop: &Stop) -> Result<Counted> {
    let mut command = fio::base();
    command.arg(format!("--directory={}", root.join(FOLDER).display()));
    command.arg("--name=small");
    command.arg(match meta.step {
        MetaStep::Create => "--ioengine=filecreate",
        MetaStep::Stat => "--ioengine=filestat",
        MetaStep::Delete => "--ioengine=filedelete",
    });
    command.arg(format!("--nrfiles={}", amount.files_of(meta.jobs)));
    command.arg(format!("--filesize={FILE_LEN}"));
    command.arg(format!("--numjobs={}", meta.jobs));
    command.arg("--openfiles=1");
    match meta.step {
        MetaStep::Create => {
            command.arg("--create_on_open=1");
        }
        // fio looks at every file when it sets up, which fills the caches again: empty them after that.
        MetaStep::Stat | MetaStep::Delete if cold => {
            command.arg("--exec_prerun=sh -c 'echo 3 > /proc/sys/vm/drop_caches'");
        }
        MetaStep::Stat | MetaStep::Delete => {}
    }
    fio::in_scratch(&mut command, |command| fio::run(command, amount, stop))
}

/// Checks on the lower folders that the step did what it was timed for.
pub(crate) fn verify(meta: &Meta, branches: &[PathBuf], amount: &Amount) -> Result<()> {
    let folders = branches.iter().map(|branch| branch.join(FOLDER)).filter(|folder| folder.exists());
    let mut there = 0;
    for folder in folders {
        there += u64::try_from(fs::read_dir(folder)?.count())?;
    }
    let expected = match meta.step {
        MetaStep::Create | MetaStep::Stat => amount.files_of(meta.jobs) * u64::from(meta.jobs),
        MetaStep::Delete => 0,
    };
    if there != expected {
        bail!("{there} files are there after the step, not {expected}");
    }
    Ok(())
}
