//! The two ways to ask for a mount: the command, and the helper of mount(8).

use std::path::PathBuf;

use super::announce::Announce;
use super::{check, launch, serve};
use crate::cli::{HelperArgs, MountArgs, Wishes};
use crate::failure::Failure;
use crate::options::Unknown;
use crate::run::complain;
use crate::settings::Settings;

/// A mount, asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) source: PathBuf,
    pub(super) mountpoint: PathBuf,
    pub(super) settings: Settings,
}

/// Mounts.
///
/// # Errors
/// Where the command line is wrong, or the mount cannot be.
pub(crate) fn run(args: &MountArgs) -> Result<(), Failure> {
    let announce = if args.ready_on_stdout { Announce::to_parent() } else { Announce::to_terminal() };
    let unknown = if args.sloppy { Unknown::Ignore } else { Unknown::Refuse };
    let outcome = args.wishes.settle(unknown).and_then(|(settings, notes)| {
        if !args.ready_on_stdout {
            notes.iter().for_each(|note| complain(&format!("shunt: {note}")));
        }
        if !args.foreground {
            return launch::launch(args);
        }
        let asked = Asked { source: args.source.clone(), mountpoint: args.mountpoint.clone(), settings };
        serve::serve(&asked, announce)
    });
    if let Err(failure) = &outcome {
        announce.failed(failure);
    }
    outcome
}

/// Mounts for mount(8).
///
/// # Errors
/// Where the command line is wrong, or the mount cannot be.
pub(crate) fn run_helper(args: &HelperArgs) -> Result<(), Failure> {
    let args_of_mount = MountArgs {
        source: args.source.clone(),
        mountpoint: args.mountpoint.clone(),
        foreground: false,
        wishes: Wishes { options: args.options.clone(), ..Wishes::default() },
        sloppy: args.sloppy,
        ready_on_stdout: false,
    };
    if args.fake {
        let unknown = if args.sloppy { Unknown::Ignore } else { Unknown::Refuse };
        let (settings, _) = args_of_mount.wishes.settle(unknown)?;
        check::check(&args.source, &args.mountpoint, &settings)?;
        return Ok(());
    }
    run(&args_of_mount)?;
    if args.verbose > 0 {
        complain(&format!("{} mounted at {}", args.source.display(), args.mountpoint.display()));
    }
    Ok(())
}
