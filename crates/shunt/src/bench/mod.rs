//! `shunt bench`, and the file system without contents that it measures transports with.

mod command;
mod null;

pub(crate) use command::{HELP, run};
pub(crate) use null::run as run_null;
