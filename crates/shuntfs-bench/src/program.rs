//! What a command line does with the options.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::calls;
use crate::docs;
use crate::html;
use crate::options::Options;
use crate::probe;
use crate::report::{FORMAT, FORMAT_MIN, Run};
use crate::runner::{list, measure};
use crate::stop::Stop;

/// Measures, prints and writes what the options ask for; a cell without a figure makes the exit code 1.
///
/// # Errors
/// When nothing could be measured, or a report cannot be written.
pub fn run(options: &Options) -> Result<ExitCode> {
    if let Some(probe) = &options.probe {
        probe::run(probe)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(timed) = &options.calls {
        calls::run(timed)?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.list {
        list(options)?;
        return Ok(ExitCode::SUCCESS);
    }
    check_outputs(options)?;
    let run = match &options.from {
        Some(path) => read_run(path)?,
        None => measure(options, &Stop::on_signals()?)?,
    };
    write(options, &run)?;
    Ok(if run.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A run of an hour shall not end at a folder that does not exist.
fn check_outputs(options: &Options) -> Result<()> {
    let outputs = [&options.json, &options.html, &options.markdown, &options.docs];
    for path in outputs.into_iter().flatten() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            bail!("there is no folder {} to write {} to", folder.display(), path.display());
        }
        if path.is_dir() {
            bail!("{} is a folder, not a file to write to", path.display());
        }
    }
    Ok(())
}

/// Reads a run that was written as JSON.
pub(crate) fn read_run(path: &Path) -> Result<Run> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut run: Run = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a run of the bench", path.display()))?;
    if !(FORMAT_MIN..=FORMAT).contains(&run.format) {
        bail!("{} is of format {}, and {FORMAT_MIN} to {FORMAT} are read here", path.display(), run.format);
    }
    run.judge();
    Ok(run)
}

fn write(options: &Options, run: &Run) -> Result<()> {
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(run).context("cannot write JSON")?;
        fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &options.html {
        fs::write(path, html::page(run)).with_context(|| path.display().to_string())?;
    }
    if let Some(page) = &options.docs {
        docs::update(page, run)?;
    }
    match &options.markdown {
        Some(path) => fs::write(path, run.to_markdown()).with_context(|| path.display().to_string())?,
        None => print!("{}", run.to_markdown()),
    }
    Ok(())
}
