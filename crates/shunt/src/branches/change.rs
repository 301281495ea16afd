//! `shunt branches`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use shuntfs_pool::{BranchChange, BranchOptions};
use shuntfs_sys::mount::MountInfo;

use super::list::read;
use crate::failure::Failure;
use crate::json::{self, One};
use crate::mount::check::{check_apart, check_source};
use crate::mounts::{Mounts, shown};
use crate::run::output_failure;
use crate::status;
use crate::umount;

/// Arguments of `shunt branches`.
#[derive(Debug, Args)]
pub struct BranchesArgs {
    /// What is done.
    #[command(subcommand)]
    pub what: BranchesWhat,
}

/// What is done with the branches of a mount. It holds until the mount ends: fstab says what the next one shows.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum BranchesWhat {
    /// Lists the folders.
    List(BranchesOf),
    /// Adds folders, after the existing ones.
    Add {
        /// The mount point.
        #[command(flatten)]
        of: BranchesOf,
        /// The folders, as for `shunt mount`: /a:/b=RO:/mnt/disk*=NC,10G.
        #[arg(value_name = "BRANCHES")]
        branches: OsString,
        /// Adds them before the existing ones.
        #[arg(long)]
        first: bool,
    },
    /// Removes folders; open files there stay usable, and when they are closed, the disk can be unmounted.
    Remove {
        /// The mount point.
        #[command(flatten)]
        of: BranchesOf,
        /// The folders.
        #[arg(value_name = "FOLDER", required = true, value_hint = clap::ValueHint::DirPath)]
        folders: Vec<PathBuf>,
    },
    /// Replaces the list of folders, with their order and modes.
    Set {
        /// The mount point.
        #[command(flatten)]
        of: BranchesOf,
        /// All folders, as for `shunt mount`.
        #[arg(value_name = "BRANCHES")]
        branches: OsString,
    },
}

/// Which mount.
#[derive(Debug, Args)]
pub struct BranchesOf {
    /// The mount point.
    #[arg(value_name = "MNT", value_hint = clap::ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Prints the branches as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Changes the branches of a mount, and shows which they are then.
///
/// # Errors
/// Where there is no such mount, a branch cannot be one, or the server does not answer or refuses.
pub(crate) fn run(args: &BranchesArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let (BranchesWhat::List(of)
    | BranchesWhat::Add { of, .. }
    | BranchesWhat::Remove { of, .. }
    | BranchesWhat::Set { of, .. }) = &args.what;
    let mounts = Mounts::read()?;
    let mount = umount::find(&mounts, &of.mountpoint)?;
    let named = |list: &OsString| branches_for(&mounts, mount, list);
    let change = match &args.what {
        BranchesWhat::List(_) => None,
        BranchesWhat::Add { branches, first: false, .. } => Some(BranchChange::Append(named(branches)?)),
        BranchesWhat::Add { branches, first: true, .. } => Some(BranchChange::Prepend(named(branches)?)),
        BranchesWhat::Remove { folders, .. } => Some(BranchChange::Remove(absolute(folders)?)),
        BranchesWhat::Set { branches, .. } => Some(BranchChange::Set(named(branches)?)),
    };
    let failed = |error| status::unanswered(mount, &error);
    if let Some(change) = change {
        status::client_of(mount)?.change_branches(change).map_err(failed)?;
    }
    let status = status::readable(&status::client_of(mount)?.status().map_err(failed)?)?;
    if of.json {
        return json::print(&One("branches", &status.pool.get("branches")), out);
    }
    status::print_branches(&status, out).map_err(|error| output_failure(&error))
}

/// The branches of a list, each looked at as `shunt mount` does.
fn branches_for(mounts: &Mounts, mount: &MountInfo, list: &OsString) -> Result<Vec<BranchOptions>, Failure> {
    let mut branches = read(list)?;
    for branch in &mut branches {
        branch.path = check_source(&branch.path)?;
        check_apart(mounts, &branch.path, &mount.mount_point)?;
    }
    check_text(branches.iter().map(|branch| &*branch.path))?;
    Ok(branches)
}

/// Paths from the root on, without looking at what exists: a disk that hangs can be taken out.
fn absolute(folders: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let absolute = |folder: &PathBuf| {
        std::path::absolute(folder).map_err(|error| Failure::new(format!("{}: {error}", shown(folder))))
    };
    let folders = folders.iter().map(absolute).collect::<Result<Vec<_>, _>>()?;
    check_text(folders.iter().map(|folder| &**folder))?;
    Ok(folders)
}

/// What is asked of a server is JSON.
fn check_text<'p>(mut paths: impl Iterator<Item = &'p Path>) -> Result<(), Failure> {
    let odd = paths.find(|path| path.to_str().is_none());
    odd.map_or(Ok(()), |path| Err(Failure::new(format!("{} is not UTF-8", shown(path)))))
}
