//! One list of small cases that says what a file system does.
//!
//! A case does something in a folder of its own and writes down what it saw: values, error names, fields of stat
//! without the ones that differ between any two file systems. The runner lets it do so on the bare lower file system
//! (the oracle) and on a mount that shows a sibling folder of the same lower file system, and compares observation by
//! observation. Afterwards it compares three trees: the oracle's, the mount's as seen through the mount, and the
//! mount's as seen below.
//!
//! Some differences come from the kernel and no server can undo them: a case names these as its [`Limit`]s, with the
//! value that a mount shows instead. Any other value there is still a difference.

mod cases;
mod ctx;
mod errno;
mod observation;
mod runner;

pub use cases::cases;
pub use ctx::Ctx;
pub use errno::errno_name;
pub use observation::{Observation, Seen, bytes};
pub use runner::{Report, Subject, compare, run_case};

/// The label of a [`Limit`] of a case whose remaining files differ by what the kernel makes different.
pub const TREE: &str = "tree";

/// What a case returns: what it saw, or why it could not be set up.
pub type Outcome = anyhow::Result<Observation>;

/// One case of the list.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// `family/what`.
    pub name: &'static str,
    /// Does it.
    pub run: fn(&Ctx) -> Outcome,
    /// What the kernel makes different on any FUSE mount.
    pub limits: &'static [Limit],
}

/// A difference that the kernel makes on every FUSE mount.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Label of the observation.
    pub label: &'static str,
    /// What a mount may show there besides what the bare file system shows.
    pub mounted: &'static str,
    /// Where this comes from.
    pub why: &'static str,
}

impl Case {
    /// A case that must look the same everywhere.
    pub(crate) const fn new(name: &'static str, run: fn(&Ctx) -> Outcome) -> Self {
        Self { name, run, limits: &[] }
    }

    /// A case with differences that the kernel makes.
    pub(crate) const fn limited(
        name: &'static str,
        run: fn(&Ctx) -> Outcome,
        limits: &'static [Limit],
    ) -> Self {
        Self { name, run, limits }
    }
}
