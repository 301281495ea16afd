//! The cases that the peers were measured in, each with the goal that came of it.

use super::{Setting, Table};
use crate::case::{Block, Case, Engine, Fio, Meta, MetaStep, Pattern, TreeStep, Work};
use crate::goal::goals;
use crate::report::Unit;
use crate::target::{Target, peers};

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let mut targets = vec![Target::bare()];
    targets.extend(Target::bind());
    targets.push(ours.mount("shunt", ""));
    targets.push(ours.mount("shunt-uring", "--transport uring --flow relay"));
    targets.push(ours.mount("shunt-cloned", "--transport cloned --flow splice"));
    targets.push(ours.mount("shunt-device", "--transport device --flow splice"));
    targets.extend(peers());
    Table {
        name: "peers",
        about: "data, small files and whole-tree walks: the rows that the peers were measured in, with goals",
        baseline: "bare",
        against: None,
        targets,
        cases: cases().into_iter().filter(|case| !setting.smoke || is_smoke(case)).map(with_goal).collect(),
        notes: vec!["The operations of `tree` rows are whole walks.".to_owned()],
        skipped: None,
    }
}

fn cases() -> Vec<Case> {
    let mut cases = large_file();
    cases.extend(small_files());
    cases.extend(tree());
    cases
}

/// Of each kind of case, one.
fn is_smoke(case: &Case) -> bool {
    let kinds =
        ["seed0 write", "dio 1m j2", "diow", "mmap", "create j2", "meta stat", "meta delete j2", "tree "];
    kinds.iter().any(|kind| case.name.contains(kind))
}

fn with_goal(case: Case) -> Case {
    let Some(goal) = goals().iter().find(|goal| goal.case == case.name) else { return case };
    case.reach(if goal.is_served { "shunt-uring" } else { "shunt" }, goal.ratio)
}

fn large_file() -> Vec<Case> {
    use Engine::{Libaio, Mmap, Psync};
    use Pattern::{RandRead, RandWrite, Read, Write};
    let case = |name: &str, fio| Case::fio(name, fio, Unit::OpsPerSec);
    let fio = |engine, pattern, block| Fio::new(engine, pattern, Block(block));
    let aio = Libaio { depth: 32 };
    vec![
        case("seed0 read 4k", fio(Psync, Read, 4)),
        case("seed0 randread 4k", fio(Psync, RandRead, 4)),
        case("seed0 write 4k", fio(Psync, Write, 4)),
        case("seed0 randwrite 4k", fio(Psync, RandWrite, 4)),
        case("seed3 paged 128k j1", fio(Psync, Read, 128)),
        case("seed3 paged 128k j2", fio(Psync, Read, 128).jobs(2)),
        case("seed3 paged 1m j1", fio(Psync, Read, 1024)),
        case("seed3 dio 1m j1", fio(Psync, Read, 1024).direct()),
        case("seed3 dio 1m j2", fio(Psync, Read, 1024).direct().jobs(2)),
        case("seed3 dio 4k rand j1", fio(Psync, RandRead, 4).direct()),
        case("seed3 dio 4k rand j2", fio(Psync, RandRead, 4).direct().jobs(2)),
        case("seed4 dio 4k aio32", fio(aio, RandRead, 4).direct()),
        case("seed4 diow 4k aio32", fio(aio, RandWrite, 4).direct()),
        case("seed3 mmap 4k j1", fio(Mmap, Read, 4)),
    ]
}

fn small_files() -> Vec<Case> {
    let case = |name: &str, step, jobs| Case::new(name, Work::Meta(Meta { step, jobs }), Unit::OpsPerSec);
    vec![
        case("seed3 create j1", MetaStep::Create, 1),
        case("meta stat cold", MetaStep::Stat, 1),
        case("meta delete", MetaStep::Delete, 1),
        case("seed3 create j2", MetaStep::Create, 2),
        case("meta delete j2", MetaStep::Delete, 2),
    ]
}

fn tree() -> Vec<Case> {
    let case = |name: &str, step| Case::new(name, Work::Tree(step), Unit::OpsPerSec);
    vec![
        case("tree untar", TreeStep::Untar),
        case("tree find cold", TreeStep::FindCold),
        case("tree find warm", TreeStep::FindWarm),
        case("tree grep cold", TreeStep::GrepCold),
        case("tree rm", TreeStep::Remove),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_goal_is_that_of_a_case_and_the_other_way_round() {
        let names: Vec<String> = cases().into_iter().map(|case| case.name).collect();
        let cases: HashSet<&str> = names.iter().map(String::as_str).collect();
        let rows: HashSet<_> = goals().iter().map(|goal| goal.case).collect();
        assert_eq!(cases, rows);
    }
}
