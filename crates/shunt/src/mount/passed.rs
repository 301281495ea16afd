//! A mount that another build of this program kept until now, in this very process: trying whether this one could go on, and going on.
//!
//! The command line is that of the mount, with two words of the keeper's. What it names is not looked up again: the folder that is
//! shown comes as a descriptor, and the mount point from the note, because whoever touches the mount waits for a server.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use shuntfs_keeper::{Passed, Trial};
use shuntfs_pool::{KeptBranches, Ledger};

use super::check::{At, Target};
use super::kept::{Kept, LEDGER, LeftRecords, SEAL, Shown, Shows, name_of_branches, name_of_root};
use super::serve::started;
use super::session::{Mounted, of_pool, session_options};
use super::verify::OfKeeper;
use crate::cli::MountArgs;
use crate::failure::Failure;
use crate::options::Unknown;
use crate::seal::KeptSeal;
use crate::serving::{self, SCRAPES};
use crate::settings::{Settings, VerifyChoice};
use crate::upgrade::candidate::print_suits;

/// Goes on with the mount, or tries whether it could.
///
/// # Errors
/// Why it could not, and where there is no server any more that could go on.
pub(super) fn run(args: &MountArgs, note: RawFd) -> Result<(), Failure> {
    if args.takeover_trial {
        return try_out(args, note);
    }
    // Before anything is opened.
    let mut passed = Passed::take(note).map_err(|error| Failure::new(error.to_string()))?;
    shuntfs_sys::threads::set_process_name(c"shunt");
    // These stay open under their numbers: the program before goes on with them if no server of this one becomes ready.
    let names: Vec<String> = passed.kept().keys().filter(|name| *name != SCRAPES).cloned().collect();
    let held: BTreeMap<String, OwnedFd> =
        names.into_iter().filter_map(|name| passed.take_kept(&name).map(|fd| (name, fd))).collect();
    let begun = settings(args).and_then(|settings| {
        let copy = |name: &str| held.get(name).and_then(|fd| fd.try_clone().ok());
        let (target, shown) = take(&args.source, passed.path(), &settings, copy)?;
        let left = left(&target, &settings, copy)?;
        Ok((left, settings, (target, shown)))
    });
    let (left, settings, (target, shown)) = match begun {
        Ok(begun) => begun,
        Err(failure) => {
            let _there_is_no_way_back = passed.returns(&failure.to_string());
            return Err(failure);
        }
    };
    let kept = Kept::of(&target, shown, left);
    serving::go_on(&settings, !args.ready_on_stdout, &kept.place(&settings), passed, |seat| {
        Ok(started(Mounted::take_seat(&kept, &settings, seat)?, &target, &settings))
    })
}

/// Does what can be done beside the server that serves.
fn try_out(args: &MountArgs, note: RawFd) -> Result<(), Failure> {
    let failed = |error: shuntfs_keeper::PassedError| Failure::new(error.to_string());
    let trial = Trial::take(note).map_err(failed)?;
    let (settings, path) = (settings(args)?, trial.path().unwrap_or_default());
    let (target, shown) = take(&args.source, &path, &settings, |name| trial.kept(name).ok())?;
    let left = left(&target, &settings, |name| trial.kept(name).ok())?;
    let kept = Kept::of(&target, shown, left);
    let options = session_options(&target, &settings);
    match kept.check(&settings)? {
        Shows::Pool { pool, .. } => trial.check(&pool, &options),
        Shows::Sealed(sealed, _) => trial.check(&sealed, &options),
    }
    .map_err(failed)?;
    print_suits()
}

/// What the program before had written down for the next server.
fn left(
    target: &Target,
    settings: &Settings,
    kept: impl Fn(&str) -> Option<OwnedFd>,
) -> Result<LeftRecords, Failure> {
    let ledger = ledger_of(settings, kept(LEDGER))?;
    if settings.verify.what == VerifyChoice::Off {
        return Ok(LeftRecords { ledger, seal: None });
    }
    let seal = kept(SEAL).ok_or_else(|| Failure::new("the seal in force was not handed over"))?;
    let seal = OfKeeper::of(KeptSeal::of(seal), &target.source, settings)?;
    Ok(LeftRecords { ledger, seal: Some(seal) })
}

/// What the program before had written down for the next server, where there are rules.
fn ledger_of(settings: &Settings, ledger: Option<OwnedFd>) -> Result<Option<Ledger>, Failure> {
    if settings.rules.is_none() {
        return Ok(None);
    }
    let ledger = ledger.ok_or_else(|| Failure::new("the rules in force were not handed over"))?;
    Ledger::of(ledger.into()).map(Some).map_err(|error| Failure::new(error.to_string()))
}

fn settings(args: &MountArgs) -> Result<Settings, Failure> {
    let unknown = if args.sloppy { Unknown::Ignore } else { Unknown::Refuse };
    args.wishes.settle(unknown).map(|(settings, _)| settings)
}

/// What was handed over: the folder, by the name that it has now, or the branches in force.
///
/// # Errors
/// If there is neither.
fn take(
    source: &Path,
    path: &Path,
    settings: &Settings,
    kept: impl Fn(&str) -> Option<OwnedFd>,
) -> Result<(Target, Shown), Failure> {
    let target = |source, branches| Target { source, branches, at: At::of(path), notes: Vec::new() };
    if let Some(branches) = kept(name_of_branches(settings)) {
        let branches = KeptBranches::of(branches);
        let in_force = branches.branches().map_err(|error| of_pool(&error))?;
        return Ok((target(source.to_owned(), Some(in_force)), Shown::Branches(Arc::new(branches))));
    }
    let root = kept(name_of_root(settings)).ok_or_else(|| Failure::new("no folder was handed over"))?;
    let now = std::fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd()));
    Ok((target(now.unwrap_or_else(|_| source.to_owned()), None), Shown::Folder(root)))
}
