//! What a table is, and the list of them.

use super::{
    passthrough, peers, pool, queues, roundtrip, smallfiles, stacked, tails, takeover, uring, verity,
};
use crate::case::Case;
use crate::target::{Ours, Target};

/// A named list of cases, and what they are run on.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// What `--table` calls it.
    pub(crate) name: &'static str,
    /// One line that says what is compared.
    pub(crate) about: &'static str,
    /// The target that ratios are to; the first one.
    pub(crate) baseline: &'static str,
    /// The target that the headline compares with, besides.
    pub(crate) against: Option<&'static str>,
    /// The columns.
    pub(crate) targets: Vec<Target>,
    /// The rows, in the order they are measured and printed.
    pub(crate) cases: Vec<Case>,
    /// What a reader needs to know.
    pub(crate) notes: Vec<String>,
    /// Why it cannot be measured, if so.
    pub(crate) skipped: Option<&'static str>,
}

/// What tables are made for.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// shunt's own targets.
    pub(crate) ours: Ours,
    /// Targets of the command line.
    pub(crate) templates: Vec<Target>,
    /// CPUs that we may run on.
    pub(crate) cpus: u32,
    /// Whether the fewest cases are wanted that still have everything in them.
    pub(crate) smoke: bool,
}

/// Returns every table.
pub(crate) fn tables(setting: &Setting) -> Vec<Table> {
    let mut tables = vec![
        passthrough::table(setting),
        stacked::table(setting),
        uring::table(setting),
        queues::table(setting),
        smallfiles::table(setting),
        roundtrip::table(setting),
        tails::table(setting),
        takeover::table(setting),
        peers::table(setting),
        verity::table(setting),
        pool::table(setting),
    ];
    for table in &mut tables {
        // What the command line adds is a column of every table that has folders to show.
        if table.baseline == "bare" {
            let has_branches = table.cases.iter().any(|case| case.branches > 1);
            let suits = |target: &&Target| !has_branches || target.shows_branches();
            table.targets.extend(setting.templates.iter().filter(suits).cloned());
        }
    }
    tables
}

/// Returns the column of ours that a table's rows compare with peers, where they have no goal of another: what is nearest to what
/// `shunt` does when nothing is said. It is fixed here, before anything is measured.
pub(crate) fn compared(table: &str) -> Option<&'static str> {
    Some(match table {
        "passthrough" | "smallfiles" => "passthrough",
        "stacked" => "delegated",
        "uring" | "roundtrip" | "tails" | "pool" => "uring",
        "queues" => "file passthrough",
        "peers" => "shunt",
        "verity" => "verified",
        "takeover" => "crash",
        _ => return None,
    })
}

impl Setting {
    /// Returns 1, 2, 4 and so on up to twice the CPUs.
    pub(super) fn jobs(&self) -> Vec<u32> {
        let most = self.cpus.saturating_mul(2).max(2);
        std::iter::successors(Some(1_u32), |jobs| jobs.checked_mul(2))
            .take_while(|&jobs| jobs <= most)
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::path::Path;

    pub(crate) fn setting(cpus: u32) -> Setting {
        Setting { ours: Ours::new(Path::new("/bin/shunt")), templates: Vec::new(), cpus, smoke: false }
    }

    #[test]
    fn names_are_unique_in_a_table() {
        for table in tables(&setting(4)) {
            let rows = table
                .cases
                .iter()
                .flat_map(|case| case.outputs.iter().map(|output| format!("{}{}", case.name, output.suffix)));
            let rows: Vec<String> = rows.collect();
            let names: HashSet<_> = rows.iter().collect();
            assert_eq!(names.len(), rows.len(), "table {}: {rows:?}", table.name);
            let targets: HashSet<_> = table.targets.iter().map(|target| &target.name).collect();
            assert_eq!(targets.len(), table.targets.len(), "table {}", table.name);
        }
    }

    #[test]
    fn baselines_rivals_and_goals_are_columns() {
        for table in tables(&setting(4)) {
            if table.skipped.is_some() {
                continue;
            }
            assert_eq!(table.targets[0].name, table.baseline, "table {}", table.name);
            let is_column = |name: &str| table.targets.iter().any(|target| target.name == name);
            assert!(table.against.is_none_or(is_column), "table {}", table.name);
            let goals =
                table.cases.iter().flat_map(|case| &case.outputs).filter_map(|output| output.goal.as_ref());
            for goal in goals {
                assert!(goal.columns.len() == 1 && is_column(&goal.columns[0]), "{}: {goal:?}", table.name);
            }
            assert!(compared(table.name).is_some_and(is_column), "table {}", table.name);
        }
    }

    #[test]
    fn jobs_go_to_twice_the_cores() {
        assert_eq!(setting(1).jobs(), [1, 2]);
        assert_eq!(setting(3).jobs(), [1, 2, 4]);
        assert_eq!(setting(8).jobs(), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn the_tables_of_the_field_are_there() {
        let names: Vec<_> = tables(&setting(2)).iter().map(|table| table.name).collect();
        let wanted = [
            "passthrough",
            "stacked",
            "uring",
            "queues",
            "smallfiles",
            "roundtrip",
            "tails",
            "takeover",
            "peers",
            "verity",
            "pool",
        ];
        assert_eq!(names, wanted);
    }
}
