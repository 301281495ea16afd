//! `shunt migrate mergerfs`.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::args::{MigrateArgs, MigrateMergerfsArgs, MigrateWhat};
use super::line::{FstabLine, has_program, of_call, quoted, words_of};
use super::translate::{Ours, Said, translate};
use crate::failure::Failure;
use crate::json::{self, One};
use crate::mounts::shown;
use crate::run::{complain, output_failure};

/// What became of one line.
#[derive(Debug, Serialize)]
struct Report {
    from: String,
    to: String,
    /// Whether something is lost.
    lost: bool,
    options: Vec<Said>,
    notes: Vec<String>,
}

/// Prints our line, and says what differs.
///
/// # Errors
/// Where something is lost, and where it is no line of mergerfs.
pub(crate) fn run(args: &MigrateArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let MigrateWhat::Mergerfs(args) = &args.what;
    match &args.fstab {
        Some(file) => whole_file(file, args, out),
        None => one_line(args, out),
    }
}

fn one_line(args: &MigrateMergerfsArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let text = |word: &std::ffi::OsString| word.clone().into_string().ok();
    let words: Option<Vec<String>> = args.line.iter().map(text).collect();
    let words = words.ok_or_else(|| Failure::usage("the line is no text (UTF-8)"))?;
    let line = words.join(" ");
    let report = match FstabLine::of(&line) {
        Some(line) => of_fstab(&line)?,
        None => {
            // One word is a whole call in quotes.
            let words = match words.as_slice() {
                [only] => words_of_call(only)?,
                _ => words,
            };
            let ours = translate(&of_call(&words))?;
            let to = command(&ours);
            Report::of(ours, line.trim().to_owned(), to)
        }
    };
    if args.json {
        json::print(&One("lines", &[&report]), out)?;
    } else {
        writeln!(out, "{}", report.to).map_err(|error| output_failure(&error))?;
        report.remarks().for_each(|remark| complain(&format!("shunt: note: {}", shown(remark))));
    }
    outcome(&[report])
}

/// The words of a call; a line of fstab for something else is none.
fn words_of_call(line: &str) -> Result<Vec<String>, Failure> {
    let words = words_of(line);
    let is_call = words.len() == 2 || words.iter().any(|word| word.starts_with("-o")) || has_program(&words);
    let no = || Failure::usage(format!("{line:?} asks for no mergerfs"));
    is_call
        .then_some(words)
        .ok_or_else(|| no().hint("a line of fstab of the type mergerfs, or -o OPTIONS BRANCHES MNT"))
}

fn whole_file(file: &Path, args: &MigrateMergerfsArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let unread = |error| Failure::new(format!("cannot read {}: {error}", shown(file)));
    let bytes = fs::read(file).map_err(unread)?;
    let (mut reports, mut whole) = (Vec::new(), Vec::new());
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let ours = str::from_utf8(line).ok().and_then(FstabLine::of);
        let Some(ours) = ours else {
            whole.extend_from_slice(line);
            continue;
        };
        let wrong = |failure| Failure::usage(format!("{}:{}: {failure}", shown(file), index + 1));
        let report = of_fstab(&ours).map_err(wrong)?;
        // What is quoted may hold line breaks, and must not become lines of fstab.
        for remark in report.losses().chain(report.remarks()) {
            whole.extend_from_slice(format!("# shunt: {}\n", shown(remark)).as_bytes());
        }
        whole.extend_from_slice(report.to.as_bytes());
        whole.push(b'\n');
        reports.push(report);
    }
    if reports.is_empty() {
        return Err(Failure::usage(format!("{} has no line of mergerfs", shown(file))));
    }
    if args.json {
        json::print(&One("lines", &reports), out)?;
    } else {
        out.write_all(&whole).map_err(|error| output_failure(&error))?;
    }
    outcome(&reports)
}

fn of_fstab(line: &FstabLine<'_>) -> Result<Report, Failure> {
    let ours = translate(&line.asked()?)?;
    let to = line.with(&ours.source, &ours.mountpoint, &ours.options.join(","));
    Ok(Report::of(ours, line.to_string(), to))
}

/// The call that asks for the same.
fn command(ours: &Ours) -> String {
    let foreground = if ours.foreground { " --foreground" } else { "" };
    let options = quoted(&ours.options.join(","));
    format!("shunt mount{foreground} -o {options} {} {}", quoted(&ours.source), quoted(&ours.mountpoint))
}

impl Report {
    fn of(ours: Ours, from: String, to: String) -> Self {
        let lost = ours.said.iter().any(|said| said.lost);
        Self { from, to, lost, options: ours.said, notes: ours.notes }
    }

    /// Of each option that is lost, what and why.
    fn losses(&self) -> impl Iterator<Item = String> {
        let lost = self.options.iter().filter(|said| said.lost);
        lost.map(|said| format!("{} is {} here: {}", said.option, said.here, said.text))
    }

    /// What is worth knowing of the others.
    fn remarks(&self) -> impl Iterator<Item = String> {
        let kept = self.options.iter().filter(|said| said.ours.is_some());
        let said = kept.filter_map(|said| match (said.here, &said.ours) {
            ("renamed", Some(ours)) => Some(format!("{} is called {ours}", said.option)),
            _ if said.text.is_empty() => None,
            _ => Some(format!("{}: {}", said.option, said.text)),
        });
        said.chain(self.notes.iter().cloned())
    }
}

fn outcome(reports: &[Report]) -> Result<(), Failure> {
    let losses: Vec<String> = reports.iter().flat_map(Report::losses).collect();
    match losses.len() {
        0 => Ok(()),
        1 => Err(Failure::new("one option is left out").details(losses)),
        count => Err(Failure::new(format!("{count} options are left out")).details(losses)),
    }
}
