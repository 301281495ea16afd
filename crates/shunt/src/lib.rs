//! The shunt command line: what `shunt` and the mount helper `mount.fuse.shunt` do.
//!
//! It is a library so that the program, its tests, its man pages and its completions share one definition of
//! every command and option ([`cli`], [`options`]). Everything that needs a system call goes through
//! `shuntfs-sys`.
#![forbid(unsafe_code)]

pub mod cli;
pub mod control;
pub mod doctor;
pub mod migrate;
pub mod options;
pub mod settings;

mod bar;
mod bench;
mod branches;
mod busy;
mod elsewhere;
mod explain;
mod export;
mod failure;
mod json;
mod list;
mod load;
mod log;
mod man;
mod meaning;
mod metrics;
mod mount;
mod mounts;
mod mover;
mod notify;
mod patience;
mod rules;
mod run;
mod seal;
mod serving;
mod status;
mod survey;
mod top;
mod trace;
mod umount;
mod units;
mod upgrade;
mod why;
mod wishes;

pub use failure::{Failure, Kind};
pub use run::run;
