//! `shunt why`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use shuntfs::Reason;
use shuntfs_sys::{FileHandle, handle, open, stat};
use shuntfs_verified::CheckedBy;

use crate::cli::WhyArgs;
use crate::control::{Known, Verdict, Why};
use crate::failure::Failure;
use crate::list::print_json;
use crate::mounts::{self, Mounts, shown};
use crate::patience::within;
use crate::rules::caller;
use crate::run::output_failure;
use crate::status;

/// How long the mount may take to look up the file.
const PATIENCE: Duration = Duration::from_secs(10);
/// The kernel's type of a handle that FUSE gives (`FILEID_INO64_GEN`, and the same for a handle that only
/// identifies).
const FUSE_HANDLE: i32 = 0x81;

#[derive(Serialize)]
struct Answer<'a> {
    file: String,
    mountpoint: String,
    #[serde(flatten)]
    why: &'a Why,
}

struct Found {
    path: PathBuf,
    regular: bool,
    handle: Option<FileHandle>,
}

/// Says how the bytes of a file flow, and why.
///
/// # Errors
/// Where there is no such file, it is not on a mount of shunt, or the server does not answer.
pub(crate) fn run(args: &WhyArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let wanted = args.file.clone();
    let found = within(PATIENCE, move || find(&wanted))
        .ok_or_else(|| {
            Failure::new(format!("{} cannot be looked up: its mount does not answer", shown(&args.file)))
                .hint("all mounts: shunt list")
        })?
        .map_err(|error| Failure::new(format!("cannot look up {}: {error}", shown(&args.file))))?;
    let list = Mounts::read()?;
    let mount = list.covering(&found.path).filter(|mount| mounts::is_fuse(mount)).ok_or_else(|| {
        Failure::new(format!("{} is not on a mount of shunt", shown(&found.path)))
            .hint("all mounts: shunt list")
    })?;
    let mut client = status::client_of(mount)?;
    if !found.regular {
        let text = format!("{} is not a regular file, so no bytes of it flow", shown(&found.path));
        return Err(Failure::new(text).hint("ask about a file"));
    }
    let node = found.handle.as_ref().and_then(node_of).ok_or_else(|| {
        Failure::new(format!("the kernel does not tell the node of {}", shown(&found.path)))
            .hint("Linux 6.6 or newer does")
    })?;
    let asker = caller(&args.who)?;
    let why = client.why(node, Some(asker)).map_err(|error| status::unanswered(mount, &error))?;
    let answer = Answer {
        file: found.path.to_string_lossy().into_owned(),
        mountpoint: mount.mount_point.to_string_lossy().into_owned(),
        why: &why,
    };
    if args.json {
        print_json(&answer, out)
    } else {
        print(&found.path, &why, out).map_err(|error| output_failure(&error))
    }
}

fn find(file: &Path) -> std::io::Result<Found> {
    let path = file.canonicalize()?;
    let fd = open::open_target(&path)?;
    let regular = stat::stat_of(&fd)?.is_file();
    let handle = handle::identifier_of(&fd).ok().map(|(handle, _)| handle);
    Ok(Found { path, regular, handle })
}

/// The node's number inside a handle: high word, low word, generation (`fs/fuse/inode.c`, `fuse_encode_fh`).
fn node_of(handle: &FileHandle) -> Option<u64> {
    let word = |index: usize| {
        let bytes = handle.bytes().get(index * 4..)?;
        bytes.first_chunk().map(|word| u32::from_ne_bytes(*word))
    };
    (handle.kind() == FUSE_HANDLE).then_some(())?;
    Some(u64::from(word(0)?) << 32 | u64::from(word(1)?))
}

fn print(path: &Path, why: &Why, out: &mut dyn Write) -> std::io::Result<()> {
    if let (Known::Expected, Some(verdict)) = (why.known, &why.verdict) {
        // What an open would flow by depends on who opens it, which the rules tell below.
        writeln!(out, "{} is not open", shown(path))?;
        return print_verdict(verdict, out);
    }
    let verb = match why.known {
        Known::Settled => "flows by",
        Known::Expected => "is not open; an open would flow by",
    };
    writeln!(out, "{} {verb} {}", shown(path), why.flow)?;
    writeln!(out, "  {}", why.meaning)?;
    let name = if why.reason == Reason::Wished.name() { String::new() } else { format!(" ({})", why.reason) };
    writeln!(out, "  reason: {}{name}", why.reason_meaning)?;
    print_seal(why, out)?;
    why.verdict.as_ref().map_or(Ok(()), |verdict| print_verdict(verdict, out))
}

/// The file's seal, and who checks it.
fn print_seal(why: &Why, out: &mut dyn Write) -> std::io::Result<()> {
    let Some(seal) = &why.seal else { return Ok(()) };
    writeln!(out, "  sealed: {}", seal.digest)?;
    let by = match seal.checked_by {
        CheckedBy::LowerFileSystem => "by the lower file system, whose fs-verity has this digest",
        CheckedBy::Server => "by the server, block by block, as it is read",
        _ => "by nobody: it cannot be opened below",
    };
    writeln!(out, "  checked {by}")?;
    if seal.suspect {
        writeln!(out, "  something was wrong with it when it was read; see the log")?;
    }
    Ok(())
}

/// What the rules say, use by use.
pub(crate) fn print_verdict(verdict: &Verdict, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "  rules of {} for user {}:", shown(&verdict.file), verdict.uid)?;
    if verdict.paths.len() > 1 {
        let paths: Vec<String> = verdict.paths.iter().map(shown).collect();
        writeln!(out, "    decided by all its names: {}", paths.join(", "))?;
    }
    for one in &verdict.uses {
        let flow = one.flow.as_ref().map(|flow| format!(", flows by {flow}")).unwrap_or_default();
        writeln!(out, "    {}: {}{flow}", one.what, one.answer)?;
        for reason in &one.reasons {
            writeln!(out, "      {}", shown(reason))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_node_is_read_from_a_handle_of_fuse_only() {
        let bytes: Vec<u8> = [1_u32, 2, 9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let node = |kind| FileHandle::new(kind, &bytes).as_ref().and_then(node_of);
        assert_eq!(node(0x81), Some(1 << 32 | 2));
        assert_eq!(node(1), None);
        assert_eq!(FileHandle::new(0x81, &[1, 2]).as_ref().and_then(node_of), None);
    }
}
