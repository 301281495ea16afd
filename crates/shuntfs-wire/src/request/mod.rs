//! Requests, typed: every length is checked, nothing is copied but the fixed structs.

mod extensions;
mod op;
mod parse;
mod split;

pub use extensions::{Extensions, Groups};
pub use op::Op;
pub use parse::{ParseError, Request};
