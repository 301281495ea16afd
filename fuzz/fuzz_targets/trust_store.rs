//! Trust stores of any bytes.
#![no_main]

#[path = "entry/trust_store.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::run(bytes));
