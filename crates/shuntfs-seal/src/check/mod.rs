//! Offline verification: a folder against its manifest ([`tree`]), a file's data against its tree ([`data`]).

mod data;
mod finding;
mod tree;

pub use finding::{Attribute, Difference, Fault, Finding};
pub use tree::{Checking, Verified, verify_file, verify_tree};
