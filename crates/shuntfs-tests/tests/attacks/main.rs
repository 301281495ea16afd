//! Attacks that docs/threat-model.md says are refused: those that need a mount, each on all three transports.
//!
//! An attack does what its adversary would do, with that adversary's rights, and fails where it gets anything.

mod bind_mounts;
mod file_flags;
mod hard_links;
mod identity;
mod moves;
mod names_that_protect;
mod other_spellings;
mod partial_views;
mod powerless;
mod rules_in_conditions;
mod sealed_copies;
mod sealed_names;
mod stage;
mod views;
