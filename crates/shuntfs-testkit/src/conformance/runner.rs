//! Runs cases on two folders and compares what they saw.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Case, Ctx, Observation};
use crate::limit::run_with_timeout;
use crate::tree::{Look, differences, snapshot};

/// How long one case may take before it counts as hung: `SHUNT_CASE_SECONDS`, for slow machines, or half a minute.
#[must_use]
pub fn case_limit() -> Duration {
    let seconds = std::env::var("SHUNT_CASE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}

/// Where cases run.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The folder as the cases see it.
    pub root: PathBuf,
    /// The same folder on the lower file system; equal to `root` on the bare file system.
    pub lower: PathBuf,
}

impl Subject {
    /// A folder of a bare file system.
    #[must_use]
    pub fn bare(root: &Path) -> Self {
        Self { root: root.to_owned(), lower: root.to_owned() }
    }

    /// A mount that shows a folder of the lower file system.
    #[must_use]
    pub fn mounted(root: &Path, lower: &Path) -> Self {
        Self { root: root.to_owned(), lower: lower.to_owned() }
    }
}

/// What a run of the list found.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of cases compared.
    pub cases: usize,
    /// Number of observations compared.
    pub observations: usize,
    /// Number of observations that differ only by what the kernel makes different.
    pub limits: usize,
    /// Every other difference, one line each: case, label, expected, seen.
    pub differences: Vec<String>,
    /// The run was ended early because a case hung.
    pub hung: bool,
}

impl Report {
    /// Turns differences into an error that lists them.
    ///
    /// # Errors
    /// There are some.
    pub fn into_result(self, what: &str) -> Result<()> {
        anyhow::ensure!(
            self.differences.is_empty(),
            "{what}: {} differences in {} cases:\n  {}",
            self.differences.len(),
            self.cases,
            self.differences.join("\n  ")
        );
        Ok(())
    }
}

/// Runs the cases on both subjects and compares; `on_hang` must free a case that hangs on the second subject.
pub fn compare(list: &[Case], oracle: &Subject, other: &Subject, on_hang: impl Fn()) -> Report {
    let mut report = Report::default();
    for case in list {
        report.cases += 1;
        let expected = match run_case(case, oracle) {
            Ok(seen) => seen,
            Err(error) => {
                report
                    .differences
                    .push(format!("{}: cannot run on the bare file system: {error:#}", case.name));
                continue;
            }
        };
        match run_case(case, other) {
            Ok(seen) => judge(case, &expected, &seen, &mut report),
            Err(error) => {
                report.differences.push(format!("{}: {error:#}", case.name));
                if error.downcast_ref::<Hung>().is_some() {
                    report.hung = true;
                    on_hang();
                    return report;
                }
            }
        }
        judge_trees(case, oracle, other, &mut report);
    }
    report
}

/// A case did not come back.
#[derive(Debug)]
struct Hung;

impl std::fmt::Display for Hung {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "hung for {:?}", case_limit())
    }
}

impl std::error::Error for Hung {}

/// Runs one case in a folder of its own.
///
/// # Errors
/// It cannot be set up, it panicked, or it did not come back.
pub fn run_case(case: &Case, subject: &Subject) -> Result<Observation> {
    let folder = case.name.replace('/', "-");
    let (root, lower, run) = (subject.root.join(&folder), subject.lower.join(&folder), case.run);
    let work = move || -> Result<Observation> {
        fs::create_dir(&root).with_context(|| format!("cannot make {}", root.display()))?;
        fs::set_permissions(&root, Permissions::from_mode(0o755))?;
        run(&Ctx::new(&root, &lower)?)
    };
    match run_with_timeout(case_limit(), case.name, work) {
        Ok(outcome) => outcome,
        Err(error) if error.to_string().contains("no answer after") => Err(Hung.into()),
        Err(error) => Err(error),
    }
}

fn judge(case: &Case, expected: &Observation, seen: &Observation, report: &mut Report) {
    let (left, right) = (expected.lines(), seen.lines());
    for ((label, one), (other_label, other)) in left.iter().zip(right) {
        report.observations += 1;
        if label != other_label {
            report.differences.push(format!("{}: [{label}] came as [{other_label}]", case.name));
            return;
        }
        if one == other {
            continue;
        }
        if case.may_differ(label, Some(other)) {
            report.limits += 1;
        } else {
            report.differences.push(format!("{}: [{label}] expected {one}, seen {other}", case.name));
        }
    }
    if left.len() != right.len() {
        report.differences.push(format!("{}: {} observations, not {}", case.name, right.len(), left.len()));
    }
}

/// Compares what the case left: the oracle's files, the mount's through the mount, and the mount's below it.
fn judge_trees(case: &Case, oracle: &Subject, other: &Subject, report: &mut Report) {
    if case.may_differ(super::TREE, None) {
        return;
    }
    let folder = case.name.replace('/', "-");
    let places = [("left behind", &other.root), ("left behind below", &other.lower)];
    let expected = match snapshot(&oracle.root.join(&folder), Look::TIMELESS) {
        Ok(expected) => expected,
        Err(error) => {
            report.differences.push(format!("{}: no tree on the bare file system: {error:#}", case.name));
            return;
        }
    };
    for (label, place) in places {
        match snapshot(&place.join(&folder), Look::TIMELESS) {
            Ok(seen) => {
                let found = differences(&expected, &seen, 5);
                report
                    .differences
                    .extend(found.iter().map(|line| format!("{}: [{label}] {line}", case.name)));
            }
            Err(error) => report.differences.push(format!("{}: [{label}] {error:#}", case.name)),
        }
    }
}
