//! `shuntfs-bench`: measures `shunt` and its peers beside the bare folder.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Measures shunt beside the bare folder and beside other programs that show a folder
#[derive(Debug, Parser)]
#[command(name = "shuntfs-bench", version)]
struct Arguments {
    #[command(flatten)]
    options: shuntfs_bench::Options,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    shuntfs_bench::isolate()?;
    shuntfs_bench::run(&arguments.options)
}
