//! What the tests of shuntfs stand on.
//!
//! - [`lower`] makes lower file systems (tmpfs; ext4, xfs, btrfs on a loop device over RAM) that vanish with their guard;
//! - [`supervisor`] ends a mount that the test's own process serves; [`bare`] runs a test where the machine lacks
//!   what it has;
//! - [`mounted`] starts `shunt mount`, waits until it answers, and never leaves a mount or a process behind;
//! - [`conformance`] is one list of small cases, run on a bare folder and on a mount and compared observation by
//!   observation;
//! - [`tree`] compares whole folders byte by byte; [`process`] looks at a process from outside (descriptors, memory,
//!   wakeups, system calls); [`helper`] is the second process that locks and loads need;
//! - [`exercise`] works on files and names at random, against a model;
//! - [`viewer`] looks at a file by every way that there is;
//! - [`photo`] makes photos that say where they were taken;
//! - [`limit`] keeps everything inside a time limit, because a hung mount hangs whoever touches it.
//!
//! A test that cannot run here prints `SKIPPED: reason` (see [`skipped`]) and returns.

pub mod bare;
pub mod conformance;
pub mod exercise;
pub mod fusectl;
pub mod helper;
pub mod identity;
pub mod limit;
pub mod lower;
pub mod mounted;
pub mod photo;
pub mod process;
pub mod program;
pub mod raw;
pub mod seeded;
pub mod status;
pub mod supervisor;
pub mod tools;
pub mod tree;
pub mod viewer;

mod say;

pub use say::{Serial, say, serial, skipped};
