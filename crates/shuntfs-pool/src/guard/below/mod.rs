//! Every call of the pool that changes something below, cuts a file at its open, or asks below for what a READ would show:
//! methods of what was judged, with what was judged, and nowhere else.
#![expect(clippy::disallowed_methods, reason = "this is where they are allowed")]

mod attributes;
mod begun;
mod content;
mod intent;
mod marked;
mod merged;
mod moving;
mod names;
mod opens;
mod path;
mod transfer;
mod workshop;

pub(crate) use attributes::ask;
pub(crate) use begun::{is_known, is_untouched};
pub(crate) use marked::MARKED_MAX;
pub(crate) use merged::{goes_on, moved_on, removed_on};
pub(crate) use path::{clone_folder, go_on_cloning};
pub(crate) use transfer::{Transfer, Untaken, remove_unfinished, sync_folder};
