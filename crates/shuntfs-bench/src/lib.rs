//! Measures a mounted folder beside the bare folder below it and beside other programs that show a folder.
//!
//! A *table* is a list of *cases* and of *targets*; a *case* is one workload with a figure or more; a *target* is one way to
//! reach the same lower folder: bare, bind-mounted, through `shunt` in several flows, or through a peer that is run as a
//! program. [`measure`] makes a lower file system of its own, mounts every target in turn for every case of every round,
//! drops the caches, runs the workload under a time limit, and returns a [`Run`](report::Run) of medians, spreads and ratios,
//! which prints itself as Markdown, JSON and HTML.
//!
//! The order is table, round, case, target: the figures that are divided by one another are taken next to one another, so
//! that a machine that slows down for a minute slows all of a row. In each row of each round the targets are in random order,
//! drawn from a seed that the run names, so that none is always the one that runs after the slowest.
//!
//! The library is what the program `shunt-bench` stands on: [`Options`] is a set of command line arguments to flatten into one's own,
//! and [`run()`] does what they ask for. A further table is a further file of `tables`.

#![forbid(unsafe_code)]

mod behind;
mod build;
mod calls;
mod case;
mod cpu;
mod descriptors;
mod docs;
mod fio;
mod git;
mod goal;
pub mod html;
mod isolate;
mod listed;
mod lower;
mod machine;
mod markdown;
mod meta;
mod mounted;
mod nearest;
mod options;
mod probe;
mod process;
mod program;
mod progress;
pub mod report;
mod runner;
#[cfg(test)]
mod sample;
mod sealed;
mod status;
mod stop;
mod tables;
mod target;
mod tree;

pub use calls::Timed;
pub use isolate::isolate;
pub use machine::Machine;
pub use options::{Options, Size};
pub use probe::Probe;
pub use program::run;
pub use runner::measure;
pub use stop::Stop;
