//! `shunt bench`.

mod command;

pub(crate) use command::{HELP, run};
