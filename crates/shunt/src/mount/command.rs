//! The two ways to ask for a mount: the command, and the helper of mount(8).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::session::SOURCE_MAX;
use super::{check, passed, serve};
use crate::branches;
use crate::cli::{HelperArgs, MountArgs, Wishes};
use crate::failure::Failure;
use crate::mounts::{self, Mounts, shown};
use crate::options::Unknown;
use crate::run::complain;
use crate::serving::{Announce, launch};
use crate::settings::Settings;
use crate::status::client_of;

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
    if let Some(note) = args.takeover_note {
        return passed::run(args, note);
    }
    let announce = if args.ready_on_stdout { Announce::to_parent() } else { Announce::to_terminal() };
    let unknown = if args.sloppy { Unknown::Ignore } else { Unknown::Refuse };
    let outcome = args.wishes.settle(unknown).and_then(|(settings, notes)| {
        if !args.ready_on_stdout {
            notes.iter().for_each(|note| complain(&format!("shunt: {note}")));
        }
        // Here and not in the server, which has so long to start.
        if let Some(limit) = settings.merge.wait.filter(|_| !args.ready_on_stdout) {
            branches::wait_for(&args.source, &args.mountpoint, limit)?;
        }
        if !args.foreground {
            return in_background(args);
        }
        let asked = Asked { source: args.source.clone(), mountpoint: args.mountpoint.clone(), settings };
        serve::serve(&asked, announce)
    });
    if let Err(failure) = &outcome {
        announce.failed(failure);
    }
    outcome
}

fn in_background(args: &MountArgs) -> Result<(), Failure> {
    let words = words(args).map_err(|error| Failure::new(format!("cannot start the server: {error}")))?;
    // A device that was mounted by someone else has no place to ask at.
    let has_place = check::inherited_device(&args.mountpoint).is_none();
    launch(&words, has_place.then_some(&args.mountpoint))
}

/// The command line of the server, as `ps` shows it: the same words with absolute paths.
fn words(args: &MountArgs) -> std::io::Result<Vec<OsString>> {
    let mut words: Vec<OsString> = ["mount", "--foreground", "--ready-on-stdout"].map(OsString::from).into();
    if args.sloppy {
        words.push("--sloppy".into());
    }
    words.extend(args.wishes.words()?);
    words.push("--".into());
    words.push(branches::absolute(&args.source)?);
    words.push(std::path::absolute(&args.mountpoint)?.into());
    Ok(words)
}

/// Whether MNT shows SRC under another source: `mount -a` looks for SRC in the list of mounts, and does not find it where
/// `fsname` says something else, where a list of branches was written in another way, or where SRC is too long for the list.
fn is_mounted_already(args: &HelperArgs, of_mount: &MountArgs) -> bool {
    let named =
        of_mount.wishes.settle(Unknown::Ignore).is_ok_and(|(settings, _)| settings.mount.fsname.is_some());
    let is_list = matches!(branches::of_source(&args.source), Ok(Some(_)));
    let is_cut = args.source.as_os_str().len() > SOURCE_MAX;
    if !named && !is_list && !is_cut {
        return false;
    }
    let Ok(list) = Mounts::read() else { return false };
    let mount = list
        .locate(&args.mountpoint)
        .ok()
        .and_then(|path| list.at(&path))
        .filter(|mount| mounts::is_shunt(mount));
    let Some(mut client) = mount.and_then(|mount| client_of(mount).ok()) else { return false };
    // A list is called what it was written as.
    let source = if is_list {
        branches::absolute(&args.source).map(PathBuf::from)
    } else {
        args.source.canonicalize()
    };
    source.is_ok_and(|source| client.status().is_ok_and(|status| Path::new(&status.folder) == source))
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
        takeover_note: None,
        takeover_trial: false,
    };
    if args.fake {
        let unknown = if args.sloppy { Unknown::Ignore } else { Unknown::Refuse };
        let (settings, _) = args_of_mount.wishes.settle(unknown)?;
        check::check(&args.source, &args.mountpoint, &settings)?;
        return Ok(());
    }
    if is_mounted_already(args, &args_of_mount) {
        complain(&format!(
            "mount.fuse.shunt: {} is mounted at {} already",
            shown(&args.source),
            shown(&args.mountpoint)
        ));
        return Ok(());
    }
    run(&args_of_mount)?;
    if args.verbose > 0 {
        complain(&format!("{} mounted at {}", args.source.display(), args.mountpoint.display()));
    }
    Ok(())
}
