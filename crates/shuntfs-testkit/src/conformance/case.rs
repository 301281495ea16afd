//! One case, and the differences that are the kernel's.

use super::ctx::Ctx;
use super::observation::Observation;

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
