//! Rules in the pool: which name a node was reached by, what the rules say of it, and what follows.
//!
//! Requests name nodes, rules name paths. So where there are rules, the names that lead to each node are noted as the
//! kernel learns them ([`paths`]); a file with several is judged by all of them, and the strictest wins. A caller from
//! whom something is taken can take away or move a name only where that loosens nothing.
//!
//! Names and nodes are shared by all callers and cached by the kernel. A name that not everybody sees is therefore
//! given to the kernel for no time, so that each walk asks again; every other name is cached as without rules.

mod engine;
mod facts;
mod index;
mod names;
mod opens;
mod paths;
mod report;

pub(crate) use engine::{Engine, settle_in};
pub(crate) use names::{
    End, Listed, Moving, New, check_make, check_remove, check_rename, check_second_name, is_listing_common,
    listed, note, note_nameless, note_removed, note_second, refuse_hidden, see, see_new, varies,
};
pub(crate) use opens::{
    Course, check_attributes, check_folder, check_setattr, course_of_new, course_of_open, use_of,
};
pub use report::{Caller, RuleControl, RuleFacts, RuleReport};
