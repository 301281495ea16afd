//! `shunt bench`, and the file systems that it measures with: one without contents, and one that takes its time.

mod command;
mod null;
mod slow;

pub(crate) use command::{HELP, run};
pub(crate) use null::run as run_null;
pub(crate) use slow::run as run_slow;
