//! Merkle tree readahead (Biggers, 2020).

use super::Table;

pub(super) fn table() -> Table {
    Table {
        name: "verity",
        about: "cold sequential read of a 250 MB file: plain, hashed, verified without and with tree readahead",
        baseline: "bare",
        against: None,
        targets: Vec::new(),
        cases: Vec::new(),
        notes: Vec::new(),
        skipped: Some("shunt does not verify files yet"),
    }
}
