//! `shunt bench`, and a file system that takes its time for it to measure with.

mod command;
mod slow;

pub(crate) use command::{HELP, run};
pub(crate) use slow::run as run_slow;
