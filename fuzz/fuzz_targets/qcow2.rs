//! Images of any bytes.
#![no_main]

#[path = "entry/qcow2.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|image: &[u8]| entry::run(image));
