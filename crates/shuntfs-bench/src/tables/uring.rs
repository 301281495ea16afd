//! FUSE over io_uring (Schubert, 2024): the same requests by three transports, with more and more callers.

use super::{Setting, Table};
use crate::case::{Block, Case, Engine, Fio, Meta, MetaStep, Pattern, Work};
use crate::goal::goal_of;
use crate::report::Unit;
use crate::target::{Target, peers};

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let jobs = setting.jobs();
    let mut targets = vec![
        Target::bare(),
        ours.mount("device", "--transport device --flow served"),
        ours.mount("cloned", "--transport cloned --flow served"),
        ours.mount("uring", "--transport uring --flow served"),
    ];
    targets.extend(peers().into_iter().filter(|peer| peer.name.starts_with("passthrough_hp")));
    Table {
        name: "uring",
        about: "served reads and creations by transport, with 1, 2, 4 .. jobs up to twice the cores",
        baseline: "bare",
        against: Some("device"),
        targets,
        cases: cases(if setting.smoke { &[2] } else { &jobs }),
        notes: vec![
            "Each job has a file of its own; from 3 jobs on, all together read what 2 jobs read.".to_owned(),
        ],
        skipped: None,
    }
}

fn cases(jobs: &[u32]) -> Vec<Case> {
    let read = |engine, block| Fio::new(engine, Pattern::Read, Block(block));
    let data = [
        ("paged 128k", read(Engine::Psync, 128)),
        ("paged 1m", read(Engine::Psync, 1024)),
        ("dio 1m", read(Engine::Psync, 1024).direct()),
        ("mmap 4k", read(Engine::Mmap, 4)),
    ];
    let data = data.into_iter().flat_map(|(name, fio)| {
        jobs.iter().map(move |&jobs| Case::fio(name, fio.clone().jobs(jobs), Unit::MibPerSec).of_jobs(jobs))
    });
    let create = jobs.iter().map(|&jobs| {
        let work = Work::Meta(Meta { step: MetaStep::Create, jobs });
        Case::new("create", work, Unit::OpsPerSec).of_jobs(jobs)
    });
    data.chain(create).map(with_goal).collect()
}

/// What the table `peers` aims at in the same case is aimed at here.
fn with_goal(case: Case) -> Case {
    match goal_of(&format!("seed3 {}", case.name)) {
        Some(ratio) => case.reach("uring", ratio),
        None => case,
    }
}
