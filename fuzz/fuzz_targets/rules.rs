//! Files of rules of any bytes.
#![no_main]

#[path = "entry/rules.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::run(bytes));
