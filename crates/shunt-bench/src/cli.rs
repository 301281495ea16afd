//! The command line: the one definition behind parser, help, man page and completions.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use shuntfs_bench::Options;

/// Benchmarks shunt on this machine, compared with the bare folder and other installed programs.
#[derive(Debug, Parser)]
#[command(name = "shunt-bench", version, max_term_width = 110, after_help = HELP)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) also: Option<Also>,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// What is shown below the options.
const HELP: &str = "\
A first look, in a minute: shunt-bench --size smoke
One table, and a page to look at: shunt-bench --table passthrough --html bench.html
As root, it creates ext4 on a loop device over RAM and drops caches; otherwise it works in a folder and says so.
Peers on the PATH are measured, too: passthrough_hp, mergerfs, bindfs, fuse-overlayfs, qemu-storage-daemon.
Exit codes: 0 every cell has a figure, 1 one has none, 2 nothing was measured or the command line is wrong.";

/// What is for packagers and for the bench itself.
#[derive(Debug, Subcommand)]
pub(crate) enum Also {
    /// Mounts a folder, read-only, with an extra delay for each READ.
    #[command(hide = true)]
    Slow(SlowArgs),
    /// Prints the completion script for a shell.
    #[command(hide = true)]
    Completions {
        /// The shell.
        #[arg(value_enum, value_name = "SHELL")]
        shell: Shell,
    },
    /// Prints the man page.
    #[command(hide = true)]
    Man,
}

/// Arguments of `shunt-bench slow`.
#[derive(Debug, Args)]
pub(crate) struct SlowArgs {
    /// The delay in milliseconds for each READ.
    #[arg(long, value_name = "MS", default_value_t = 1)]
    pub(crate) delay_ms: u64,
    /// The folder to show.
    #[arg(value_name = "SRC")]
    pub(crate) folder: PathBuf,
    /// The mount point.
    #[arg(value_name = "MNT")]
    pub(crate) mountpoint: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound_and_hides_what_is_not_for_people() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("--table") && help.contains("Exit codes"), "{help}");
        assert!(!help.contains("delay for each READ") && !help.contains("COMMAND]"), "{help}");
    }

    #[test]
    fn options_and_commands_do_not_mix() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("shunt-bench --list").unwrap().also.is_none());
        let Ok(Cli { also: Some(Also::Slow(args)), .. }) = parse("shunt-bench slow --delay-ms 3 /a /b")
        else {
            panic!("no command `slow`");
        };
        assert_eq!((args.delay_ms, args.folder.as_path()), (3, std::path::Path::new("/a")));
        assert!(parse("shunt-bench --list slow /a /b").is_err());
        assert!(parse("shunt-bench passthrough").is_err());
    }
}
