//! Seals and manifests of any bytes.
#![no_main]

#[path = "entry/seal.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::run(bytes));
