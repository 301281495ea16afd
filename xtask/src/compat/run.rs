//! Gets the kernels, runs the checks on each, and shows what came of them.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::apt::Apt;
use super::checks::{Built, CHECKS, Check};
use super::guest::{self, Job};
use super::kernel::Kernel;
use super::outcome::Outcome;
use super::plan::Plan;
use crate::test::machine;
use crate::workspace::Workspace;

/// What the virtual machines and the checks in them use; what else is missing, a check says.
const NEEDED: [&str; 9] = [
    "debugfs",
    "dpkg-deb",
    "fsverity",
    "getfattr",
    "losetup",
    "mkfs.ext4",
    "qemu-img",
    "qemu-system-x86_64",
    "setpriv",
];

/// How many lines of a failed check are shown; its log has all.
const SHOWN: usize = 40;

/// What came of one kernel: a column of the table.
struct Column {
    release: String,
    outcomes: Vec<Outcome>,
    /// Lines of the kernel's log that tell of an error of the kernel.
    trouble: Vec<String>,
}

/// Runs what the arguments ask for.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode> {
    let plan = Plan::parse(arguments)?;
    ensure!(std::env::consts::ARCH == "x86_64", "the kernels are those of x86-64");
    let checks: Vec<&Check> = CHECKS.iter().filter(|check| check.name.contains(&plan.only)).collect();
    ensure!(!checks.is_empty(), "no check has `{}` in its name", plan.only);
    machine::require(&NEEDED)?;
    let home = workspace.target.join("kernels");
    if plan.update && home.exists() {
        fs::remove_dir_all(&home).with_context(|| home.display().to_string())?;
    }
    let mut apt = None;
    let kernels = plan.kernels.iter().map(|wanted| {
        Kernel::get(&home, *wanted, &mut || {
            if apt.is_none() {
                apt = Some(Apt::set_up(&home.join("apt"))?);
            }
            apt.clone().context("was set up")
        })
    });
    let kernels = kernels.collect::<Result<Vec<_>>>()?;
    let room = tempfile::Builder::new().prefix("compat-").tempdir_in(&workspace.target)?;
    let built = Built::make(workspace, room.path())?;
    let jobs = checks.iter().map(|check| check.job(&built, workspace)).collect::<Result<Vec<_>>>()?;
    let columns = kernels.iter().map(|kernel| on(kernel, &checks, &jobs, room.path()));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    print!("\n{}", table(&checks, &columns));
    let ok = columns.iter().all(Column::is_ok);
    println!("\ncompat: {}", if ok { "ok" } else { "failed" });
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the checks on one kernel. The log remains beside `room`.
fn on(kernel: &Kernel, checks: &[&Check], jobs: &[Job], room: &Path) -> Result<Column> {
    println!("\n== Linux {}", kernel.release);
    let path = room.with_file_name(format!("compat-{}.log", kernel.release));
    let mut log = File::create(&path).with_context(|| path.display().to_string())?;
    let (started, mut outcomes) = (Instant::now(), Vec::new());
    let trouble = guest::run(kernel, jobs, room, &mut |ran| {
        let check = checks[outcomes.len()];
        let outcome = check.judge(&ran);
        // A full disk must not stop the checks.
        let _not_kept = write!(log, "\n== {}: {outcome:?}\n{}", check.name, ran.output);
        println!("{}", line(check.name, &outcome, ran.took.as_secs()));
        if let Outcome::Failed(_) = outcome {
            let lines: Vec<&str> = ran.output.lines().collect();
            lines[lines.len().saturating_sub(SHOWN)..].iter().for_each(|line| println!("    {line}"));
        }
        outcomes.push(outcome);
    })?;
    for line in &trouble {
        println!("the kernel's log: {line}");
    }
    println!("{} s; the whole output: {}", started.elapsed().as_secs(), path.display());
    Ok(Column { release: kernel.release.clone(), outcomes, trouble })
}

fn line(name: &str, outcome: &Outcome, seconds: u64) -> String {
    match outcome {
        Outcome::Ok(what) => format!("ok      {name} ({what}, {seconds} s)"),
        Outcome::NotHere(why) => format!("no      {name}: {why}"),
        Outcome::Failed(why) => format!("FAILED  {name}: {why}"),
    }
}

impl Column {
    fn is_ok(&self) -> bool {
        self.trouble.is_empty() && !self.outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed(_)))
    }
}

/// The table, as docs/kernels.md has it.
fn table(checks: &[&Check], columns: &[Column]) -> String {
    let row = |first: &str, cells: &mut dyn Iterator<Item = &str>| {
        cells.fold(format!("| {first} |"), |row, cell| row + " " + cell + " |") + "\n"
    };
    let mut text = row("", &mut columns.iter().map(|column| column.release.as_str()));
    text += &row("---", &mut columns.iter().map(|_| "---"));
    for (index, check) in checks.iter().enumerate() {
        text += &row(check.name, &mut columns.iter().map(|column| column.outcomes[index].cell()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(outcome: &Outcome) -> Column {
        Column {
            release: "6.1".to_owned(),
            outcomes: vec![outcome.clone(); CHECKS.len()],
            trouble: Vec::new(),
        }
    }

    #[test]
    fn only_a_failure_and_trouble_of_the_kernel_fail() {
        let (good, lacks) = (Outcome::Ok("1 test".to_owned()), Outcome::NotHere("this kernel".to_owned()));
        assert!(column(&good).is_ok() && column(&lacks).is_ok());
        let mut one_failed = column(&good);
        one_failed.outcomes[3] = Outcome::Failed("why".to_owned());
        assert!(!one_failed.is_ok());
        let mut trouble = column(&good);
        trouble.trouble.push("BUG: x".to_owned());
        assert!(!trouble.is_ok());
    }

    #[test]
    fn each_check_is_a_row_and_each_kernel_a_column() {
        let columns = [column(&Outcome::Ok(String::new())), column(&Outcome::NotHere(String::new()))];
        let checks: Vec<&Check> = CHECKS.iter().collect();
        let text = table(&checks, &columns);
        assert_eq!(text.lines().count(), 2 + CHECKS.len());
        assert!(text.starts_with("|  | 6.1 | 6.1 |\n| --- | --- | --- |\n"), "{text}");
        assert!(text.contains("\n| passthrough | ok | no |\n"), "{text}");
    }

    #[test]
    fn a_line_says_what_ran_or_why_not() {
        assert_eq!(line("a", &Outcome::Ok("2 tests".to_owned()), 7), "ok      a (2 tests, 7 s)");
        assert_eq!(line("a", &Outcome::NotHere("b".to_owned()), 7), "no      a: b");
        assert_eq!(line("a", &Outcome::Failed("b".to_owned()), 7), "FAILED  a: b");
    }
}
