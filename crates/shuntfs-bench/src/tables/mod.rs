//! The tables: cases and targets that belong together, each the headline of a system of this field.

mod passthrough;
mod peers;
mod pool;
mod queues;
mod roundtrip;
mod smallfiles;
mod stacked;
mod table;
mod tails;
mod takeover;
mod uring;
mod verity;

#[cfg(test)]
pub(crate) use table::tests;
pub(crate) use table::{Setting, Table, compared, tables};
