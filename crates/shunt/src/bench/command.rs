//! The command itself.

use std::process::ExitCode;

use shuntfs_bench::Options;

use crate::failure::Failure;
use crate::run::complain;

/// What is said below the options.
pub(crate) const HELP: &str = "\
A first look, in a minute: shunt bench --size smoke
One table, and a page to look at: shunt bench --table passthrough --html bench.html
As root, it creates ext4 on a loop device over RAM and drops caches; otherwise it works in a folder and says so.
Peers on the PATH are measured, too: passthrough_hp, mergerfs, bindfs, fuse-overlayfs, qemu-storage-daemon.";

/// Measures; a cell without a figure makes the exit code 1, and 2 means that nothing was measured.
pub(crate) fn run(options: &Options) -> ExitCode {
    let outcome = shuntfs_bench::isolate().and_then(|()| shuntfs_bench::run(options));
    outcome.unwrap_or_else(|error| {
        let failure = Failure::new(format!("{error:#}"));
        complain(&format!("shunt: {failure}"));
        ExitCode::from(2)
    })
}
