//! `shunt explain`.

use std::io::Write;

use serde::Serialize;

use super::branches;
use super::place::{Located, locate};
use super::verdict::{NOT_CONSIDERED, of_all, print};
use crate::cli::{ExplainArgs, ExplainOneArgs, ExplainTwoArgs, ExplainWhat};
use crate::control::{Asker, Verdict, What};
use crate::failure::Failure;
use crate::json;
use crate::mounts::shown;
use crate::rules::caller;
use crate::run::output_failure;
use crate::status;

#[derive(Serialize)]
struct Answer<'a> {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    mountpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mountpoint_hex: Option<String>,
    #[serde(flatten)]
    verdict: &'a Verdict,
    not_considered: &'static str,
}

/// Says what would become of it, and why: by the rules of the mount, or of several branches by its policies.
///
/// # Errors
/// Where it is not on a mount of shunt that has rules or branches, or its server does not answer.
pub(crate) fn run(args: &ExplainArgs, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.what {
        ExplainWhat::Read(args) => one(What::Read, args, out),
        ExplainWhat::Write(args) => one(What::Write, args, out),
        ExplainWhat::Append(args) => one(What::Append, args, out),
        ExplainWhat::Truncate(args) => one(What::Truncate, args, out),
        ExplainWhat::Exec(args) => one(What::Exec, args, out),
        ExplainWhat::List(args) => one(What::List, args, out),
        ExplainWhat::Create(args) => one(What::Create, args, out),
        ExplainWhat::Mkdir(args) => one(What::Mkdir, args, out),
        ExplainWhat::Remove(args) => one(What::Remove, args, out),
        ExplainWhat::Attributes(args) => one(What::Attributes, args, out),
        ExplainWhat::Rename(args) => two(What::Rename, args, out),
        ExplainWhat::Link(args) => two(What::Link, args, out),
        ExplainWhat::Place(args) => branches::run(args, out),
    }
}

fn one(what: What, args: &ExplainOneArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let follow = !matches!(what, What::Create | What::Mkdir | What::Remove);
    let at = locate(&args.path, follow)?;
    if what == What::Remove && at.stat.is_none() {
        return Err(
            Failure::new(format!("there is no {}", shown(&at.path))).hint("or a rule hides it from you")
        );
    }
    if what == What::List && at.stat.is_some_and(|stat| !stat.is_dir()) {
        return Err(Failure::new(format!("{} is no folder, so it is not listed", shown(&at.path))));
    }
    explain(what, &at, None, &Asked { who: &args.who, json: args.json }, out)
}

fn two(what: What, args: &ExplainTwoArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let (at, to) = (locate(&args.path, false)?, locate(&args.to, false)?);
    if at.stat.is_none() {
        return Err(
            Failure::new(format!("there is no {}", shown(&at.path))).hint("or a rule hides it from you")
        );
    }
    if at.mount.id != to.mount.id {
        return Err(Failure::new(
            "both names must be on one mount: between mounts nothing is moved or linked",
        ));
    }
    explain(what, &at, Some(&to), &Asked { who: &args.who, json: args.json }, out)
}

struct Asked<'a> {
    who: &'a crate::cli::WhoArgs,
    json: bool,
}

fn explain(
    what: What,
    at: &Located,
    to: Option<&Located>,
    asked: &Asked<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let asker = caller(asked.who)?;
    let mut client = status::client_of(&at.mount)?;
    let place = client.place(what, at.spot.clone(), asker.clone());
    let place = place.map_err(|error| status::unanswered(&at.mount, &error))?;
    if let Some(place) = place {
        let failed = |error| Failure::new(format!("its server says something unknown: {error}"));
        let mut answer: branches::Answer = serde_json::from_value(place).map_err(failed)?;
        answer.is_of(&at.path);
        if answer.under_rules {
            let mut client = status::client_of(&at.mount)?;
            answer.verdict = of_all(&mut client, &[what], at, to, &asker)
                .map_err(|error| status::unanswered(&at.mount, &error))?;
        }
        return answer.print(asked.json, out);
    }
    let mut client = status::client_of(&at.mount)?;
    let verdict = of_all(&mut client, &[what], at, to, &asker)
        .map_err(|error| status::unanswered(&at.mount, &error))?
        .ok_or_else(|| Failure::new("the server says nothing"))?;
    if asked.json {
        let answer = Answer {
            path: json::text(&at.path),
            path_hex: json::hex(&at.path),
            mountpoint: json::text(&at.mount.mount_point),
            mountpoint_hex: json::hex(&at.mount.mount_point),
            verdict: &verdict,
            not_considered: NOT_CONSIDERED,
        };
        return json::print(&answer, out);
    }
    let say = |out: &mut dyn Write| {
        let makes = matches!(what, What::Create | What::Mkdir);
        let there = if makes && at.stat.is_some() { " is there already; if it were not" } else { "" };
        let to = to.map(|to| format!(" to {}", shown(&to.path))).unwrap_or_default();
        writeln!(out, "{}{to}{there}", shown(&at.path))?;
        print(&verdict, out)
    };
    say(out).map_err(|error| output_failure(&error))
}

/// Where something new of this name would be made; `None` of one folder, and where the server does not say.
pub(crate) fn new_at(at: &Located, asker: &Asker) -> Option<branches::Answer> {
    let what = if at.stat.is_some_and(|stat| stat.is_dir()) { What::Mkdir } else { What::Create };
    let mut client = status::client_of(&at.mount).ok()?;
    let place = client.place(what, at.spot.clone(), asker.clone()).ok()??;
    let mut answer: branches::Answer = serde_json::from_value(place).ok()?;
    answer.is_of(&at.path);
    Some(answer)
}
