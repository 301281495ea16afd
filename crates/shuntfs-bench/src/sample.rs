//! A run for tests.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::report::{Cell, Column, FORMAT, Goal, Kind, Measure, Report, Row, Run, Unit};

/// Makes a settled run of one table with two rows.
pub(crate) fn run() -> Run {
    let mut run = Run {
        format: FORMAT,
        started: "2026-11-21T15:04:05Z".to_owned(),
        elapsed_s: 61,
        size: "full".to_owned(),
        machine: Machine::look(),
        versions: Vec::new(),
        command: vec!["shunt".to_owned(), "bench".to_owned()],
        lower: "a folder".to_owned(),
        rounds: 5,
        seed: Some(7),
        descriptors: Some(1024),
        more: 0,
        tables: vec![table()],
        doubts: Vec::new(),
        interrupted: false,
    };
    run.settle();
    run
}

/// Makes the rows of a case of single calls; a figure below zero stands for a call that failed.
pub(crate) fn quantiles(call: &str, case: &str, columns: &[(&str, [f64; 2])]) -> Vec<Row> {
    let of = |at: usize, quantile: &str| {
        let cell = |&(name, figures): &(&str, [f64; 2])| {
            let error = (figures[at] < 0.0).then(|| "no such call".to_owned());
            let samples = if error.is_some() { Vec::new() } else { vec![figures[at]; 5] };
            (name.to_owned(), Cell { samples, error, ..Cell::default() })
        };
        Row {
            group: call.to_owned(),
            unit: Unit::Micros,
            quantile: Some(quantile.to_owned()),
            better: Unit::Micros.better(),
            cells: columns.iter().map(cell).collect(),
            goal: None,
            ..row(&format!("{call} {case}, {quantile}"))
        }
    };
    vec![of(0, "p50"), of(1, "longest")]
}

fn table() -> Report {
    let column = |name: &str, kind| Column {
        name: name.to_owned(),
        kind,
        command: format!("{name} {{SRC}} {{MNT}}"),
        version: None,
        missing: None,
    };
    Report {
        table: "passthrough".to_owned(),
        about: "one large file".to_owned(),
        baseline: "bare".to_owned(),
        against: Some("served".to_owned()),
        columns: vec![
            column("bare", Kind::Floor),
            column("served", Kind::Ours),
            column("passthrough", Kind::Ours),
        ],
        rows: vec![row("read 4k"), row("write 4k")],
        skipped: None,
        notes: Vec::new(),
        doubts: Vec::new(),
        commands: BTreeMap::new(),
    }
}

fn row(name: &str) -> Row {
    let cell = |name: &str, samples: &[f64]| {
        (name.to_owned(), Cell { samples: samples.to_vec(), ..Cell::default() })
    };
    let goal = Goal { columns: vec!["passthrough".to_owned()], measure: Measure::Ratio, value: 0.95 };
    Row {
        name: name.to_owned(),
        group: name.to_owned(),
        jobs: None,
        unit: Unit::OpsPerSec,
        quantile: None,
        better: Unit::OpsPerSec.better(),
        cells: BTreeMap::from([
            cell("bare", &[100.0, 104.0, 90.0, 100.0, 100.0]),
            cell("served", &[70.0; 5]),
            cell("passthrough", &[99.6; 5]),
        ]),
        in_turns: false,
        beside: None,
        goal: Some(goal),
        ours: None,
        reached: None,
        peers: Vec::new(),
    }
}
