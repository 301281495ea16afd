//! `shunt migrate`: what is written for mergerfs, and what shunt makes of it.
//!
//! One table ([`OPTIONS`]) says of each option of mergerfs what it is here. The parser of `-o` asks it for words that shunt does not
//! have, `shunt migrate mergerfs` for each word of a line, and `docs/from-mergerfs.md` is checked against it.

mod args;
mod command;
mod fate;
mod line;
mod table;
#[cfg(test)]
mod tests;
mod translate;

pub use args::{MigrateArgs, MigrateMergerfsArgs, MigrateWhat};
pub(crate) use command::run;
pub use fate::{CASES_MAX, Case, Fate, Row, When, documentation};
pub(crate) use fate::{Policies, fate_of};
pub use table::OPTIONS;
