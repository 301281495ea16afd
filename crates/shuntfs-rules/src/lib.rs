//! Rules about files: a TOML file is read and checked, matched against what is known of a file and its caller, and
//! answers what becomes of an open, a lookup or a creation.
//!
//! Nothing here makes a system call or knows a mount: what a file is like comes through traits, and is asked for
//! only where a rule needs it.
#![forbid(unsafe_code)]

mod decision;

pub use decision::{
    Access, ByteSpan, CacheWord, Decision, ErrorNumber, FlowWord, Possible, REGEX_WITHIN_MAX, Redact,
    RegexRedaction,
};
