//! `cargo xtask test`: one command that sets up the machine, runs every check and every test, and says what came of it.

mod again;
mod backstop;
pub(crate) mod fuse;
mod leftovers;
pub(crate) mod libtest;
pub(crate) mod machine;
mod plan;
mod run;
mod shown;
mod tally;

pub(crate) use run::run;
