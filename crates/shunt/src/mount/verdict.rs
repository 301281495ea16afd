//! What the rules of a mount make of a file for somebody, in words.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use shuntfs::{Errno, Flow, NodeId};
use shuntfs_pool::{Attempt, Caller, DEPENDS_ON_PROGRAM, Observer, Place, RuleControl, RuleReport, Said};
use shuntfs_rules::{Access, Decision, OpenWord, Use, VerifyWord};

use super::session::Mounted;
use crate::control::{Asker, Question, Spot, UseVerdict, Verdict, What};
use crate::json;
use crate::meaning;

/// The mode that most programs make files with.
const NEW_MODE: u32 = 0o644;

/// The verdict of reading and of writing a node; `None` where there are no rules, or the node is not known.
pub(super) fn of_node(mounted: &Mounted, node: u64, asker: &Asker) -> Option<Verdict> {
    let rules = mounted.rules()?;
    let (node, caller) = (NodeId::new(node)?, caller_of(asker));
    let ask = |how| rules.control().of_node(node, &caller, how).ok();
    let read = ask(Use::of(OpenWord::Read))?;
    let write = ask(Use::of(OpenWord::Write))?;
    let paths: Vec<&OsStr> = read.paths.iter().map(|path| OsStr::from_bytes(path)).collect();
    let (paths, paths_hex) = (paths.iter().map(json::text).collect(), json::hex_of_all(&paths));
    let is_sealed = mounted.seal_of(node.get()).is_some();
    let asked = [(What::Read, read), (What::Write, write)];
    let uses = asked.iter().map(|(what, report)| verdict(mounted, *what, report, is_sealed)).collect();
    Some(Verdict { uid: asker.uid, file: rules.file(), paths, paths_hex, uses })
}

/// The verdict of one thing that somebody might do.
///
/// # Errors
/// Where there are no rules, or nothing is known of the place.
pub(super) fn would(mounted: &Mounted, question: &Question, asker: &Asker) -> Result<Verdict, String> {
    let rules = mounted.rules().ok_or("the mount has no rules")?;
    let caller = caller_of(asker);
    let said = match one(mounted, rules.control(), question, &caller)? {
        said if said.answer == "ENOENT" => said,
        said => unseen(rules.control(), question, &caller).unwrap_or(said),
    };
    let paths_hex = json::hex_of_all(&[&question.path]);
    let paths = vec![json::text(&question.path)];
    Ok(Verdict { uid: asker.uid, file: rules.file(), paths, paths_hex, uses: vec![said] })
}

fn one(
    mounted: &Mounted,
    control: &RuleControl,
    question: &Question,
    caller: &Caller,
) -> Result<UseVerdict, String> {
    let Some(how) = use_of(question.what) else { return by_guard(control, question, caller) };
    let gone = || "it is not known to the kernel any more; try again".to_owned();
    if question.what == What::Create {
        // What the rules say tells where it goes and how it flows; whether it may come, the guard says.
        let report = control.of_new(&question.path, NEW_MODE, caller, how);
        let said = verdict(mounted, question.what, &report, false);
        let judged = by_guard(control, question, caller)?;
        return Ok(if said.answer == "allowed" && judged.answer != said.answer { judged } else { said });
    }
    let node = question.node.and_then(NodeId::new).ok_or_else(gone)?;
    let report = control.of_node(node, caller, how).map_err(|_| gone())?;
    Ok(verdict(mounted, question.what, &report, mounted.seal_of(node.get()).is_some()))
}

/// How a file is used by it; `None` where it is not opened.
fn use_of(what: What) -> Option<Use> {
    let (read, write) = (Use::of(OpenWord::Read), Use::of(OpenWord::Write));
    Some(match what {
        What::Read => read,
        What::Write => write,
        What::Append => write.and(Use::of(OpenWord::Append)),
        What::Truncate => write.and(Use::of(OpenWord::Truncate)),
        What::Exec => read.and(Use::of(OpenWord::Exec)),
        What::Create => Use::of(OpenWord::Create).and(write),
        _ => return None,
    })
}

/// What happens to it where a folder on the way is not seen.
fn unseen(control: &RuleControl, question: &Question, caller: &Caller) -> Option<UseVerdict> {
    let folders = [Some(&question.at), question.to.as_ref()].into_iter().flatten();
    let mut unseen =
        folders.filter_map(|spot| NodeId::new(spot.folder)).flat_map(|id| control.unseen(id, caller));
    let first = unseen.next()?;
    let folder = String::from_utf8_lossy(&first.path).into_owned();
    let mut said = said_of(question.what, std::slice::from_ref(&first));
    if said.answer == "allowed" {
        said.answer = "ENOENT".to_owned();
        said.reasons.push(format!("the folder {folder} on the way is hidden"));
    }
    Some(said)
}

