//! Who may not see all of a file: three users at the same photos, by every way to bytes that there is, at once and in any
//! order. Nobody ever sees a byte that is not theirs.
//!
//! `SHUNTFS_RACE_SECONDS` says for how long each race goes on (4).

mod calm;
mod gallery;
mod race;
