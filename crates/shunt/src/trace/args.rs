//! The arguments.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use globset::{Glob, GlobBuilder};
use shuntfs::Opcode;

use crate::units::duration;

/// The help text below the flags.
pub(crate) const HELP: &str = "Reads and writes in passthrough, and anything that the kernel answers from its caches, are \
    not requests and are not shown: shunt why FILE says how a file flows. Requests that began before the trace are not \
    shown either.\n\n\
    What is slow:             shunt trace MNT --slower-than 100ms\n\
    What fails, and for whom: shunt trace MNT --errors\n\
    What a program does:      shunt trace MNT --pid PID";

/// Arguments of `shunt trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The mount point.
    #[arg(value_name = "MNT", value_hint = clap::ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Shows only these operations, by their names in the kernel: LOOKUP, OPEN, READ and so on.
    #[arg(long, value_name = "OP,..", value_delimiter = ',', value_parser = operation)]
    pub op: Vec<Opcode>,
    /// Shows only requests of this process or thread.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Shows only requests for paths below MNT that match this pattern: `*` stops at a slash, `**` does not.
    /// Requests without a known path are left out.
    #[arg(long, value_name = "GLOB", value_parser = pattern)]
    pub path: Option<String>,
    /// Shows only requests that took at least this long, such as `10ms`.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub slower_than: Option<Duration>,
    /// Shows only requests that were answered with an error.
    #[arg(long)]
    pub errors: bool,
    /// Prints JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Exits after this many requests.
    #[arg(long, value_name = "N")]
    pub count: Option<NonZeroU64>,
}

fn operation(text: &str) -> Result<Opcode, String> {
    let found = Opcode::ALL.iter().find(|opcode| opcode.name().eq_ignore_ascii_case(text));
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = Opcode::ALL.iter().map(|opcode| opcode.name()).collect();
        format!("one of {}", names.join(", "))
    })
}

fn pattern(text: &str) -> Result<String, String> {
    let below = text.trim_start_matches('/');
    glob(below).map(|_| below.to_owned())
}

/// A pattern of paths below the mount.
pub(super) fn glob(text: &str) -> Result<Glob, String> {
    let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
    glob.map_err(|error| format!("no pattern: {}", error.kind()))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn operations_have_the_kernels_names() {
        assert_eq!(operation("read"), Ok(Opcode::Read));
        assert_eq!(operation("COPY_FILE_RANGE"), Ok(Opcode::CopyFileRange));
        assert!(operation("reed").is_err_and(|why| why.contains("READ")));
    }

    #[test]
    fn patterns_are_below_the_mount() {
        assert_eq!(pattern("/a/*.txt"), Ok("a/*.txt".to_owned()));
        assert!(pattern("a[").is_err());
    }
}
