//! The tables: lists of cases that belong together.

use crate::case::{Block, Case, Engine, Fio, Meta, MetaStep, Pattern, TreeStep, Work};

/// A named list of cases.
#[derive(Debug, Clone)]
pub struct Table {
    /// What `--table` calls it.
    pub name: &'static str,
    /// One line for `--list`.
    pub about: &'static str,
    /// The rows, in the order they are measured and printed.
    pub cases: Vec<Case>,
}

/// Returns every table.
#[must_use]
pub fn tables() -> Vec<Table> {
    vec![Table {
        name: "peers",
        about: "data, small files and whole-tree walks; the rows that have goals",
        cases: peers(),
    }]
}

fn peers() -> Vec<Case> {
    let mut cases = large_file();
    cases.extend(small_files());
    cases.extend(tree());
    cases
}

fn large_file() -> Vec<Case> {
    use Engine::{Libaio, Mmap, Psync};
    use Pattern::{RandRead, RandWrite, Read, Write};
    let aio = Libaio { depth: 32 };
    vec![
        fio("seed0 read 4k", Psync, Read, 4),
        fio("seed0 randread 4k", Psync, RandRead, 4),
        fio("seed0 write 4k", Psync, Write, 4),
        fio("seed0 randwrite 4k", Psync, RandWrite, 4),
        fio("seed3 paged 128k j1", Psync, Read, 128),
        fio("seed3 paged 128k j2", Psync, Read, 128).jobs(2),
        fio("seed3 paged 1m j1", Psync, Read, 1024),
        fio("seed3 dio 1m j1", Psync, Read, 1024).direct(),
        fio("seed3 dio 1m j2", Psync, Read, 1024).direct().jobs(2),
        fio("seed3 dio 4k rand j1", Psync, RandRead, 4).direct(),
        fio("seed3 dio 4k rand j2", Psync, RandRead, 4).direct().jobs(2),
        fio("seed4 dio 4k aio32", aio, RandRead, 4).direct(),
        fio("seed4 diow 4k aio32", aio, RandWrite, 4).direct(),
        fio("seed3 mmap 4k j1", Mmap, Read, 4),
    ]
}

fn small_files() -> Vec<Case> {
    vec![
        meta("seed3 create j1", MetaStep::Create, 1),
        meta("meta stat cold", MetaStep::Stat, 1),
        meta("meta delete", MetaStep::Delete, 1),
        meta("seed3 create j2", MetaStep::Create, 2),
        meta("meta delete j2", MetaStep::Delete, 2),
    ]
}

fn tree() -> Vec<Case> {
    vec![
        Case { name: "tree untar", work: Work::Tree(TreeStep::Untar) },
        Case { name: "tree find cold", work: Work::Tree(TreeStep::FindCold) },
        Case { name: "tree find warm", work: Work::Tree(TreeStep::FindWarm) },
        Case { name: "tree grep cold", work: Work::Tree(TreeStep::GrepCold) },
        Case { name: "tree rm", work: Work::Tree(TreeStep::Remove) },
    ]
}

fn fio(name: &'static str, engine: Engine, pattern: Pattern, block: u32) -> Case {
    Case { name, work: Work::Fio(Fio { engine, pattern, block: Block(block), direct: false, jobs: 1 }) }
}

fn meta(name: &'static str, step: MetaStep, jobs: u32) -> Case {
    Case { name, work: Work::Meta(Meta { step, jobs }) }
}

impl Case {
    fn direct(mut self) -> Self {
        if let Work::Fio(fio) = &mut self.work {
            fio.direct = true;
        }
        self
    }

    fn jobs(mut self, jobs: u32) -> Self {
        if let Work::Fio(fio) = &mut self.work {
            fio.jobs = jobs;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_in_a_table() {
        for table in tables() {
            let names: HashSet<_> = table.cases.iter().map(|case| case.name).collect();
            assert_eq!(names.len(), table.cases.len(), "table {}", table.name);
        }
    }

    #[test]
    fn every_recorded_row_is_a_case_and_the_other_way_round() {
        let table = tables().remove(0);
        let cases: HashSet<_> = table.cases.iter().map(|case| case.name).collect();
        let rows: HashSet<_> = crate::recorded().iter().map(|row| row.case).collect();
        assert_eq!(cases, rows);
    }
}
