//! `cargo xtask bench`: `shunt-bench` of the release build, which measures the `shunt` beside it.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result};

use crate::workspace::{Workspace, cargo};

/// Builds and runs the bench with the rest of the arguments, with FUSE over io_uring turned on meanwhile.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode> {
    // One after the other: together, each would get the features that the other asks of their dependencies.
    for program in ["shunt", "shunt-bench"] {
        let mut build = cargo();
        build.args(["build", "--release", "-p", program]).current_dir(&workspace.root);
        if !build.status().context("cannot start cargo")?.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    // A Ctrl-C is for the bench, which takes everything down; we stay to put the switch back.
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&signalled)).context("cannot handle signals")?;
    }
    let _switched = Uring::turn_on();
    let mut bench = std::process::Command::new(workspace.target.join("release/shunt-bench"));
    let status = bench.args(arguments).status().context("cannot start the bench")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The switch of FUSE over io_uring, put back to what it was. `shunt-bench` itself leaves it alone.
struct Uring;

impl Uring {
    const PATH: &'static str = "/sys/module/fuse/parameters/enable_uring";

    fn turn_on() -> Option<Self> {
        if fs::read_to_string(Self::PATH).ok()?.trim() != "N" {
            return None;
        }
        match fs::write(Self::PATH, "Y") {
            Ok(()) => {
                eprintln!("FUSE over io_uring is off on this machine: on for this run ({})", Self::PATH);
                Some(Self)
            }
            Err(error) => {
                eprintln!("FUSE over io_uring is off ({}) and stays off: {error}", Self::PATH);
                None
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if let Err(error) = fs::write(Self::PATH, "N") {
            eprintln!("xtask: {} stays Y: {error}", Self::PATH);
        }
    }
}
