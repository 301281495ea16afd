//! Rules about files: a TOML file is read and checked, matched against what is known of a file and its caller, and
//! answers what happens to an open, a lookup or a creation.
//!
//! Nothing here makes a system call or knows a mount: what a file is like comes through traits, and is asked for
//! only where a rule needs it.
#![forbid(unsafe_code)]

mod asked;
mod at;
mod condition;
mod decision;
mod errno;
mod facts;
mod kinds;
mod known;
mod lint;
mod mistake;
mod model;
mod moving;
mod pattern;
mod placing;
mod read;
mod rules;
mod show;
pub mod units;

pub use at::At;
pub use decision::{
    Access, ByteSpan, CacheWord, Decision, ErrorNumber, FlowWord, Possible, REGEX_WITHIN_MAX, Redact,
    RegexRedaction, VerifyWord,
};
pub use facts::{Attributes, CallerFacts, FileFacts, HEAD_LEN, Unknown, Use};
pub use known::{Known, Nobody};
pub use mistake::{Mistake, Mistakes};
pub use model::{AccessWord, Account, Effects, MatchMode, Matchers, ModeBits, OpenWord, Rule, SizeRange};
pub use moving::{FileTimes, MoveStep, TimeWord};
pub use rules::{Failed, Listing, Rules};
