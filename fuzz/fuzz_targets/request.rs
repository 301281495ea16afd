//! Requests of any bytes.
#![no_main]

#[path = "entry/request.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::run(bytes));
