//! The rounds of one table.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, anyhow};

use super::bench::Bench;
use super::figures::Measured;
use crate::build;
use crate::case::{Call, Calls, Case, Load, Work};
use crate::git;
use crate::markdown::figure_in;
use crate::options::Scale;
use crate::report::{Report, Row};
use crate::tables::Table;
use crate::target::{Places, Target};

impl Bench {
    /// Runs every round; what was measured before an error stays in the report.
    pub(super) fn rounds(&mut self, table: &Table, scale: &Scale, report: &mut Report) -> Result<()> {
        let (targets, outcome) = self.usable(table, report);
        outcome?;
        let mut cached = BTreeSet::new();
        let outcome = self.all_rounds(table, &targets, scale, report, &mut cached);
        for name in cached {
            report.doubts.push(format!(
                "{name}: less than half of what `{}` read came from the device: cached by accident.",
                report.baseline
            ));
        }
        if table.cases.iter().any(|case| matches!(case.work, Work::Tree(_)))
            && let Some(tree) = &self.tree
        {
            report.notes.push(format!("A tree of {} files and {} MiB.", tree.files, tree.bytes >> 20));
        }
        if table.cases.iter().any(|case| matches!(case.work, Work::Build))
            && let Some(project) = &self.project
        {
            report.notes.push(project.about());
        }
        outcome
    }

    fn all_rounds(
        &mut self,
        table: &Table,
        targets: &[&Target],
        scale: &Scale,
        report: &mut Report,
        cached: &mut BTreeSet<String>,
    ) -> Result<()> {
        let count = scale.rounds;
        let mut random = fastrand::Rng::with_seed(scale.seed.into());
        for round in 1..=count + scale.more {
            let mut row = 0;
            for case in &table.cases {
                let rows = &mut report.rows[row..row + case.outputs.len()];
                row += case.outputs.len();
                if skip(case, rows) || (round > count && !is_worth_more(case, rows, &report.baseline)) {
                    continue;
                }
                let targets = in_random_order(targets, &mut random);
                let of = if round > count { count + scale.more } else { count };
                let place = format!("round {round}/{of}: {}, {}", table.name, case.name);
                if let Work::Turns(call) = case.work {
                    self.progress.now(place.clone());
                    self.fill_all((case, call), &targets, rows, &place)?;
                    continue;
                }
                for target in targets {
                    let place = format!("{place}, {}", target.name);
                    self.progress.now(place.clone());
                    let outcome = self.sample(case, target);
                    let said = self.fill(case, target, outcome, rows)?;
                    if self.cached {
                        cached.insert(case.name.clone());
                    }
                    self.progress.done(&format!("{place}: {said}"));
                }
            }
        }
        Ok(())
    }

    /// Takes the figures of a case on all targets, or notes why there are none.
    fn fill_all(
        &mut self,
        (case, call): (&Case, Call),
        targets: &[&Target],
        rows: &mut [Row],
        place: &str,
    ) -> Result<()> {
        let all = self.sample_in_turns(call, targets);
        for (number, target) in targets.iter().enumerate() {
            let outcome = match &all {
                Ok(all) => all.get(number).copied().context("it was not called"),
                Err(error) => Err(anyhow!("{error:#}")),
            };
            let said = self.fill(case, target, outcome, rows)?;
            self.progress.done(&format!("{place}, {}: {said}", target.name));
        }
        Ok(())
    }

    /// Takes the figures of a case, or notes why there are none; fails only when the whole run shall end.
    fn fill(
        &mut self,
        case: &Case,
        target: &Target,
        outcome: Result<Measured>,
        rows: &mut [Row],
    ) -> Result<String> {
        let places = self.lower.places(&target.mounting);
        let outcome = outcome.map_err(|error| without_places(&error, &places));
        self.stop.check()?;
        let mut said = Vec::new();
        for (output, row) in case.outputs.iter().zip(rows) {
            let Some(cell) = row.cells.get_mut(&target.name) else { continue };
            if let Ok(measured) = &outcome
                && let Some(why) = measured.lacks(output.unit)
            {
                cell.skipped.get_or_insert_with(|| why.to_owned());
                continue;
            }
            let figure = match &outcome {
                Ok(measured) => measured.figure(output),
                Err(error) => Err(anyhow::anyhow!("{error:#}")),
            };
            match figure {
                Ok(figure) => {
                    cell.samples.push(figure);
                    said.push(figure_in(figure, output.unit));
                }
                Err(error) => {
                    cell.fail(&error);
                    said.push(format!("failed: {error:#}"));
                }
            }
        }
        said.dedup();
        Ok(said.join(", "))
    }

