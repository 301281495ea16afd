//! What somebody might do, under any rules.
#![no_main]

#[path = "entry/guard.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::run(bytes));
