//! Which command of `shunt seal` runs.

use std::io::Write;

use super::args::{SealCommand, SealWhat};
use super::{digest, key, make, show, sign, trust, verify};
use crate::failure::Failure;

/// What stands below the flags.
pub(crate) const HELP: &str = "A first seal:  shunt seal key new release\n               \
    shunt seal ~/photos --key release\n               \
    shunt seal verify ~/photos --trust release.pub";

/// Seals, or does what else was asked with a seal.
///
/// # Errors
/// Those of the command.
pub(crate) fn run(command: &SealCommand, out: &mut dyn Write) -> Result<(), Failure> {
    match &command.what {
        None => make::run(&command.args, out),
        Some(SealWhat::Verify(args)) => verify::run(args, out),
        Some(SealWhat::Show(args)) => show::run(args, out),
        Some(SealWhat::Digest(args)) => digest::run(args, out),
        Some(SealWhat::Sign(args)) => sign::run(args, out),
        Some(SealWhat::Key(args)) => key::run(args, out),
        Some(SealWhat::Trust(args)) => trust::run(args, out),
    }
}
