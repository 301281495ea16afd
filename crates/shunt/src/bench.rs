//! `shunt bench`: a program of its own, `shunt-bench`, which is started in place of this one.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

use crate::failure::Failure;
use crate::run::complain;

const PROGRAM: &str = "shunt-bench";

/// Arguments of `shunt bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The arguments of `shunt-bench`; `--help` shows them.
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Becomes `shunt-bench`; returns only where that fails. The exit code is then 2, as of each run that measures nothing.
pub(crate) fn run(args: &BenchArgs) -> ExitCode {
    let program = beside(std::env::current_exe().ok().as_deref());
    let error = Command::new(&program).args(&args.words).exec();
    let failure = match error.kind() {
        ErrorKind::NotFound => {
            Failure::new(format!("the bench is the program {PROGRAM}, which is not installed"))
                .hint(format!("from the source: cargo install --path crates/{PROGRAM}"))
        }
        _ => Failure::new(format!("cannot start {}: {error}", program.display())),
    };
    complain(&format!("shunt: {failure}"));
    ExitCode::from(2)
}

/// The program beside this one; else its name alone, which is looked up on the PATH.
fn beside(own: Option<&Path>) -> PathBuf {
    let beside = own.map(|own| own.with_file_name(PROGRAM)).filter(|path| path.is_file());
    beside.unwrap_or_else(|| PROGRAM.into())
}
