//! `shunt rules check` and `shunt rules show`.

use std::io::Write;

use super::source::RuleSource;
use crate::cli::{RulesArgs, RulesWhat};
use crate::failure::Failure;
use crate::run::output_failure;

/// Checks or shows a file of rules.
///
/// # Errors
/// Every mistake in it, each with its place.
pub(crate) fn run(args: &RulesArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let (file, show) = match &args.what {
        RulesWhat::Check(args) => (&args.file, false),
        RulesWhat::Show(args) => (&args.file, true),
    };
    let rules = RuleSource::new(file, None)?.read()?;
    if show {
        out.write_all(rules.show().as_bytes()).map_err(|error| output_failure(&error))?;
    }
    Ok(())
}
