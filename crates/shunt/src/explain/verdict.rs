//! What happens to what somebody does: what the kernel checks, and what the server says of its rules.

use std::io::Write;

use super::permissions;
use super::place::Located;
use crate::control::{AskError, Asker, Client, Question, Verdict, What};
use crate::mounts::shown;

/// What else can refuse something, and is not looked at.
pub(crate) const NOT_CONSIDERED: &str =
    "capabilities of the caller, security modules, flags of the mount and of the file, quotas";

/// The verdict of each of these, one after the other; `None` for none of them.
///
/// # Errors
/// Where the server does not answer, or has no rules.
pub(crate) fn of_all(
    client: &mut Client,
    whats: &[What],
    at: &Located,
    to: Option<&Located>,
    asker: &Asker,
) -> Result<Option<Verdict>, AskError> {
    let mut all: Option<Verdict> = None;
    for what in whats {
        let question = Question {
            what: *what,
            path: at.below.clone(),
            at: at.spot.clone(),
            node: at.node,
            to: to.map(|to| to.spot.clone()),
        };
        let mut verdict = client.would(question, asker.clone())?;
        let refusal = permissions::refusal(*what, at, to, asker);
        for said in &mut verdict.uses {
            // A name that a rule hides does not exist before its permissions are examined.
            if let Some(refusal) = refusal.as_ref().filter(|_| said.answer != "ENOENT") {
                refusal.error.clone_into(&mut said.answer);
                said.flow = None;
                said.reasons.insert(0, format!("permissions: {}", refusal.reason));
            }
        }
        match &mut all {
            Some(all) => all.uses.append(&mut verdict.uses),
            None => all = Some(verdict),
        }
    }
    Ok(all)
}

/// Prints a verdict, use by use.
pub(crate) fn print(verdict: &Verdict, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "  rules of {} for user {}:", shown(&verdict.file), verdict.uid)?;
    if verdict.paths.len() > 1 {
        let paths: Vec<String> = verdict.paths.iter().map(shown).collect();
        writeln!(out, "    decided by all its names: {}", paths.join(", "))?;
    }
    for one in &verdict.uses {
        let flow = one.flow.as_ref().map(|flow| format!(", flows by {flow}")).unwrap_or_default();
        let answer = if one.answer == "depends" { "depends on the program" } else { &one.answer };
        writeln!(out, "    {}: {answer}{flow}", one.what)?;
        for reason in &one.reasons {
            writeln!(out, "      {}", shown(reason))?;
        }
    }
    writeln!(out, "    not considered: {NOT_CONSIDERED}")
}
