//! The program `shunt`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    shunt::run(std::env::args_os().collect())
}
