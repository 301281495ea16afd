//! What `shunt top` is asked for.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use super::args::TopArgs;
use super::live;
use super::once::{self, Repeat};
use crate::failure::Failure;

/// Shows what the mounts do.
///
/// # Errors
/// Where the mounts cannot be asked, or it cannot be shown.
pub(crate) fn run(args: &TopArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let paths: Vec<PathBuf> = args.mountpoint.iter().cloned().collect();
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    match (args.json, args.once || !is_terminal) {
        (true, _) => {
            let repeat = if args.once { Repeat::Once } else { Repeat::Always };
            once::run(&paths, args.interval, Some(repeat), out)
        }
        (false, true) => once::run(&paths, args.interval, None, out),
        (false, false) => live::run(paths, args.interval),
    }
}
