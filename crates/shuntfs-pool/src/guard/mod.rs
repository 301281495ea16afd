//! The guard: whether an operation may do what it does.
//!
//! An operation says what it does as a value of a type that implements [`change::Change`]: a name comes, goes or moves, content is
//! cut, changed or read below, attributes change, a descriptor is handed out. [`Guard::judge`] asks everybody who may refuse
//! it, always in the same order: whether the mount is read-only, the rules, the seals, and the file's own state. What it
//! returns, [`Judged`], nobody else can make; and every call that changes something below, or hands something out, is a
//! method of it ([`below`]). So an operation that was not judged does not compile, and one that was does what was judged.
//! (That no other module makes such calls by itself is checked by clippy: `clippy.toml` of this crate lists them.)
//!
//! Names that come, go and move are noted by the same methods, after the call ([`after`]). Whoever meets or makes a name
//! gets its node by [`Guard::arrive`] alone.
//!
//! A guard is for one request. It looks the rules up once, so no decision is made half by old rules and half by new ones.

mod after;
mod arrive;
mod attributes;
mod below;
mod change;
mod content;
mod held;
mod judge;
mod listing;
mod names;
mod opens;
mod settling;
mod terms;
#[cfg(test)]
mod tests;
mod untold;

pub(crate) use after::{note_now, was_moved_before, was_removed_before};
pub(crate) use arrive::Arrival;
pub(crate) use attributes::{AttributesChange, FlagsChange, PrivilegesGo, XattrChanges};
pub(crate) use below::{
    MARKED_MAX, Transfer, Untaken, ask, clone_folder, go_on_cloning, is_known, is_untouched, moved_on,
    remove_unfinished, removed_on, sync_folder,
};
pub(crate) use change::{Coming, Made, Spot};
pub(crate) use content::{Changing, ContentChanges, ContentCut, ReadBelow, Reading};
pub(crate) use judge::{Guard, Judged};
pub(crate) use listing::{Names, is_listing_common};
pub(crate) use names::{NameComes, NameGoes, NameMoves, NamelessComes, SecondName};
pub(crate) use opens::{FileOpens, FolderOpens};
pub(crate) use terms::{Limits, TERMS_BITS, Terms};
pub(crate) use untold::Untold;
