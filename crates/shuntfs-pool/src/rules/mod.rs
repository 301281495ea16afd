//! Rules in the pool: which name a node was reached by, what the rules say of it, and what follows.
//!
//! Requests name nodes, rules name paths. So where there are rules, the names that lead to each node are noted as the
//! kernel learns them ([`paths`]); a file with several is judged by all of them, and the strictest wins. A caller from
//! whom something is taken can remove or move a name only where that loosens nothing.
//!
//! Names and nodes are shared by all callers and cached by the kernel. A name that not everybody sees is therefore
//! given to the kernel for no time, so that each walk asks again; every other name is cached as without rules.

mod asking;
mod engine;
mod facts;
mod index;
mod paths;
mod report;
mod search;
mod would;

pub(crate) use asking::Asking;
pub(crate) use engine::{Engine, settle_in};
pub(crate) use facts::{OfFound, OfNew};
pub(crate) use index::{Event, State, Step, Way};
pub(crate) use paths::{DEPTH_MAX, Link, Moment};
pub use report::{Caller, DEPENDS_ON_PROGRAM, RuleControl, RuleFacts, RuleReport};
pub(crate) use would::Told;
pub use would::{Attempt, Judgement, Place, Said};
