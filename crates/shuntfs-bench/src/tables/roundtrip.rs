//! What one request costs by itself, beside what the kernel takes to hand a byte to another thread and back.

use super::{Setting, Table};
use crate::case::{Case, Work};
use crate::report::{Measure, Unit};
use crate::target::{Target, peers_uncached};

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let served =
        |name, transport| ours.mount(name, &format!("--transport {transport} --flow served --cache none"));
    let mut targets = vec![
        Target::pipe(),
        served("device", "device"),
        served("cloned", "cloned"),
        served("uring", "uring"),
    ];
    targets.extend(peers_uncached());
    let case = Case::new("getattr", Work::RoundTrip, Unit::Micros)
        .and(", beside the pipe", Unit::Times)
        .goal("uring", Measure::Figure, 2.5);
    Table {
        name: "roundtrip",
        about: "one GETATTR and its answer with nothing remembered, caller pinned to a CPU; a pipe ping-pong on that \
                CPU is the floor",
        baseline: "pipe",
        against: Some("device"),
        targets,
        cases: vec![case],
        notes: Vec::new(),
        skipped: None,
    }
}
