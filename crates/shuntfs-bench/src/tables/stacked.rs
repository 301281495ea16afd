//! Stacked I/O and delegation (Reddy and others, 2016): who moves the bytes, and what that costs in processor time.

use super::{Setting, Table};
use crate::case::{Block, Case, Engine, Fio, Pattern};
use crate::report::Unit;
use crate::target::{Target, peers};

const ZERO_COPY: &str = "zero copy";

/// What it is compared with.
const RELAYED: &str = "relayed";

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let mut targets = vec![
        Target::bare(),
        ours.mount("regular", "--transport device --flow served"),
        ours.mount("spliced", "--transport device --flow splice"),
        ours.mount(RELAYED, "--transport uring --flow relay --zero-copy off"),
    ];
    let mut notes = vec![
        "CPU is the processor time of fio and of the server, user and system, for each GiB moved, and server CPU that of the \
         server alone; writeback by the kernel's own threads is in nobody's."
            .to_owned(),
    ];
    let zero_copy = ours.zero_copy(ZERO_COPY);
    let cases = cases(zero_copy.is_ok());
    match zero_copy {
        Ok(target) => {
            targets.push(target);
            notes.push(
                "Zero copy has its goals beside `relayed`, where each byte is copied once more.".to_owned(),
            );
        }
        Err(why) => notes.push(format!("There is no column `{ZERO_COPY}`: {why}.")),
    }
    targets.push(ours.mount("delegated", "--flow passthrough"));
    targets.extend(peers());
    Table {
        name: "stacked",
        about: "regular (the server copies), spliced (a pipe), relayed (a ring), zero copy (a ring and the caller's pages), \
                delegated (the kernel): rates and processor time",
        baseline: "bare",
        against: Some("regular"),
        targets,
        cases,
        notes,
        skipped: None,
    }
}

/// Reads that zero copy is made for have a goal of its own, where it is there.
fn cases(with_zero_copy: bool) -> Vec<Case> {
    use Pattern::{RandRead, RandWrite, Read, Write};
    let case = |name, fio: Fio, unit, goal: Option<f64>| {
        let goal = goal.filter(|_| with_zero_copy);
        let case = Case::fio(name, fio, unit);
        let case = match goal {
            Some(ratio) => case.reach_beside(RELAYED, ZERO_COPY, ratio),
            None => case.reach("delegated", 0.95),
        };
        let case =
            case.and(", CPU", Unit::CpuSecPerGib).and(", server CPU", Unit::ServerSecPerGib).beside(RELAYED);
        // Where bytes are many, so is what their copy costs.
        if goal.is_some_and(|ratio| ratio > 1.0) { case.reach(ZERO_COPY, 3.0) } else { case }
    };
    let psync = |pattern, block| Fio::new(Engine::Psync, pattern, Block(block));
    vec![
        case("seq read 128k", psync(Read, 128), Unit::MibPerSec, Some(1.2)),
        case("seq write 128k", psync(Write, 128), Unit::MibPerSec, None),
        case("rand read 4k", psync(RandRead, 4), Unit::OpsPerSec, Some(1.0)),
        case("rand write 4k", psync(RandWrite, 4), Unit::OpsPerSec, None),
        case("mmap read 4k", Fio::new(Engine::Mmap, Read, Block(4)), Unit::MibPerSec, None),
        case("dio read 1m", psync(Read, 1024).direct(), Unit::MibPerSec, Some(1.8)),
        case("dio rand read 4k", psync(RandRead, 4).direct(), Unit::OpsPerSec, Some(1.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_beside_relay_are_only_where_zero_copy_is() {
        let of = |with| -> Vec<String> {
            let cases = cases(with);
            let goals = cases.iter().filter_map(|case| case.outputs[0].goal.as_ref());
            goals.flat_map(|goal| goal.columns.clone()).collect()
        };
        assert!(of(false).iter().all(|column| column == "delegated"));
        assert_eq!(of(true).iter().filter(|column| *column == ZERO_COPY).count(), 4);
    }
}
