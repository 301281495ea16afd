//! The program `shunt-bench`, which measures `shunt` beside the bare folder and other programs that show a folder.
//!
//! What it measures and how it reports is in the crate `shuntfs-bench`, which imports none of ours. Here are the command
//! line and the file system that some tables are measured on.
#![forbid(unsafe_code)]

mod cli;
mod slow;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser as _};

use crate::cli::{Also, Cli};

/// The exit code is 1 where a cell has no figure, and 2 where nothing was measured or the command line is wrong.
fn main() -> ExitCode {
    run(Cli::parse()).unwrap_or_else(|error| {
        // What a program said may be quoted, and must not move the cursor of a terminal.
        let text = format!("{error:#}").replace(char::is_control, " ");
        let _closed = writeln!(io::stderr(), "shunt-bench: {text}");
        ExitCode::from(2)
    })
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.also {
        None => {
            shuntfs_bench::isolate()?;
            return shuntfs_bench::run(&cli.options);
        }
        Some(Also::Slow(args)) => slow::run(&args)?,
        Some(Also::Completions { shell }) => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "shunt-bench", &mut text);
            io::stdout().write_all(&text).context("cannot print")?;
        }
        Some(Also::Man) => clap_mangen::Man::new(Cli::command()).render(&mut io::stdout())?,
    }
    Ok(ExitCode::SUCCESS)
}
