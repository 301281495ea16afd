//! What the rules of a mount make of a file for somebody, in words.

use std::path::Path;

use shuntfs::NodeId;
use shuntfs_pool::{Caller, RuleReport};
use shuntfs_rules::{Access, Decision, OpenWord, Use, VerifyWord};

use super::session::Mounted;
use crate::control::{Asker, UseVerdict, Verdict};
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
    let paths = read.paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    let is_sealed = mounted.seal_of(node.get()).is_some();
    let asked = [(OpenWord::Read, read), (OpenWord::Write, write)];
    let uses = asked.iter().map(|(what, report)| verdict(mounted, *what, report, is_sealed)).collect();
    Some(Verdict { uid: asker.uid, file: rules.file(), paths, uses })
}

/// The verdict of making a file; `None` where there are no rules.
pub(super) fn of_new(mounted: &Mounted, path: &Path, asker: &Asker) -> Option<Verdict> {
    let rules = mounted.rules()?;
    let how = Use::of(OpenWord::Create).and(Use::of(OpenWord::Write));
    let report = rules.control().of_new(path, NEW_MODE, &caller_of(asker), how);
    let uses = vec![verdict(mounted, OpenWord::Create, &report, false)];
    let paths = vec![path.to_string_lossy().into_owned()];
    Some(Verdict { uid: asker.uid, file: rules.file(), paths, uses })
}

fn caller_of(asker: &Asker) -> Caller {
    let exe = asker.exe.as_ref().map(|exe| exe.as_bytes().to_vec());
    Caller { uid: asker.uid, gid: asker.gid, groups: asker.groups.clone(), exe }
}

/// A rule without a name is called by its line.
fn rule_name(name: &str, line: usize) -> String {
    let by_line = format!("line {line}");
    if name == by_line { by_line } else { format!("{name} ({by_line})") }
}

fn verdict(mounted: &Mounted, what: OpenWord, report: &RuleReport, is_sealed: bool) -> UseVerdict {
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
            said.answer = "EACCES".to_owned();
            said.reasons.push(why.clone());
            return said;
        }
    };
    said.reasons.push(match said.rules.as_slice() {
        [] => "no rule matches".to_owned(),
        rules => format!("decided by {}", rules.join(", ")),
    });
    let (answer, reason) = answer(decision, what, is_sealed);
    if decision.verify == Some(VerifyWord::Off) && is_sealed {
        said.reasons.push("a rule says that its seal is not checked, where all its names say so".to_owned());
    }
    said.reasons.extend(reason);
    match answer {
        Some(error) => said.answer = error.to_owned(),
        None => flow(mounted, decision, what, &mut said),
    }
    if what == OpenWord::Create && said.answer == "allowed" {
        said.place.clone_from(&decision.place);
        let place = decision.place.as_ref().map(|place| format!("placed by {place}, as a rule says"));
        said.reasons.push(place.unwrap_or_else(|| "placed on the one branch that there is".to_owned()));
    }
    said
}

/// The error that somebody gets, `None` where there is none, and why.
fn answer(decision: &Decision, what: OpenWord, is_sealed: bool) -> (Option<&'static str>, Option<String>) {
    let (writes, is_new) = (what != OpenWord::Read, what == OpenWord::Create);
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

fn flow(mounted: &Mounted, decision: &Decision, what: OpenWord, said: &mut UseVerdict) {
    let writes = what != OpenWord::Read;
    if !decision.redact.is_empty() {
        said.flow = Some("served".to_owned());
        said.reasons.push("a partial view is served, apart from the whole one".to_owned());
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
