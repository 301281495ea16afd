//! `shunt explain`: what would become of something that is not there yet.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::cli::{ExplainArgs, ExplainCreateArgs, ExplainWhat};
use crate::control::Verdict;
use crate::failure::Failure;
use crate::list::print_json;
use crate::mounts::{self, Mounts, shown};
use crate::patience::within;
use crate::rules::caller;
use crate::run::output_failure;
use crate::{status, why};

/// How long the mount may take to look up the folder.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Answer<'a> {
    path: String,
    mountpoint: String,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

/// Says what would become of it, and why.
///
/// # Errors
/// Where the folder is not on a mount of shunt that has rules, or its server does not answer.
pub(crate) fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.what {
        ExplainWhat::Create(args) => create(args, out),
    }
}

fn create(args: &ExplainCreateArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let wanted = args.path.clone();
    let path = within(PATIENCE, move || find(&wanted))
        .ok_or_else(|| {
            Failure::new(format!("{} cannot be looked up: its mount does not answer", shown(&args.path)))
                .hint("all mounts: shunt list")
        })?
        .map_err(|error| {
            Failure::new(format!("cannot look up the folder of {}: {error}", shown(&args.path)))
        })?;
    let list = Mounts::read()?;
    let mount = list.covering(&path).filter(|mount| mounts::is_fuse(mount)).ok_or_else(|| {
        Failure::new(format!("{} is not on a mount of shunt", shown(&path))).hint("all mounts: shunt list")
    })?;
    let Ok(below) = path.strip_prefix(&mount.mount_point).map(Path::to_path_buf) else {
        return Err(Failure::new(format!("{} is not below its mount point", shown(&path))));
    };
    let asker = caller(&args.who)?;
    let verdict =
        status::client_of(mount)?.create(below, asker).map_err(|error| status::unanswered(mount, &error))?;
    if args.json {
        let (path, mountpoint) = (path.to_string_lossy().into_owned(), mount.mount_point.to_string_lossy());
        return print_json(&Answer { path, mountpoint: mountpoint.into_owned(), verdict: &verdict }, out);
    }
    let print = |out: &mut dyn Write| {
        let there = if path.symlink_metadata().is_ok() { " is there already; if it were not" } else { "" };
        writeln!(out, "{}{there}", shown(&path))?;
        why::print_verdict(&verdict, out)
    };
    print(out).map_err(|error| output_failure(&error))
}

/// The path with its folder looked up.
fn find(path: &Path) -> std::io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.canonicalize()?.join(name)),
        _ => Err(std::io::ErrorKind::InvalidInput.into()),
    }
}
