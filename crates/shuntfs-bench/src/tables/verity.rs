//! Merkle tree readahead (Biggers, 2020): what it costs to check every block of a file as it is read.

use super::{Setting, Table};
use crate::case::{Block, Case, Engine, Fio, Pattern, Sealed, Work};
use crate::report::{Measure, Unit};
use crate::target::Target;

pub(super) fn table(setting: &Setting) -> Table {
    let ours = &setting.ours;
    let mut targets = vec![Target::bare()];
    let hashing = Target::hashing();
    let is_hashed = hashing.is_some();
    targets.extend(hashing);
    targets.extend([
        ours.mount("served", "--transport device --flow served"),
        ours.mount("served-uring", "--transport uring --flow served"),
        ours.mount("no-ahead", "--transport device --verify required --tree-readahead off"),
        ours.mount("verified", "--transport device --verify required"),
        ours.mount("no-ahead-uring", "--transport uring --verify required --tree-readahead off"),
        ours.mount("verified-uring", "--transport uring --verify required"),
    ]);
    Table {
        name: "verity",
        about: "cold sequential read of a 250 MB file: plain, hashed, served, and verified without and with tree readahead",
        baseline: "bare",
        against: Some("served"),
        targets,
        cases: cases(ours.program(), is_hashed),
        notes: vec![
            "A row that is `of` another column has its ratios to that column; its figures are those of the row above."
                .to_owned(),
            "Where it says `1 ms below`, all columns stand on a file system that takes 1 ms more for each READ.".to_owned(),
        ],
        skipped: None,
    }
}

fn cases(shunt: &str, is_hashed: bool) -> Vec<Case> {
    let case = |name, delay_ms| {
        let fio = Fio::new(Engine::Psync, Pattern::Read, Block(128));
        let work = Work::Sealed(Sealed { fio, shunt: shunt.to_owned(), delay_ms });
        Case::new(name, work, Unit::MibPerSec)
    };
    let mut cold = case("cold read", 0)
        .and(", of served", Unit::MibPerSec)
        .reach_beside("served", "verified", 0.8)
        .and(", of served-uring", Unit::MibPerSec)
        .reach_beside("served-uring", "verified-uring", 0.8);
    if is_hashed {
        cold = cold.and(", of openssl", Unit::MibPerSec).reach_beside("openssl", "verified", 1.2);
    }
    let cold = cold.and(", tree reads", Unit::TreeReads).goal("verified", Measure::Figure, 1.0);
    let slow = case("1 ms below", 1)
        .and(", of no-ahead", Unit::MibPerSec)
        .reach_beside("no-ahead", "verified", 1.15)
        .and(", of no-ahead-uring", Unit::MibPerSec)
        .reach_beside("no-ahead-uring", "verified-uring", 1.15);
    vec![cold, slow]
}
