//! Stacked I/O and delegation (Reddy and others, 2016): who moves the bytes, and what that costs in processor time.

use super::{Setting, Table};
use crate::case::{Block, Case, Engine, Fio, Pattern};
use crate::report::Unit;
use crate::target::{Target, peers};

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let mut targets = vec![
        Target::bare(),
        ours.mount("regular", "--transport device --flow served"),
        ours.mount("spliced", "--transport device --flow splice"),
        ours.mount("relayed", "--transport uring --flow relay"),
        ours.mount("delegated", "--flow passthrough"),
    ];
    targets.extend(peers());
    Table {
        name: "stacked",
        about: "regular (the server copies), spliced (a pipe), relayed (a ring), delegated (the kernel): rates and \
                processor time",
        baseline: "bare",
        against: Some("regular"),
        targets,
        cases: cases(),
        notes: vec![
            "Processor time is that of fio and of the server, user and system, for each GiB moved; writeback by the \
             kernel's own threads is in nobody's."
                .to_owned(),
        ],
        skipped: None,
    }
}

fn cases() -> Vec<Case> {
    use Pattern::{RandRead, RandWrite, Read, Write};
    let case = |name, engine, pattern, block, unit| {
        Case::fio(name, Fio::new(engine, pattern, Block(block)), unit)
            .reach("delegated", 0.95)
            .and(", CPU", Unit::CpuSecPerGib)
    };
    vec![
        case("seq read 128k", Engine::Psync, Read, 128, Unit::MibPerSec),
        case("seq write 128k", Engine::Psync, Write, 128, Unit::MibPerSec),
        case("rand read 4k", Engine::Psync, RandRead, 4, Unit::OpsPerSec),
        case("rand write 4k", Engine::Psync, RandWrite, 4, Unit::OpsPerSec),
        case("mmap read 4k", Engine::Mmap, Read, 4, Unit::MibPerSec),
    ]
}
