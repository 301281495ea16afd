//! `shuntfs-bench`: measures `shunt` and its peers beside the bare folder.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// Measures shunt beside the bare folder and beside other programs that show a folder
#[derive(Debug, Parser)]
#[command(name = "shuntfs-bench", version)]
struct Arguments {
    #[command(flatten)]
    options: shuntfs_bench::Options,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = shuntfs_bench::isolate().and_then(|()| shuntfs_bench::run(&arguments.options));
    outcome.unwrap_or_else(|error| {
        eprintln!("shuntfs-bench: {error:#}");
        ExitCode::from(2)
    })
}
