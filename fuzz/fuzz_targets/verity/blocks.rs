//! Blocks that claim to be a file's.
#![no_main]
#![expect(dead_code, reason = "the other targets take the rest")]

#[path = "entry.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::blocks(bytes));
