//! The rounds.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::case::{Amount, Case, Fio, TreeStep, Work};
use crate::fio;
use crate::legacy::{Cell, Report};
use crate::lower::Lower;
use crate::machine;
use crate::markdown::number;
use crate::meta;
use crate::mounted::Mounted;
use crate::options::Options;
use crate::process;
use crate::stop::Stop;
use crate::table::{Table, tables};
use crate::target::{Mounting, Target, chosen};
use crate::tree::Tree;

/// Measures what the options ask for. A target that fails has its error in the report, and the run goes on.
///
/// # Errors
/// When the options name what does not exist, the machine lacks something that every case needs, or `stop` is set before
/// there is a figure; with figures, the report says that it was interrupted.
pub fn measure(options: &Options, stop: &Stop) -> Result<Report> {
    let scale = options.scale()?;
    let table = table(options)?;
    let targets = chosen(options)?;
    require_programs(&table)?;
    let mut report = Report::new(&table, &targets);
    report.rounds = scale.rounds;
    report.file_len = scale.amount.file_len;
    report.files = scale.amount.files;
    for (head, target) in report.targets.iter_mut().zip(&targets) {
        if let Mounting::Server(words) = &target.mounting {
            head.version = words.first().map(|program| machine::version(program));
        }
    }
    let uring = UringParameter::turn_on(&targets, &mut report.doubts);
    let mut bench = Bench::set_up(options, scale.amount, stop)?;
    report.lower.clone_from(&bench.lower.about);
    let outcome = bench.rounds(&table, &targets, scale.rounds, &mut report);
    report.interrupted = outcome.is_err() && stop.is_set();
    if !(report.interrupted && report.has_figures()) {
        outcome?;
    }
    if !bench.lower.can_drop {
        report.doubts.push("Not root: the caches were not dropped, cold is not cold.".to_owned());
    }
    for name in &bench.cached {
        report.doubts.push(format!("{name}: less than half of it came from the device: cached by accident."));
    }
    report.tree = bench.tree.as_ref().map(|tree| (tree.files, tree.bytes));
    drop(uring);
    report.settle();
    Ok(report)
}

/// Returns every target, each time from another one on: what runs after the slowest target finds another machine than what
/// runs after the fastest, and no target shall always be the one.
fn in_turn(targets: &[Target], turn: usize) -> impl Iterator<Item = &Target> {
    targets.iter().cycle().skip(turn % targets.len()).take(targets.len())
}

/// Returns the table asked for, with the cases asked for.
fn table(options: &Options) -> Result<Table> {
    let mut all = tables();
    let names: Vec<_> = all.iter().map(|table| table.name).collect();
    let Some(at) = names.iter().position(|&name| name == options.table) else {
        bail!("there is no table `{}`; there are {}", options.table, names.join(", "));
    };
    let mut table = all.swap_remove(at);
    if let Some(text) = &options.case {
        table.cases.retain(|case| case.name.contains(text.as_str()));
        if table.cases.is_empty() {
            bail!("no case of `{}` has `{text}` in its name", options.table);
        }
    }
    Ok(table)
}

fn require_programs(table: &Table) -> Result<()> {
    let fio = table.cases.iter().any(|case| !matches!(case.work, Work::Tree(_)));
    let wanted =
        [("fio", "fio", fio), ("tar", "tar", true), ("find", "findutils", true), ("grep", "grep", true)];
    for (program, package, needed) in wanted {
        if needed && !process::on_path(program) {
            bail!("`{program}` is not installed (Debian package {package})");
        }
    }
    Ok(())
}

/// What is there while the rounds run.
struct Bench {
    tree: Option<Tree>,
    lower: Lower,
    amount: Amount,
    stop: Stop,
    /// Cases that were read from a cache by accident.
    cached: BTreeSet<&'static str>,
}

impl Bench {
    fn set_up(options: &Options, amount: Amount, stop: &Stop) -> Result<Self> {
        let lower = Lower::make(&amount, options.folder.as_deref(), stop)?;
        Ok(Self { tree: None, lower, amount, stop: stop.clone(), cached: BTreeSet::new() })
    }

    /// Every round; what was measured before an error stays in the report.
    fn rounds(&mut self, table: &Table, targets: &[Target], count: usize, report: &mut Report) -> Result<()> {
        self.check_bytes_of_all(table, targets, report)?;
        for round in 1..=count {
            for (at, (case, row)) in table.cases.iter().zip(&mut report.cases).enumerate() {
                for target in in_turn(targets, round + at) {
                    let Some(cell) = row.cells.get_mut(&target.name) else { continue };
                    let figure = self.fill(case, target, cell)?;
                    let figure =
                        figure.map_or("failed".to_owned(), |figure| format!("{} ops/s", number(figure)));
                    eprintln!("round {round}/{count}: {}, {}: {figure}", case.name, target.name);
                }
            }
        }
        Ok(())
    }

    /// Speed at the price of wrong bytes is none: a target that shows other bytes than the lower folder has failed every
    /// data case, whatever its figures are.
    fn check_bytes_of_all(&mut self, table: &Table, targets: &[Target], report: &mut Report) -> Result<()> {
        let is_data = |case: &Case| matches!(case.work, Work::Fio(_));
        if !table.cases.iter().any(is_data) {
            return Ok(());
        }
        for target in targets {
            let outcome = self.check_bytes(target);
            self.stop.check()?;
            let Err(error) = outcome else { continue };
            eprintln!("{} does not show the right bytes: {error:#}", target.name);
            for (_, row) in table.cases.iter().zip(&mut report.cases).filter(|(case, _)| is_data(case)) {
                if let Some(cell) = row.cells.get_mut(&target.name) {
                    cell.fail(&error);
                }
            }
        }
        Ok(())
    }

