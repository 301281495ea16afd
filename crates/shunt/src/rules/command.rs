//! `shunt rules check` and `shunt rules show`.

use std::io::Write;

use super::source::RuleSource;
use crate::cli::{RulesArgs, RulesWhat};
use crate::failure::Failure;
use crate::run::{complain, output_failure};

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
    // A file of rules does not know its mounts: what they need beyond the file is said.
    if let Some(rule) = rules.speaks_of_seals().filter(|_| !show) {
        let (line, name) = (rule.line, &rule.name);
        complain(&format!(
            "shunt: note: line {line}: the rule `{name}` says `verify`, so a mount needs a seal (--verify=if-sealed)"
        ));
    }
    if show {
        out.write_all(rules.show().as_bytes()).map_err(|error| output_failure(&error))?;
    }
    Ok(())
}
