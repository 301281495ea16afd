//! Which bytes of a file a caller may not see: bytes in, ranges out. No I/O, and nothing of ours is imported.
//!
//! A [`Redaction`] says what must be hidden, [`Redaction::find`] where that is in a file's bytes. What cannot be
//! understood is hidden whole: a photo that is cut off, lies about its lengths, or has location where this crate does
//! not look but another reader finds it.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(clippy::single_range_in_vec_init, reason = "tests name lists of one range"))]

mod pattern;
mod photo;
mod ranges;
mod redaction;

pub use pattern::{Pattern, PatternError};
pub use ranges::Ranges;
pub use redaction::{LOOK_MAX, Look, Redaction};
