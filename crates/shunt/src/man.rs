//! Completions and man pages, from the definitions of [`crate::cli`].

use std::io::{self, Write};
use std::path::Path;

use clap_complete::Shell;

use crate::cli;
use crate::failure::Failure;

/// Prints the completions for a shell.
///
/// # Errors
/// Those of printing.
pub(crate) fn completions(shell: Shell, out: &mut dyn Write) -> Result<(), Failure> {
    // Into memory first, because a failed write in there is a panic.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut cli::definition(), "shunt", &mut text);
    out.write_all(&text).map_err(|error| crate::run::output_failure(&error))
}

/// Prints the man page of `shunt`, or writes it and one a command to a folder.
///
/// # Errors
/// Those of writing.
pub(crate) fn pages(folder: Option<&Path>, out: &mut dyn Write) -> Result<(), Failure> {
    let definition = cli::definition();
    let Some(folder) = folder else {
        return clap_mangen::Man::new(definition)
            .render(out)
            .map_err(|error| crate::run::output_failure(&error));
    };
    write_all(definition, folder)
        .map_err(|error| Failure::new(format!("cannot write man pages to {}: {error}", folder.display())))
}

fn write_all(definition: clap::Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(definition.disable_help_subcommand(true), folder)
}
