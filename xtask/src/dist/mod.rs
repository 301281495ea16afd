//! `cargo xtask dist`: the packages that people install, and the test that installs them.

mod packages;
mod program;
mod run;
mod stage;

pub(crate) use run::run;
