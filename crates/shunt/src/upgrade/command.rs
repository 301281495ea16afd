//! The command.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use shuntfs_sys::mount::MountInfo;

use super::outdated;
use crate::control::{AskError, Client, Status};
use crate::failure::Failure;
use crate::list;
use crate::mounts::{Mounts, shown};
use crate::run::{complain, output_failure};
use crate::status::{client_of, unanswered};
use crate::umount::find;

/// A server may be killed in the moment in which it is asked; its successor is asked then.
const AGAIN: Duration = Duration::from_secs(10);

/// Arguments of `shunt upgrade`.
#[derive(Debug, Args)]
pub struct UpgradeArgs {
    /// The mount points.
    #[arg(value_name = "MNT", required_unless_present = "all", conflicts_with = "all", value_hint = clap::ValueHint::DirPath)]
    pub mountpoints: Vec<PathBuf>,
    /// Upgrades every mount with a keeper that runs another program.
    #[arg(long)]
    pub all: bool,
    /// The program that continues; nobody but root and the user of the mount may be able to change it [default: this program].
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::ExecutablePath)]
    pub binary: Option<PathBuf>,
}

/// Has mounts go on with another program.
///
/// # Errors
/// Where one does not.
pub(crate) fn run(args: &UpgradeArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let binary = binary(args)?;
    let list = Mounts::read()?;
    let mut failures = Vec::new();
    let all = if args.all { kept(&list, &binary) } else { Vec::new() };
    let named = args.mountpoints.iter().map(|path| find(&list, path));
    for mount in all.into_iter().map(Ok).chain(named) {
        match mount.and_then(|mount| upgrade(mount, &binary)) {
            Ok(line) => writeln!(out, "{line}").map_err(|error| output_failure(&error))?,
            Err(failure) => failures.push(failure),
        }
    }
    match failures.len() {
        0 => Ok(()),
        1 => Err(failures.remove(0)),
        count => {
            let lines = failures.iter().map(ToString::to_string);
            Err(Failure::new(format!("{count} mounts were not upgraded")).details(lines))
        }
    }
}

fn binary(args: &UpgradeArgs) -> Result<PathBuf, Failure> {
    let Some(path) = &args.binary else {
        let missing =
            || Failure::new("the file of this program is gone").hint("name another one: --binary PATH");
        return outdated::this_program().ok_or_else(missing);
    };
    std::path::absolute(path)
        .map_err(|error| Failure::new(format!("the program {} cannot be named: {error}", shown(path))))
}

/// The mounts whose keepers run another program. Of others whose program is outdated, it is said what to do.
fn kept<'l>(list: &'l Mounts, binary: &Path) -> Vec<&'l MountInfo> {
    let mut kept = Vec::new();
    for found in list::found(list) {
        let Some(mount) = found.mount_point.as_ref().and_then(|path| list.at(path)) else { continue };
        let status =
            Client::of_connection(found.connection, &found.owners).and_then(|mut client| client.status());
        let Ok(status) = status else { continue };
        let keeper = status.takeover.and_then(|takeover| takeover.keeper);
        if outdated::runs(keeper.unwrap_or(status.pid), binary) {
            continue;
        }
        if keeper.is_some() {
            kept.push(mount);
            continue;
        }
        let place = shown(&mount.mount_point);
        complain(&format!(
            "shunt: note: {place} has no keeper, and keeps its program until it is unmounted and mounted again"
        ));
    }
    kept
}

/// Has one mount go on with the program, and tells of it.
fn upgrade(mount: &MountInfo, binary: &Path) -> Result<String, Failure> {
    let end = Instant::now() + AGAIN;
    loop {
        match client_of(mount)?.upgrade(binary) {
            Ok(()) => break,
            Err(AskError::NoServer) if Instant::now() < end => {}
            Err(AskError::Refused(why)) => {
                return Err(Failure::new(format!("{} was not upgraded: {why}", shown(&mount.mount_point))));
            }
            Err(error) => return Err(unanswered(mount, &error)),
        }
    }
    let status: Status = client_of(mount)?.status().map_err(|error| unanswered(mount, &error))?;
    let place = shown(&mount.mount_point);
    let takeover = status.takeover;
    if let Some(why) = takeover.as_ref().and_then(|takeover| takeover.taken_back.as_deref()) {
        return Err(Failure::new(format!(
            "{place} was upgraded, and the program before serves again: {}",
            shown(why)
        )));
    }
    let keeper = takeover.and_then(|takeover| takeover.keeper).unwrap_or_default();
    let version = status.version;
    Ok(format!("{place}: continues with {} (shunt {version}, keeper process {keeper})", shown(binary)))
}
