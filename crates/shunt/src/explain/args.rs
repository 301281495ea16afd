//! The arguments of `shunt explain`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ExplainPlaceArgs;
use crate::cli::WhoArgs;

/// Arguments of `shunt explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// What would be done.
    #[command(subcommand)]
    pub what: ExplainWhat,
}

/// What would be done.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum ExplainWhat {
    /// Opening a file for reading.
    Read(ExplainOneArgs),
    /// Opening a file for writing.
    Write(ExplainOneArgs),
    /// Opening a file for writing at its end.
    Append(ExplainOneArgs),
    /// Truncating a file.
    Truncate(ExplainOneArgs),
    /// Running a file.
    Exec(ExplainOneArgs),
    /// Listing a folder.
    List(ExplainOneArgs),
    /// Creating a file.
    Create(ExplainOneArgs),
    /// Creating a folder.
    Mkdir(ExplainOneArgs),
    /// Removing a file or folder.
    #[command(visible_aliases = ["unlink", "rmdir"])]
    Remove(ExplainOneArgs),
    /// Changing mode, owner or times.
    #[command(visible_alias = "setattr")]
    Attributes(ExplainOneArgs),
    /// Moving a file or folder.
    Rename(ExplainTwoArgs),
    /// Linking a file.
    Link(ExplainTwoArgs),
    /// Which of several folders a mergerfs policy would pick, without a mount.
    Place(ExplainPlaceArgs),
}

/// Arguments of `shunt explain` for one name.
#[derive(Debug, Args)]
pub struct ExplainOneArgs {
    /// The path, on a mount; its folder must exist.
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub path: PathBuf,
    /// The caller.
    #[command(flatten)]
    pub who: WhoArgs,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `shunt explain` for two names.
#[derive(Debug, Args)]
pub struct ExplainTwoArgs {
    /// The existing path, on a mount.
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub path: PathBuf,
    /// The new path; its folder must exist.
    #[arg(value_name = "NEW", value_hint = clap::ValueHint::AnyPath)]
    pub to: PathBuf,
    /// The caller.
    #[command(flatten)]
    pub who: WhoArgs,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}
