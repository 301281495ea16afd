//! What the slowest of many calls take, beside what else a machine does: a mean hides them, and they are what people wait for.

use super::{Setting, Table};
use crate::case::{Call, Calls, Case, Load, Quantile, Work};
use crate::report::{Goal, Measure};
use crate::target::{Target, peers_of_calls};

/// What libfuse reaches in the same run is what is aimed at.
const RIVAL: &str = "passthrough_hp-uring";

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let mut targets = vec![Target::bare()];
    for transport in ["device", "cloned", "uring"] {
        targets.extend([ours.mount_by(transport), ours.mount_never_light(transport)]);
    }
    targets.extend(peers_of_calls());
    let (mut cases, mut notes) = (cases(setting.smoke), notes());
    let rival = targets.iter().find(|target| target.name == RIVAL).map(|_| RIVAL);
    cases = cases.into_iter().map(|case| if is_quiet(&case) { case.and_cpu(rival) } else { case }).collect();
    if rival.is_some() {
        cases.iter_mut().for_each(aim);
        notes.push(format!("A row with a goal has its ratios to {RIVAL}."));
    }
    Table {
        name: "tails",
        about: "the time of single calls, median to longest, with 1 and 8 callers, on an idle machine and beside other work",
        baseline: "bare",
        against: None,
        targets,
        cases,
        notes,
        skipped: None,
    }
}

fn cases(smoke: bool) -> Vec<Case> {
    const CALLERS: [u32; 2] = [1, 8];
    if smoke {
        // Everything once.
        let all = Call::ALL.into_iter().zip(Load::ALL).zip(CALLERS.into_iter().cycle());
        return all.map(|((call, load), callers)| Case::of_calls(Calls { call, callers, load })).collect();
    }
    let callers = |call, load| CALLERS.map(|callers| Case::of_calls(Calls { call, callers, load }));
    let loads = |call| Load::ALL.into_iter().flat_map(move |load| callers(call, load));
    Call::ALL.into_iter().flat_map(loads).collect()
}

/// Whether nothing but one caller and the server is at work.
fn is_quiet(case: &Case) -> bool {
    matches!(case.work, Work::Calls(Calls { callers: 1, load: Load::Idle, .. }))
}

/// Sets what one caller's median shall reach on an idle machine, and its tail beside computing threads.
fn aim(case: &mut Case) {
    let idle = ["getattr idle j1", "lookup idle j1", "create idle j1", "read idle j1"];
    let beside = ["getattr computing j1", "create computing j1"];
    let aimed = |names: &[&str]| names.contains(&case.name.as_str());
    let quantile = match (aimed(&idle), aimed(&beside)) {
        (true, _) => Quantile::P50,
        (_, true) => Quantile::P999,
        _ => return,
    };
    for output in case.outputs.iter_mut().filter(|output| output.quantile == Some(quantile)) {
        output.beside = Some(RIVAL);
        output.goal = Some(Goal { columns: vec!["uring".to_owned()], measure: Measure::Ratio, value: 1.0 });
    }
}

fn notes() -> Vec<String> {
    [
        "`getattr` is `statx` with `AT_STATX_FORCE_SYNC`, `lookup` a name that the mount never saw, `create` an `open` of a new \
         name, `read` 4 KiB with `O_DIRECT` through the server, `open` that of a file which goes by passthrough where the program \
         has that (shunt with `--flow passthrough`, passthrough_hp without `--nopassthrough`, mergerfs from 2.41 on; bindfs has none).",
        "Beside: `idle` nothing, `computing` a thread for each CPU, `pinned` one thread on the one CPU that all callers are \
         pinned to, `four` four threads, `make` the build of a C project, elsewhere, with a job for each CPU.",
        "`j8` is eight callers, each with files and a folder of its own. The time is that of one call, without closing.",
        "`never-light` is the same server without the light class of the scheduler (`--sched-idle off`).",
        "The processor time is that of user and system of one caller without other load, closing included, and that of all threads of \
         the server meanwhile.",
        "Nothing is dropped from the lower file system's caches.",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::tests::setting;
    use std::collections::HashSet;

    fn calls(table: &Table) -> Vec<Calls> {
        let of = |case: &Case| match case.work {
            Work::Calls(calls) => calls,
            _ => panic!("{}", case.name),
        };
        table.cases.iter().map(of).collect()
    }

    #[test]
    fn every_call_is_measured_beside_every_load_with_one_caller_and_with_eight() {
        let table = table(&setting(2));
        assert_eq!(table.cases.len(), 5 * 5 * 2);
        assert!(table.cases.iter().all(|case| case.outputs.len() == if is_quiet(case) { 6 } else { 4 }));
        assert_eq!(table.cases.iter().filter(|case| is_quiet(case)).count(), 5);
        let calls = calls(&table);
        assert!(Call::ALL.iter().all(|call| calls.iter().filter(|one| one.call == *call).count() == 10));
        assert!(Load::ALL.iter().all(|load| calls.iter().filter(|one| one.load == *load).count() == 10));
        let names: Vec<&str> = table.targets.iter().map(|target| target.name.as_str()).collect();
        let ours = [
            "bare",
            "device",
            "device-never-light",
            "cloned",
            "cloned-never-light",
            "uring",
            "uring-never-light",
        ];
        assert_eq!(names[..7], ours);
    }

    #[test]
    fn the_smallest_run_has_everything_once() {
        let table = table(&Setting { smoke: true, ..setting(2) });
        let calls = calls(&table);
        assert_eq!(calls.len(), 5);
        let differ = |of: fn(&Calls) -> &'static str| calls.iter().map(of).collect::<HashSet<_>>().len();
        assert_eq!((differ(|one| one.call.as_str()), differ(|one| one.load.as_str())), (5, 5));
        assert!(calls.iter().any(|one| one.callers == 1) && calls.iter().any(|one| one.callers == 8));
    }

    #[test]
    fn six_rows_have_a_goal() {
        let mut cases = cases(false);
        cases.iter_mut().for_each(aim);
        let goals = cases.iter().flat_map(|case| &case.outputs).filter(|output| output.goal.is_some());
        assert_eq!(goals.count(), 6);
    }
}
