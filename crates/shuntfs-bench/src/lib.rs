//! Measures a mounted folder beside the bare folder below it and beside other programs that show a folder.
//!
//! A *table* is a list of *cases*; a *case* is one workload with one figure, in operations a second; a *target* is one way
//! to reach the same lower folder: bare, bind-mounted, through `shunt` in several flows, or through a peer that is run as
//! a program. [`measure`] makes a lower file system of its own, mounts every target in turn for every case of every
//! round, drops the caches, runs the workload under a time limit, and returns a [`Report`] of medians, spreads and
//! ratios to the bare folder, which prints itself as Markdown and JSON.
//!
//! The order is round, case, target: the figures that are divided by one another are taken next to one another, so that
//! a machine that slows down for a minute slows all of a row. Each row begins with another target than the one before,
//! so that none is always the one that runs after the slowest.
//!
//! The library is what `shuntfs-bench` (the program) and every later command line stand on: [`Options`] is a set of
//! command line arguments to flatten into one's own, and a further table is a further entry of [`tables`].

#![forbid(unsafe_code)]

mod case;
mod fio;
mod goal;
mod isolate;
mod legacy;
mod lower;
mod machine;
mod markdown;
mod meta;
mod mounted;
mod options;
mod process;
mod program;
pub mod report;
mod runner;
mod stop;
mod table;
mod target;
mod tree;

pub use case::{Block, Case, Engine, Fio, Meta, MetaStep, Pattern, TreeStep, Work};
pub use goal::{Goal, Recorded, Role, recorded};
pub use isolate::isolate;
pub use legacy::{CaseReport, Cell, Report, TargetReport};
pub use machine::Machine;
pub use options::{ByteSize, Options, Scale};
pub use program::run;
pub use runner::measure;
pub use stop::Stop;
pub use table::{Table, tables};
pub use target::{Mounting, Target};
