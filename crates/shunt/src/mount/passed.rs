//! A mount that another build of this program kept until now, in this very process: trying whether this one could go on, and going on.
//!
//! The command line is that of the mount, with two words of the keeper's. What it names is not looked up again: the folder that is
//! shown comes as a descriptor, and the mount point from the note, because whoever touches the mount waits for a server.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;

use shuntfs_keeper::{Passed, Trial};

use super::check::{At, Target};
use super::kept::{Kept, ROOT};
use super::serve::started;
use super::session::{Mounted, session_options};
use crate::cli::MountArgs;
use crate::failure::Failure;
use crate::options::Unknown;
use crate::serving;
use crate::settings::Settings;
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
    let begun = settings(args).and_then(|settings| {
        let root = passed.take_kept(ROOT).ok_or_else(|| Failure::new("no folder was handed over"))?;
        Ok((settings, root))
    });
    let (settings, root) = match begun {
        Ok(begun) => begun,
        Err(failure) => {
            let _there_is_no_way_back = passed.returns(&failure.to_string());
            return Err(failure);
        }
    };
    let target = target(args, &root, passed.path());
    let kept = Kept::of(&target, root);
    serving::go_on(&settings, !args.ready_on_stdout, &kept.place(&settings), passed, |seat| {
        Ok(started(Mounted::take_seat(&kept, &settings, seat)?, &target, &settings))
    })
}

/// Does what can be done beside the server that serves.
fn try_out(args: &MountArgs, note: RawFd) -> Result<(), Failure> {
    let failed = |error: shuntfs_keeper::PassedError| Failure::new(error.to_string());
    let trial = Trial::take(note).map_err(failed)?;
    let (settings, root) = (settings(args)?, trial.kept(ROOT).map_err(failed)?);
    let target = target(args, &root, &trial.path().unwrap_or_default());
    let kept = Kept::of(&target, root);
    let pool = kept.check(&settings)?;
    trial.check(&pool, &session_options(&target, &settings)).map_err(failed)?;
    print_suits()
}

fn settings(args: &MountArgs) -> Result<Settings, Failure> {
    let unknown = if args.sloppy { Unknown::Ignore } else { Unknown::Refuse };
    args.wishes.settle(unknown).map(|(settings, _)| settings)
}

/// The folder by the name that it has now.
fn target(args: &MountArgs, root: &OwnedFd, path: &Path) -> Target {
    let source = std::fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd()));
    Target {
        source: source.unwrap_or_else(|_| args.source.clone()),
        branches: None,
        at: At::Folder(path.to_owned()),
        notes: Vec::new(),
    }
}
