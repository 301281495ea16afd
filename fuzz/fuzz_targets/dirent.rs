//! Listings of any names in any room.
#![no_main]

#[path = "entry/dirent.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::run(bytes));
