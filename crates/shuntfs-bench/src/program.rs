//! What a command line does with the options.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::legacy::Report;
use crate::options::Options;
use crate::runner::measure;
use crate::stop::Stop;
use crate::table::tables;
use crate::target::all;

/// Measures, prints and writes what the options ask for; a cell without a figure makes the exit code 1.
///
/// # Errors
/// When nothing could be measured, or a report cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.list {
        list(options)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = Stop::on_signals()?;
    let report = measure(options, &stop)?;
    write(options, &report)?;
    Ok(if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn list(options: &Options) -> Result<()> {
    for table in tables() {
        println!("table {}: {}", table.name, table.about);
        for case in &table.cases {
            println!("  {}", case.name);
        }
    }
    println!("targets on this machine:");
    for target in all(options)? {
        println!("  {}: {}", target.name, target.about());
    }
    Ok(())
}

fn write(options: &Options, report: &Report) -> Result<()> {
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(report).context("cannot write JSON")?;
        fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    match &options.markdown {
        Some(path) => fs::write(path, report.to_markdown()).with_context(|| path.display().to_string())?,
        None => print!("{}", report.to_markdown()),
    }
    Ok(())
}
