//! Multi-queue export of one file (Czenczek, 2025): more queues, more callers, and what the transport costs by itself.

use super::{Setting, Table};
use crate::case::{Block, Case, Engine, Fio, Pattern};
use crate::report::Unit;
use crate::target::{Target, storage_daemons};

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let counts: &[u32] = if setting.smoke { &[1, 2] } else { &[1, 2, 4] };
    let options = |queues: u32| format!("--transport cloned --queues {queues}");
    let mut targets = vec![Target::bare()];
    for &queues in counts {
        targets.push(ours.export(&format!("file q{queues}"), &(options(queues) + " --flow served")));
    }
    // The kernel moves what it writes only where the disk may grow and its format was said: see docs/export.md.
    targets.push(ours.export("file passthrough", "--growable --format raw"));
    for &queues in counts {
        targets.push(ours.null(&format!("null q{queues}"), &options(queues)));
    }
    targets.push(ours.qcow2("qcow2 q2", &options(2)));
    targets.extend(storage_daemons());
    Table {
        name: "queues",
        about: "4 KiB direct I/O on an exported disk with 1, 2, 4 queues: raw, qcow2, and one without contents (null)",
        baseline: "bare",
        against: Some("file q1"),
        targets,
        cases: cases(setting.smoke),
        notes: vec![
            "`file` is a raw image, the large file, by cloned queues that serve each request; `qcow2` is a copy of it with all \
             clusters allocated, to be compared with `file`."
                .to_owned(),
        ],
        skipped: None,
    }
}

fn cases(smoke: bool) -> Vec<Case> {
    use Pattern::{RandRead, RandWrite, Read, Write};
    let aio = Engine::Libaio { depth: 32 };
    let kinds = [
        ("read aio32", aio, Read),
        ("randread aio32", aio, RandRead),
        ("write aio32", aio, Write),
        ("randwrite aio32", aio, RandWrite),
        ("read sync", Engine::Psync, Read),
        ("randread sync", Engine::Psync, RandRead),
        ("write sync", Engine::Psync, Write),
        ("randwrite sync", Engine::Psync, RandWrite),
    ];
    let case = |&(name, engine, pattern): &(&str, Engine, Pattern), jobs: u32| {
        let fio = Fio::new(engine, pattern, Block(4)).direct().shared().jobs(jobs);
        Case::fio(name, fio, Unit::OpsPerSec).of_jobs(jobs)
    };
    if smoke {
        return vec![case(&kinds[1], 4), case(&kinds[6], 1)];
    }
    kinds.iter().flat_map(|kind| [case(kind, 1), case(kind, 4)]).collect()
}
