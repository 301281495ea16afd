//! `shunt why`.

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use shuntfs::Reason;
use shuntfs_verified::CheckedBy;

use crate::cli::WhyArgs;
use crate::control::{AskError, Asker, Client, Known, Verdict, What, Why};
use crate::explain::{self, Located, NODES_ARE_TOLD, NOT_CONSIDERED, Placement, locate};
use crate::failure::Failure;
use crate::json;
use crate::mounts::shown;
use crate::rules::caller;
use crate::run::output_failure;
use crate::status;

/// What somebody does with a file, and with a folder.
const OF_FILES: [What; 7] =
    [What::Read, What::Write, What::Append, What::Truncate, What::Exec, What::Attributes, What::Remove];
const OF_FOLDERS: [What; 3] = [What::List, What::Attributes, What::Remove];

#[derive(Serialize)]
struct Answer<'a> {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_hex: Option<String>,
    mountpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mountpoint_hex: Option<String>,
    #[serde(flatten)]
    why: Option<&'a Why>,
    /// Of a folder, which has no flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'a Verdict>,
    /// Where a new one of its name would be made, of several branches.
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<&'a Placement>,
    not_considered: &'static str,
}

/// Says how the bytes of a file flow, and why; and what happens to what somebody does with it.
///
/// # Errors
/// Where there is no such file, it is not on a mount of shunt, or the server does not answer.
pub(crate) fn run(args: &WhyArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let at = locate(&args.file, true)?;
    let stat = at.stat.unwrap_or_default();
    let asker = caller(&args.who)?;
    let mut client = status::client_of(&at.mount)?;
    let (why, verdict) = if stat.is_file() {
        let mut why = flow(&mut client, &at, &asker)?;
        if let Some(read_and_write) = &why.verdict {
            let (paths, paths_hex) = (read_and_write.paths.clone(), read_and_write.paths_hex.clone());
            why.verdict = verdict(&mut client, &OF_FILES, &at, &asker)?.map(|verdict| Verdict {
                paths,
                paths_hex,
                ..verdict
            });
        }
        (Some(why), None)
    } else if stat.is_dir() {
        (None, verdict(&mut client, &OF_FOLDERS, &at, &asker)?)
    } else {
        let text = format!("{} is neither a regular file nor a folder", shown(&at.path));
        return Err(Failure::new(text).hint("what is asked of it flows past every file system"));
    };
    let new = explain::new_at(&at, &asker);
    if args.json {
        let answer = Answer {
            file: json::text(&at.path),
            file_hex: json::hex(&at.path),
            mountpoint: json::text(&at.mount.mount_point),
            mountpoint_hex: json::hex(&at.mount.mount_point),
            why: why.as_ref(),
            verdict: verdict.as_ref(),
            new: new.as_ref(),
            not_considered: NOT_CONSIDERED,
        };
        return json::print(&answer, out);
    }
    let say = |out: &mut dyn Write| {
        match (&why, &verdict) {
            (Some(why), _) => print(&at.path, why, out)?,
            (None, verdict) => {
                writeln!(out, "{} is a folder", shown(&at.path))?;
                verdict.as_ref().map_or(Ok(()), |verdict| explain::print(verdict, out))?;
            }
        }
        new.as_ref()
            .map_or(Ok(()), |new| writeln!(out, "  a new one of this name would be made {}", new.in_a_line()))
    };
    say(out).map_err(|error| output_failure(&error))
}

fn flow(client: &mut Client, at: &Located, asker: &Asker) -> Result<Why, Failure> {
    let node = at.node.ok_or_else(|| {
        Failure::new(format!("nobody tells the node of {}", shown(&at.path))).hint(NODES_ARE_TOLD)
    })?;
    client.why(node, Some(asker.clone())).map_err(|error| status::unanswered(&at.mount, &error))
}

fn verdict(
    client: &mut Client,
    whats: &[What],
    at: &Located,
    asker: &Asker,
) -> Result<Option<Verdict>, Failure> {
    explain::of_all(client, whats, at, None, asker).map_err(|error| match error {
        AskError::Refused(why) => {
            Failure::new(format!("{} is no file, so no bytes of it flow, and {why}", shown(&at.path)))
                .hint("ask about a file")
        }
        error => status::unanswered(&at.mount, &error),
    })
}

fn print(path: &Path, why: &Why, out: &mut dyn Write) -> std::io::Result<()> {
    if let (Known::Expected, Some(verdict)) = (why.known, &why.verdict) {
        // What an open would flow by depends on who opens it, which the rules tell below.
        writeln!(out, "{} is not open", shown(path))?;
        return explain::print(verdict, out);
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
    why.verdict.as_ref().map_or(Ok(()), |verdict| explain::print(verdict, out))
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
