//! Everything that was found out, put together.

use std::io::Write;

use super::{Finding, Verdict, access, kernel, limits, uring};
use crate::cli::DoctorArgs;
use crate::failure::Failure;
use crate::json::{self, One};
use crate::run::output_failure;

/// Everything that was found out, in the order in which a mount needs it.
#[must_use]
pub fn findings() -> Vec<Finding> {
    let mut findings = kernel::findings();
    findings.extend(access::findings());
    findings.extend(uring::findings());
    findings.extend(limits::findings());
    findings
}

/// Says what was found out.
///
/// # Errors
/// Where something is bad, so that scripts notice; and where it cannot be printed.
pub(crate) fn run(args: &DoctorArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let findings = findings();
    if args.json {
        json::print(&One("findings", &findings), out)?;
    } else {
        for finding in &findings {
            writeln!(out, "{finding}").map_err(|error| output_failure(&error))?;
        }
    }
    out.flush().map_err(|error| output_failure(&error))?;
    match findings.iter().filter(|finding| finding.verdict == Verdict::Bad).count() {
        0 => Ok(()),
        1 => Err(Failure::new("one thing keeps mounts from working; see the line marked bad")),
        count => {
            Err(Failure::new(format!("{count} things keep mounts from working; see the lines marked bad")))
        }
    }
}
