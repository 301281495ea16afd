//! `shunt rules check` and `shunt rules show`.

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use shuntfs_rules::{Mistake, Rules};

use super::source::{Refused, RuleSource, counted};
use crate::cli::{RulesArgs, RulesCheckArgs, RulesFileArgs, RulesWhat};
use crate::failure::Failure;
use crate::json::{self, One};
use crate::mounts::shown;
use crate::run::{complain, output_failure};

/// Checks or shows files of rules.
///
/// # Errors
/// Every mistake in them, each with its place.
pub(crate) fn run(args: &RulesArgs, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.what {
        RulesWhat::Check(args) => check(args, out),
        RulesWhat::Show(args) => show(args, out),
    }
}

fn show(args: &RulesFileArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let source = RuleSource::new(&args.file, None)?;
    let rules = source.look().map_err(|refused| refused.failure(source.file()))?;
    out.write_all(rules.show().as_bytes()).map_err(|error| output_failure(&error))
}

/// What is found in one file.
#[derive(Default, Serialize)]
struct Report {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_hex: Option<String>,
    /// As messages name it.
    #[serde(skip)]
    shown: String,
    /// Whether a mount would take it, as far as the file tells.
    ok: bool,
    /// How many rules there are, where there is no mistake.
    rules: Option<usize>,
    /// Why it cannot be read.
    error: Option<String>,
    mistakes: Vec<Place>,
    warnings: Vec<Place>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Place {
    line: usize,
    column: usize,
    text: String,
}

impl From<&Mistake> for Place {
    fn from(mistake: &Mistake) -> Self {
        Self { line: mistake.line, column: mistake.column, text: mistake.text.clone() }
    }
}

fn check(args: &RulesCheckArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let reports = args.files.iter().map(|file| report(file)).collect::<Result<Vec<_>, _>>()?;
    let is_bad = |report: &&Report| !report.ok || args.strict && !report.warnings.is_empty();
    let bad: Vec<&Report> = reports.iter().filter(is_bad).collect();
    if args.json {
        json::print(&One("files", &reports), out)?;
    } else {
        reports.iter().for_each(|report| say(report, args.strict));
    }
    match bad.as_slice() {
        [] => Ok(()),
        [only] if args.files.len() == 1 => Err(failure(only, args)),
        some => Err(of_several(some, args)),
    }
}

fn report(file: &Path) -> Result<Report, Failure> {
    let source = RuleSource::new(file, None)?;
    let (file, file_hex) = (json::text(source.file()), json::hex(source.file()));
    let mut report = Report { file, file_hex, shown: shown(source.file()), ..Report::default() };
    match source.look() {
        Ok(rules) => {
            report.ok = true;
            report.rules = Some(rules.rules().len());
            report.warnings = rules.warnings().iter().map(Place::from).collect();
            report.notes = notes(&source, &rules);
        }
        Err(Refused::Unreadable(why) | Refused::Untrusted(why)) => report.error = Some(why),
        Err(Refused::Mistakes(mistakes)) => report.mistakes = mistakes.all.iter().map(Place::from).collect(),
    }
    Ok(report)
}

/// A file of rules does not know its mounts: what they need beyond the file is said.
fn notes(source: &RuleSource, rules: &Rules) -> Vec<String> {
    let seals = rules.speaks_of_seals().map(|rule| {
        let (line, name) = (rule.line, &rule.name);
        format!("line {line}: the rule `{name}` says `verify`, so a mount needs a seal (--verify=if-sealed)")
    });
    let untrusted = source.untrusted().map(|why| format!("no mount of this user takes these rules: {why}"));
    seals.into_iter().chain(untrusted).collect()
}

/// Says what is no mistake.
fn say(report: &Report, is_strict: bool) {
    for note in &report.notes {
        complain(&format!("shunt: note: {note}"));
    }
    // Where they count as mistakes they are said as those.
    for Place { line, column, text } in report.warnings.iter().filter(|_| !is_strict) {
        complain(&format!("shunt: warning: {}:{line}:{column}: {}", report.shown, shown(text)));
    }
}

/// What is wrong with one file.
fn failure(report: &Report, args: &RulesCheckArgs) -> Failure {
    let warnings = if args.strict { report.warnings.len() } else { 0 };
    let found = counted(report.mistakes.len() + warnings);
    match &report.error {
        Some(why) => Failure::new(format!("cannot read the rules in {}: {}", report.shown, shown(why))),
        None => Failure::new(format!("there {found} in the rules")).details(lines(report, args)),
    }
}

fn of_several(reports: &[&Report], args: &RulesCheckArgs) -> Failure {
    let lines: Vec<String> = reports.iter().flat_map(|report| lines(report, args)).collect();
    let (bad, all) = (reports.len(), args.files.len());
    Failure::new(format!("{bad} of {all} files of rules cannot be taken")).details(lines)
}

/// A line for each thing that is wrong; none with `--json`, which has them.
fn lines(report: &Report, args: &RulesCheckArgs) -> Vec<String> {
    let file = &report.shown;
    let warnings = report.warnings.iter().filter(|_| args.strict);
    let places = report.mistakes.iter().chain(warnings);
    let places =
        places.map(|Place { line, column, text }| format!("{file}:{line}:{column}: {}", shown(text)));
    let error = report.error.iter().map(|why| format!("{file}: {}", shown(why)));
    places.chain(error).filter(|_| !args.json).collect()
}
