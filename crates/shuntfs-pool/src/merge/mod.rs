//! Merges: pools of several branches.
//!
//! A file of a merge is on one branch, and a folder on any number. What is asked of a folder goes to where it is shown, and what
//! is asked of a name in it to one branch or several, which policies pick ([`crate::policy`]).

mod alone;
mod back;
mod change;
mod choose;
mod closed;
mod control;
mod copies;
mod copying;
mod errand;
mod explain;
mod file_names;
mod gone;
mod hints;
mod in_force;
mod linked;
mod listing;
mod noted;
mod numbers;
mod open;
mod options;
mod order;
mod path;
mod placing;
mod queries;
mod refusals;
mod relocate;
mod reserve;
mod settings;
mod space;
mod state;
mod switching;
#[cfg(test)]
mod tests;
mod trail;
mod walks;
mod watch;

pub use change::BranchChange;
pub(crate) use change::{change, release};
pub(crate) use choose::{Here, changed, moved, present, touches_named, visible};
pub(crate) use closed::Past;
pub(crate) use control::{
    NODE as CONTROL, check_name, is_named, is_reserved, list as list_settings, set as set_setting,
};
pub(crate) use copies::{Copies, read as read_copies};
pub(crate) use errand::{Errand, carry_out, needed};
pub(crate) use explain::explain;
pub use explain::{BranchPick, Explanation};
pub use in_force::KeptBranches;
pub(crate) use listing::{Opened, list};
pub(crate) use numbers::InFolder;
pub use numbers::InodeCalc;
pub(crate) use open::{open, root, settle_in};
pub use options::{BranchOptions, BranchWords, MergeOptions, MoveOnFull};
pub(crate) use order::{Growing, Order};
pub(crate) use path::{finish_way, for_new, for_new_everywhere, on_branch, picked_before};
pub(crate) use placing::{New, branch_called, check_kinds, check_places};
pub(crate) use queries::{PREFIX as QUERIES, names_below, query};
pub(crate) use refusals::{
    pass_on_at, pass_on_of, refuse_all, refuse_at, refuse_of, tell_full, why_read_only,
};
pub(crate) use relocate::{
    Unmoved, check_move, is_as_copied, is_note, is_temporary, note_name, relocate, temporary_name,
};
pub(crate) use reserve::{leaves_passthrough, reserve};
pub(crate) use space::statfs;
pub(crate) use state::Merge;
pub(crate) use watch::watch;