    /// Returns the targets that can be measured; the others have the reason in their column and their cells.
    fn usable<'a>(&mut self, table: &'a Table, report: &mut Report) -> (Vec<&'a Target>, Result<()>) {
        let of_data = table.cases.iter().find(|case| matches!(case.work, Work::Fio(_)));
        let sealed = table.cases.iter().find_map(|case| match &case.work {
            Work::Sealed(sealed) => Some(sealed),
            _ => None,
        });
        let compares = of_data.is_some() || sealed.is_some();
        let mut usable = Vec::new();
        for target in table.targets.iter().filter(|target| target.missing.is_none()) {
            if compares && target.shows_lower_bytes() {
                self.progress.now(format!("{}: does {} show the right bytes?", table.name, target.name));
                let places = self.lower.places(&target.mounting);
                let outcome = self.check_bytes(target, sealed, of_data);
                let outcome = outcome.map_err(|error| without_places(&error, &places));
                if let Err(stopped) = self.stop.check() {
                    return (usable, Err(stopped));
                }
                if let Err(error) = outcome {
                    self.progress.say(&format!("{}, {}: {error:#}", table.name, target.name));
                    refuse(report, target, &error);
                    continue;
                }
            }
            usable.push(target);
        }
        (usable, Ok(()))
    }
}

/// Returns whether a case that had its rounds gets another: its baseline wavers, and it is no matter of minutes.
fn is_worth_more(case: &Case, rows: &[Row], baseline: &str) -> bool {
    !matches!(case.work, Work::Build) && rows.iter().any(|row| row.wavers(baseline))
}

/// Says what went wrong without the folders of this run, which no other has.
fn without_places(error: &anyhow::Error, places: &Places) -> anyhow::Error {
    let [mount_point, source] = [&places.mount_point, &places.source].map(|path| path.to_string_lossy());
    let text = format!("{error:#}");
    anyhow::anyhow!("{}", text.replace(&*mount_point, "{MNT}").replace(&*source, "{SRC}"))
}

/// Puts the reason why a target is not measured into its column.
fn refuse(report: &mut Report, target: &Target, error: &anyhow::Error) {
    for column in report.columns.iter_mut().filter(|column| column.name == target.name) {
        column.missing = Some(format!("{error:#}"));
    }
    for cell in report.rows.iter_mut().filter_map(|row| row.cells.get_mut(&target.name)) {
        cell.fail(error);
    }
}

/// Returns whether a case cannot be run on this machine, and puts the reason into its cells.
fn skip(case: &Case, rows: &mut [Row]) -> bool {
    let missing = match &case.work {
        Work::Build | Work::Calls(Calls { load: Load::Make, .. }) => build::missing(),
        Work::Git(_) => git::missing(),
        _ => None,
    };
    let Some(why) = missing else { return false };
    for cell in rows.iter_mut().flat_map(|row| row.cells.values_mut()) {
        cell.skipped.get_or_insert_with(|| why.to_owned());
    }
    true
}

/// Returns every target in random order: what runs after the slowest target finds another machine than what runs after the
/// fastest, and no target shall always be the one.
fn in_random_order<'a>(targets: &[&'a Target], random: &mut fastrand::Rng) -> Vec<&'a Target> {
    let mut targets = targets.to_vec();
    random.shuffle(&mut targets);
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Block, Engine, Fio, Pattern};
    use crate::report::{Cell, Unit};

    fn row(bare: &[f64]) -> Row {
        let cell = |samples: &[f64]| Cell { samples: samples.to_vec(), ..Cell::default() };
        let cells = [("bare".to_owned(), cell(bare)), ("ours".to_owned(), cell(&[1.0, 9.0]))];
        Row { cells: cells.into(), ..crate::sample::run().tables[0].rows[0].clone() }
    }

    #[test]
    fn more_rounds_are_for_what_wavers() {
        let read = Case::fio("read", Fio::new(Engine::Psync, Pattern::Read, Block(4)), Unit::OpsPerSec);
        assert!(is_worth_more(&read, &[row(&[100.0, 101.0]), row(&[100.0, 140.0])], "bare"));
        assert!(!is_worth_more(&read, &[row(&[100.0, 101.0])], "bare"), "others may waver as they like");
        let build = Case::new("build", Work::Build, Unit::Seconds);
        assert!(!is_worth_more(&build, &[row(&[100.0, 200.0])], "bare"), "minutes each");
    }

    #[test]
    fn a_seed_gives_the_same_orders_again_and_every_order_comes() {
        let (bare, pipe) = (Target::bare(), Target::pipe());
        let orders = |seed| -> Vec<Vec<String>> {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut order = || in_random_order(&[&bare, &pipe], &mut random);
            (0..20).map(|_| order().iter().map(|target| target.name.clone()).collect()).collect()
        };
        assert_eq!(orders(3), orders(3));
        assert_ne!(orders(3), orders(4));
        for order in [["bare", "pipe"], ["pipe", "bare"]] {
            let times = orders(3).iter().filter(|one| **one == order).count();
            assert!((3..=17).contains(&times), "{order:?}: {times} of 20");
        }
    }
}
