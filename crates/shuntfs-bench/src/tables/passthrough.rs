//! FUSE passthrough (Balsini, 2020): 4 KiB on one large file; a kernel build is in `smallfiles`.

use super::{Setting, Table};
use crate::case::{Block, Case, Engine, Fio, Pattern};
use crate::report::Unit;
use crate::target::{Target, peers};

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let mut targets = vec![Target::bare()];
    targets.extend(Target::bind());
    targets.push(ours.mount("served", "--flow served"));
    targets.push(ours.mount("passthrough", "--flow passthrough"));
    targets.extend(peers());
    Table {
        name: "passthrough",
        about: "4 KiB at a time on one large file, through the page cache: what a delegated file costs",
        baseline: "bare",
        against: Some("served"),
        targets,
        cases: cases(),
        notes: Vec::new(),
        skipped: None,
    }
}

fn cases() -> Vec<Case> {
    use Pattern::{RandRead, RandWrite, Read, Write};
    [("read 4k", Read), ("randread 4k", RandRead), ("write 4k", Write), ("randwrite 4k", RandWrite)]
        .into_iter()
        .map(|(name, pattern)| {
            let fio = Fio::new(Engine::Psync, pattern, Block(4));
            Case::fio(name, fio, Unit::OpsPerSec).reach("passthrough", 0.95)
        })
        .collect()
}
