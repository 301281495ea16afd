//! Several folders shown as one: what one branch costs, and what further ones add.

use super::{Setting, Table};
use crate::case::{
    Block, Call, Calls, Case, Engine, Fio, ListStep, Load, Meta, MetaStep, Pattern, TreeStep, Work,
};
use crate::report::Unit;
use crate::target::{Target, peers_of_branches};

/// Of several branches.
const OURS: &[&str] = &["device", "cloned", "uring"];

/// The one of them with the goals.
const COMPARED: &str = "uring";

/// A pool of one branch, which remembers what a pool does.
const ONE: &str = "one";

/// Folders for what is looked for, and for what is made and moved.
const MANY: usize = 10;
const FEW: usize = 3;

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    // A file system in memory has less than what a pool leaves free.
    let pool = |name: &str| {
        let options = format!("--minfreespace 0 --transport {name}");
        ours.mount_of(name, "{BRANCHES}", &options)
    };
    let mut targets = vec![Target::bare(), ours.mount_of(ONE, "{SRC}=RW", "--minfreespace 0")];
    targets.extend(OURS.iter().map(|name| pool(name)));
    targets.extend(peers_of_branches());
    Table {
        name: "pool",
        about: "several folders shown as one: a large folder and the last of ten branches, and three branches that are written to",
        baseline: "bare",
        against: Some(ONE),
        targets,
        cases: cases(),
        notes: vec![
            "`list` and `lookup` have ten branches, the other rows three; all are folders of one file system. `bare` lists its ten \
             folders one after the other, and works in one folder otherwise. `one` is a pool of one branch, which has everything."
                .to_owned(),
            "`lookup last of ten` is a name that only the last branch has, and that the mount never saw; nothing is dropped from the \
             lower file system's caches. Creations have their ratios to `one`."
                .to_owned(),
            "The names of `list` are links of few empty files.".to_owned(),
        ],
        skipped: None,
    }
}

fn cases() -> Vec<Case> {
    let list =
        |name, step| Case::new(name, Work::List(step), Unit::Seconds).on_branches(MANY).reach(COMPARED, 0.5);
    let lookup = Case::of_calls(Calls { call: Call::Lookup, callers: 1, load: Load::Idle });
    let create = |name, jobs| {
        let work = Work::Meta(Meta { step: MetaStep::Create, jobs });
        // No longer than 1.1 times what one branch takes.
        Case::new(name, work, Unit::OpsPerSec).on_branches(FEW).reach_beside(ONE, COMPARED, 0.91)
    };
    let tree = |name, step, ratio| {
        Case::new(name, Work::Tree(step), Unit::Seconds).on_branches(FEW).reach(COMPARED, ratio)
    };
    let data = |name, pattern, block| {
        let fio = Fio::new(Engine::Psync, pattern, Block(block));
        Case::fio(name, fio, Unit::MibPerSec).on_branches(FEW).reach(COMPARED, 0.95)
    };
    vec![
        list("list cold", ListStep::Cold),
        list("list warm", ListStep::Warm),
        lookup.named("lookup last of ten").on_branches(MANY),
        create("create j1", 1),
        create("create j2", 2),
        tree("unpack", TreeStep::Untar, 0.5),
        tree("walk cold", TreeStep::FindCold, 0.6),
        tree("walk warm", TreeStep::FindWarm, 0.9),
        tree("remove", TreeStep::Remove, 0.5),
        data("read 128k", Pattern::Read, 128),
        data("read 1m", Pattern::Read, 1024),
        data("write 128k", Pattern::Write, 128),
        data("write 1m", Pattern::Write, 1024),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::tables;
    use crate::tables::tests::setting;
    use crate::target::parse;

    #[test]
    fn every_row_has_several_branches() {
        assert!(cases().iter().all(|case| [FEW, MANY].contains(&case.branches)));
        let table = table(&setting(2));
        let shows: Vec<bool> = table.targets.iter().map(Target::shows_branches).collect();
        assert_eq!(shows[..5], [false, false, true, true, true]);
        assert!(shows[5..].iter().all(|shows| *shows), "peers show what ours do");
    }

    #[test]
    fn what_shows_one_folder_is_no_column() {
        let templates = ["x=a {SRC} {MNT}", "y=a {BRANCHES} {MNT}"].map(|text| parse(text).unwrap()).to_vec();
        let columns = |name: &str| -> Vec<String> {
            let all = tables(&Setting { templates: templates.clone(), ..setting(2) });
            let table = all.into_iter().find(|table| table.name == name).unwrap();
            table.targets.into_iter().map(|target| target.name).filter(|name| name.len() == 1).collect()
        };
        assert_eq!(
            (columns("pool"), columns("smallfiles")),
            (vec!["y".into()], vec!["x".into(), "y".into()])
        );
    }
}