    /// Compares the start of a large file, read through a fresh mount with cold caches, with the lower file.
    fn check_bytes(&mut self, target: &Target) -> Result<()> {
        const LEN: u64 = 64 << 20;
        self.lower.ensure_large_files(1, &self.amount)?;
        self.lower.drop_caches(&self.stop)?;
        let source = self.lower.source();
        let mounted = Mounted::start(target, &source, &self.lower.mount_point(), &self.stop)?;
        let name = fio::large_file(0);
        let mut compare = Command::new("cmp");
        compare.arg("-n").arg(LEN.to_string()).arg(mounted.root().join(&name)).arg(source.join(&name));
        let same = process::run_ok(&mut compare, self.amount.limit, &self.stop);
        let down = mounted.end();
        same?;
        down
    }

    /// Takes one figure, or notes why there is none; fails only when the whole run shall end.
    fn fill(&mut self, case: &Case, target: &Target, cell: &mut Cell) -> Result<Option<f64>> {
        let outcome = self.sample(case, target);
        self.stop.check()?;
        match outcome {
            Ok(figure) => {
                cell.samples.push(figure);
                Ok(Some(figure))
            }
            Err(error) => {
                eprintln!("{} on {}: {error:#}", case.name, target.name);
                cell.fail(&error);
                Ok(None)
            }
        }
    }

    /// Every figure is taken on a fresh mount, mounted after the caches were dropped: nothing that a case did before can
    /// be cached, and a server that breaks in one case does not fail the next.
    fn sample(&mut self, case: &Case, target: &Target) -> Result<f64> {
        self.prepare(case).context("cannot prepare")?;
        self.lower.drop_caches(&self.stop)?;
        let source = self.lower.source();
        let mounted = Mounted::start(target, &source, &self.lower.mount_point(), &self.stop)?;
        let figure = self.run(case, mounted.root());
        let down = mounted.end();
        let figure = figure?;
        down?;
        self.verify(case, &source)?;
        Ok(figure)
    }

    fn prepare(&mut self, case: &Case) -> Result<()> {
        let source = self.lower.source();
        match &case.work {
            Work::Fio(fio) => self.lower.ensure_large_files(fio.jobs, &self.amount),
            Work::Meta(meta) => meta::prepare(meta, &source, &self.amount),
            Work::Tree(step) => self.prepare_tree(*step, &source),
        }
    }

    fn prepare_tree(&mut self, step: TreeStep, source: &Path) -> Result<()> {
        if self.tree.is_none() {
            self.tree = Some(Tree::pack(self.lower.work(), &self.amount, &self.stop)?);
        }
        let tree = self.tree.as_mut().context("no tree")?;
        tree.prepare(step, source, &self.amount, &self.stop)
    }

    fn run(&mut self, case: &Case, root: &Path) -> Result<f64> {
        match &case.work {
            Work::Fio(fio) => self.run_fio(case, fio, root),
            Work::Meta(meta) => meta::run(meta, root, &self.amount, self.lower.can_drop, &self.stop),
            Work::Tree(step) => {
                let tree = self.tree.as_mut().context("no tree")?;
                tree.run(*step, root, &self.amount, &self.stop)
            }
        }
    }

    /// Notes a read that did not reach the device: something was cached that should not have been.
    fn run_fio(&mut self, case: &Case, fio: &Fio, root: &Path) -> Result<f64> {
        let before = self.lower.device_read_len();
        let counted = fio::run(&mut fio::command(fio, root, &self.amount), &self.amount, &self.stop)?;
        let read = self.lower.device_read_len().zip(before).map(|(after, before)| after - before);
        if self.lower.can_drop && read.is_some_and(|len| len < counted.read_len / 2) {
            self.cached.insert(case.name);
        }
        Ok(counted.operations)
    }

    fn verify(&self, case: &Case, source: &Path) -> Result<()> {
        match (&case.work, &self.tree) {
            (Work::Meta(meta), _) => meta::verify(meta, source, &self.amount),
            (Work::Tree(step), Some(tree)) => tree.verify(*step, source, &self.amount, &self.stop),
            (Work::Fio(_) | Work::Tree(_), _) => Ok(()),
        }
    }
}

/// The switch of FUSE over io_uring, put back to what it was.
struct UringParameter;

impl UringParameter {
    const PATH: &'static str = "/sys/module/fuse/parameters/enable_uring";

    fn turn_on(targets: &[Target], notes: &mut Vec<String>) -> Option<Self> {
        let off = || std::fs::read_to_string(Self::PATH).is_ok_and(|text| text.trim() == "N");
        if !targets.iter().any(Target::wants_uring) || !off() {
            return None;
        }
        match std::fs::write(Self::PATH, "Y") {
            Ok(()) => {
                eprintln!("FUSE over io_uring is off on this machine: on for this run ({})", Self::PATH);
                Some(Self)
            }
            Err(error) => {
                notes.push(format!("FUSE over io_uring is off ({}) and stays off: {error}.", Self::PATH));
                None
            }
        }
    }
}

impl Drop for UringParameter {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(Self::PATH, "N") {
            eprintln!("shuntfs-bench: {} stays Y: {error}", Self::PATH);
        }
    }
}
