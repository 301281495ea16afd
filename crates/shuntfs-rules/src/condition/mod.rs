//! Conditions in the Common Expression Language.
//!
//! The parser and the interpreter call themselves as deep as an expression is nested, so length and depth are bounded,
//! and expressions are compiled on a thread with room (see [`crate::Rules::parse`]).

mod check;
mod compiled;
mod literal;
mod types;

pub(crate) use compiled::Condition;
