//! Reading and checking a file of rules: every mistake is found in one go.

mod document;
mod effects;
mod fields;
mod matchers;
mod moves;

pub(crate) use document::read;
pub(crate) use effects::{MOUNT, NOTHING};
