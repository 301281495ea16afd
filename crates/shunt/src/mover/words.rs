//! What is said of a run. Names are those of users, so control characters in them are shown and not obeyed.

use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, HumanDuration};
use shuntfs_pool::{MoverFacts, MoverFile, MoverOutcome};

use crate::mounts::shown;

/// One line on a file.
pub(super) fn of_file(file: &MoverFile) -> String {
    let (path, from) = (shown(&file.path), shown(&file.from));
    let to = file.to.as_deref().map(shown).unwrap_or_default();
    let why = file.why.as_deref().map(shown).unwrap_or_default();
    let rule = file.rule.as_deref().map(|rule| format!(", rule \"{}\"", shown(rule))).unwrap_or_default();
    let bytes = HumanBytes(file.bytes);
    match file.outcome {
        MoverOutcome::Moved => format!("{path}: moved from {from} to {to} ({bytes}{rule})"),
        MoverOutcome::WouldMove => format!("{path}: would be moved from {from} to {to} ({bytes}{rule})"),
        MoverOutcome::Left => format!("{path}: left on {from}: {why}"),
        _ => format!("{path}: failed on {from}: {why}"),
    }
}

/// The line at the end.
pub(super) fn of_end(facts: &MoverFacts) -> String {
    let moved = if facts.dry_run { "would move" } else { "moved" };
    let mut text = format!("{moved} {}, {}", files(facts.moved_files), HumanBytes(facts.moved_bytes));
    if facts.left_files > 0 {
        text += &format!("; left {}", files(facts.left_files));
    }
    if facts.failures > 0 {
        text += &format!("; {} failed", HumanCount(facts.failures));
    }
    if facts.cancelled {
        text += "; ended before it was done";
    }
    let took = HumanDuration(Duration::from_secs(facts.took_ms.div_ceil(1000)));
    text + &format!(" ({} looked at in {took})", files(facts.seen))
}

/// How far a run is, or how it ended.
pub(super) fn of_status(facts: &MoverFacts) -> String {
    if !facts.running {
        return format!("the last run {}", of_end(facts));
    }
    let branch = facts.branch.as_deref().map(shown).unwrap_or_default();
    let moved = if facts.dry_run { "would be moved" } else { "moved" };
    let so_far = format!("{} {moved}, {}", files(facts.moved_files), HumanBytes(facts.moved_bytes));
    if facts.searching {
        format!("searching {branch}, {} looked at; {so_far}", files(facts.seen))
    } else {
        let (done, due) = (HumanBytes(facts.done_bytes), HumanBytes(facts.due_bytes));
        format!("moving from {branch}, {done} of {due} done; {so_far}")
    }
}

fn files(count: u64) -> String {
    let plural = if count == 1 { "file" } else { "files" };
    format!("{} {plural}", HumanCount(count))
}

#[cfg(test)]
mod test {
    use super::*;

    fn facts(text: &str) -> MoverFacts {
        let mut all = serde_json::to_value(MoverFacts::default()).unwrap();
        let more: serde_json::Value = serde_json::from_str(text).unwrap();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_file_has_one_line_whatever_it_is_called() {
        let file: MoverFile = serde_json::from_str(
            r#"{"path":"a\u001b[2J\nb","from":"/a","to":"/b","bytes":1048576,"rule":"old","outcome":"moved","why":null}"#,
        )
        .unwrap();
        let line = of_file(&file);
        assert!(!line.contains(['\u{1b}', '\n']), "{line:?}");
        assert!(line.ends_with("moved from /a to /b (1.00 MiB, rule \"old\")"), "{line}");
        let left: MoverFile = serde_json::from_str(
            r#"{"path":"x","from":"/a","to":null,"bytes":0,"rule":null,"outcome":"left","why":"it is open"}"#,
        )
        .unwrap();
        assert_eq!(of_file(&left), "x: left on /a: it is open");
    }

    #[test]
    fn a_run_is_summed_up() {
        let ended = facts(r#"{"moved_files":1,"moved_bytes":2048,"seen":1200,"took_ms":1500}"#);
        assert_eq!(of_end(&ended), "moved 1 file, 2.00 KiB (1,200 files looked at in 2 seconds)");
        let other = facts(r#"{"dry_run":true,"left_files":2,"failures":1,"cancelled":true,"took_ms":1}"#);
        assert_eq!(
            of_end(&other),
            "would move 0 files, 0 B; left 2 files; 1 failed; ended before it was done (0 files looked at in 1 second)"
        );
        let running = facts(r#"{"running":true,"branch":"/a","due_bytes":4096,"done_bytes":1024}"#);
        assert_eq!(of_status(&running), "moving from /a, 1.00 KiB of 4.00 KiB done; 0 files moved, 0 B");
        assert!(of_status(&ended).starts_with("the last run moved 1 file"));
    }
}