/// What the guard says, which judges what is done by what it does.
fn by_guard(control: &RuleControl, question: &Question, caller: &Caller) -> Result<UseVerdict, String> {
    let place =
        |spot: &Spot| Some((NodeId::new(spot.folder)?, spot.name.clone().into_os_string().into_vec()));
    let unknown = || "the folder is not known to the kernel any more; try again".to_owned();
    let (folder, name) = place(&question.at).ok_or_else(unknown)?;
    let to = question.to.as_ref().and_then(place);
    let at = Place { folder, name: &name };
    let to = to.as_ref().map(|(folder, name)| Place { folder: *folder, name });
    let attempt = match (question.what, to) {
        (What::List, _) => Attempt::List,
        (What::Create, _) => Attempt::Make(false),
        (What::Mkdir, _) => Attempt::Make(true),
        (What::Remove, _) => Attempt::Remove,
        (What::Attributes, _) => Attempt::SetAttributes,
        (What::Rename, Some(to)) => Attempt::Rename(to),
        (What::Link, Some(to)) => Attempt::Link(to),
        _ => return Err(format!("what `{}` is about is not said", question.what.word())),
    };
    let judged = control.would(at, attempt, caller).map_err(|_| unknown())?;
    let mut said = said_of(question.what, &judged.said);
    if let (Some(error), "allowed") = (judged.error, said.answer.as_str()) {
        said.reasons.push(why(error, &judged.said).to_owned());
        said.answer = error.symbol().map_or_else(|| format!("{error:?}"), |symbol| format!("E{symbol}"));
    }
    Ok(said)
}

/// The rules that had a say; refused where one cannot be evaluated.
fn said_of(what: What, all: &[Said]) -> UseVerdict {
    let mut rules: Vec<String> = Vec::new();
    for (name, line) in all.iter().flat_map(|said| &said.rules) {
        let rule = rule_name(name, *line);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    let mut verdict = UseVerdict {
        what: what.word().to_owned(),
        answer: "allowed".to_owned(),
        flow: None,
        place: None,
        rules,
        reasons: Vec::new(),
    };
    if let Some(failed) = all.iter().find_map(|said| said.decision.as_ref().err()) {
        failed_by(failed, &mut verdict);
    } else {
        verdict.reasons.push(decided_by(&verdict.rules));
    }
    verdict
}

fn decided_by(rules: &[String]) -> String {
    match rules {
        [] => "no rule matches".to_owned(),
        rules => format!("decided by {}", rules.join(", ")),
    }
}

/// A rule cannot be evaluated: a refusal, but where it is only not known who would ask.
fn failed_by(why: &str, said: &mut UseVerdict) {
    let depends = why.contains(DEPENDS_ON_PROGRAM);
    said.answer = if depends { "depends" } else { "EACCES" }.to_owned();
    said.reasons.push(why.to_owned());
    if depends {
        said.reasons.push("add --exe PROGRAM".to_owned());
    }
}

/// Why the guard refuses.
fn why(error: Errno, said: &[Said]) -> &'static str {
    let mut decisions = said.iter().filter_map(|said| said.decision.as_ref().ok());
    let is_denied = decisions.clone().any(|decision| matches!(decision.access, Access::Deny(_)));
    let is_hidden = decisions.any(|decision| decision.access == Access::Hide);
    match error {
        Errno::NOENT if is_hidden => "a rule hides the name",
        Errno::NOENT => "there is no such name",
        Errno::ROFS => "a rule or the mount makes it read-only",
        Errno::PERM => "it is append-only by a rule, sealed, or append-only or immutable by its flags",
        Errno::ACCES if is_hidden => "a rule hides the name, and what is hidden cannot be made",
        _ if is_denied => "a rule denies it",
        Errno::ACCES => "by other names or in another place rules would take less of it from somebody",
        Errno::BUSY => "it is the top of the mount",
        _ => "the mount refuses it",
    }
}

pub(super) fn caller_of(asker: &Asker) -> Caller {
    let exe = asker.exe.as_ref().map(|exe| exe.as_bytes().to_vec());
    Caller { uid: asker.uid, gid: asker.gid, groups: asker.groups.clone(), exe }
}

/// A rule without a name is called by its line.
fn rule_name(name: &str, line: usize) -> String {
    let by_line = format!("line {line}");
    if name == by_line { by_line } else { format!("{name} ({by_line})") }
}

