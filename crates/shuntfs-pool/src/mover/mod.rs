//! The mover: it goes over the branches when somebody has it run, and moves the files that rules want elsewhere.
//!
//! A run takes one branch after the other. It searches the branch for files that are due by their path on it, which is their path in the pool if
//! they are what is seen there ([`walk`], [`due`]), and keeps those that were not used for the longest ([`oldest`]): a bounded number, so that no
//! tree is too large. Then it moves them, one after the other, by the way that a file takes whose branch is full ([`crate::merge::carry_out`]): each
//! is looked up as the kernel would, and the rules are asked again ([`mod@run`]). If more were due than it could keep, it searches once more for those
//! that come after the last one.
//!
//! It acts for nobody, so it asks no rule about who may do what: what it does changes nothing that is seen but the branch that a file is on.

mod due;
mod facts;
mod oldest;
mod run;
mod walk;

pub use facts::{MoverError, MoverFacts, MoverFile, MoverNews, MoverOutcome};
pub(crate) use run::{Mover, run};
