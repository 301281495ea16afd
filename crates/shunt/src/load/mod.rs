//! Which files and which processes a mount works for, for `shunt top`.
//!
//! Servers do not count by file and process: that would cost each request something. While somebody looks, and only then, a trace
//! counts ([`tally`]) in the thread of each queue, with nothing to send and nobody to wake for a request. Where requests are many, only
//! a part of them is examined, and each stands for as many.

mod document;
mod serve;
mod table;
mod tally;

pub use document::{FileLoad, Load, LoadCounts, ProcessLoad};
pub(crate) use serve::stream;
pub(crate) use tally::Tally;