fn verdict(mounted: &Mounted, what: What, report: &RuleReport, is_sealed: bool) -> UseVerdict {
    let mut said = UseVerdict {
        what: what.word().to_owned(),
        answer: "allowed".to_owned(),
        flow: None,
        place: None,
        rules: report.rules.iter().map(|(name, line)| rule_name(name, *line)).collect(),
        reasons: Vec::new(),
    };
    let decision = match &report.decision {
        Ok(decision) => decision,
        Err(why) => {
            failed_by(why, &mut said);
            return said;
        }
    };
    said.reasons.push(decided_by(&said.rules));
    let (answer, reason) = answer(decision, what, is_sealed);
    if decision.verify == Some(VerifyWord::Off) && is_sealed {
        said.reasons.push("a rule says that its seal is not checked, where all its names say so".to_owned());
    }
    said.reasons.extend(reason);
    match answer {
        Some(error) => said.answer = error.to_owned(),
        None => flow(mounted, decision, what, &mut said),
    }
    if what == What::Create && said.answer == "allowed" {
        said.place.clone_from(&decision.place);
        let place = decision.place.as_ref().map(|place| format!("placed by {place}, as a rule says"));
        let usual = match mounted.has_branches() {
            true => "placed by the policy of the mount",
            false => "placed on the one branch that there is",
        };
        said.reasons.push(place.unwrap_or_else(|| usual.to_owned()));
    }
    said
}

/// The error that somebody gets, `None` where there is none, and why.
fn answer(decision: &Decision, what: What, is_sealed: bool) -> (Option<&'static str>, Option<String>) {
    let (writes, is_new) = (writes(what), what == What::Create);
    let partial = !decision.redact.is_empty();
    let because = |error, text: &str| (Some(error), Some(text.to_owned()));
    match decision.access {
        Access::Deny(number) => because(number.name(), "a rule denies it"),
        Access::Hide if is_new => {
            because("EACCES", "a rule hides the name, and what is hidden cannot be made")
        }
        Access::Hide => because("ENOENT", "a rule hides the name"),
        Access::Allow if writes && decision.read_only => because("EROFS", "a rule makes it read-only"),
        Access::Allow if decision.needs_seal() && !is_sealed => {
            because("EACCES", "a rule requires a seal, and there is none")
        }
        Access::Allow if writes && is_sealed => because("EPERM", "what is sealed is never written"),
        Access::Allow if writes && partial => {
            because("EACCES", "a rule hides some of it, and a partial view is never written")
        }
        Access::Allow if what == What::Truncate && decision.append_only => {
            because("EPERM", "a rule makes it append-only")
        }
        Access::Allow if writes && decision.append_only => {
            (None, Some("a rule makes it append-only: opens need O_WRONLY|O_APPEND, others get EPERM".into()))
        }
        Access::Allow if partial => (None, Some(format!("a rule hides some of it: {}", hidden(decision)))),
        Access::Allow => (None, None),
    }
}

fn hidden(decision: &Decision) -> String {
    use shuntfs_rules::Redact;
    let word = |redact: &Redact| match redact {
        Redact::Whole => "all of it".to_owned(),
        Redact::ExifGps => "the place in a photo's tags".to_owned(),
        Redact::Ranges(ranges) => format!("{} ranges", ranges.len()),
        Redact::Regex(regex) => format!("what matches {} in the first {} bytes", regex.pattern, regex.within),
    };
    decision.redact.iter().map(word).collect::<Vec<_>>().join(", and ")
}

/// Whether what is hidden does not depend on what the file holds, and is not all.
fn is_fixed(decision: &Decision) -> bool {
    decision.redact.iter().all(|redact| matches!(redact, shuntfs_rules::Redact::Ranges(_)))
}

fn writes(what: What) -> bool {
    matches!(what, What::Write | What::Append | What::Truncate | What::Create)
}

fn flow(mounted: &Mounted, decision: &Decision, what: What, said: &mut UseVerdict) {
    if what == What::Truncate {
        // No bytes flow.
        return;
    }
    let writes = writes(what);
    if !decision.redact.is_empty() {
        let moves = mounted.pool.as_ref().is_some_and(Observer::moves_by_range);
        let (flow, why) = if moves && is_fixed(decision) {
            (
                Flow::Ranges,
                "a partial view is apart from the whole one: what it hides is served, and the rest moves",
            )
        } else {
            (Flow::Served, "a partial view is served, apart from the whole one")
        };
        said.flow = Some(flow.name().to_owned());
        said.reasons.push(why.to_owned());
        return;
    }
    if writes && decision.append_only {
        said.flow = Some("served".to_owned());
        said.reasons.push("appends are served, because each one is checked".to_owned());
        return;
    }
    let wish = if writes { decision.flow_write } else { decision.flow_read };
    let (flow, reason) = mounted.expected_for(wish);
    said.flow = Some(flow.name().to_owned());
    said.reasons.push(match wish {
        Some(wish) => format!("a rule wishes for {wish}: {}", meaning::of_reason(reason)),
        None => format!("no rule says how it flows, so as the mount does: {}", meaning::of_reason(reason)),
    });
}
