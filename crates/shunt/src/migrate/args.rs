//! The arguments of `shunt migrate`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `shunt migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The program to convert from.
    #[command(subcommand)]
    pub what: MigrateWhat,
}

/// The program that something was written for.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum MigrateWhat {
    /// Converts an fstab line or a command line of mergerfs; reports each option that means something else here.
    #[command(
        override_usage = "shunt migrate mergerfs [--json] LINE\n       shunt migrate mergerfs [--json] --fstab FILE",
        after_help = "Nothing is mounted or changed. Exit codes: 0 nothing is lost, 1 something is, 2 this is no line of mergerfs.\n\
        An example: shunt migrate mergerfs '/mnt/disk*  /pool  fuse.mergerfs  minfreespace=20G  0  0'"
    )]
    Mergerfs(MigrateMergerfsArgs),
}

/// Arguments of `shunt migrate mergerfs`.
#[derive(Debug, Args)]
pub struct MigrateMergerfsArgs {
    /// An fstab line in quotes; or the arguments of a mergerfs command line: -o OPTIONS BRANCHES MNT.
    #[arg(
        value_name = "LINE",
        required_unless_present = "fstab",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub line: Vec<OsString>,
    /// Prints this file with converted mergerfs lines, each below comments that say what is lost.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "line")]
    pub fstab: Option<PathBuf>,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}
