//! Requests of any bytes, through a device, dispatch and a file system in memory.
#![no_main]

#[path = "../../crates/shuntfs-fake/tests/common/mod.rs"]
mod common;
#[path = "entry/dispatch.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| entry::run(bytes));
