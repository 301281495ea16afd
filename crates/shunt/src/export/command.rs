//! The command: in the foreground, or by a server in the background.

use std::ffi::OsString;

use super::args::ExportArgs;
use super::{passed, serve};
use crate::failure::Failure;
use crate::serving::{Announce, launch};

/// Exports an image.
///
/// # Errors
/// Where the command line is wrong, or the export cannot be.
pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    if let Some(note) = args.takeover_note {
        return passed::run(args, note);
    }
    let announce = if args.ready_on_stdout { Announce::to_parent() } else { Announce::to_terminal() };
    let outcome = match args.image_and_file() {
        Err(failure) => Err(failure),
        Ok((_, file)) if !args.foreground => in_background(args, &file),
        Ok((image, file)) => serve::serve(args, &image, &file, announce),
    };
    if let Err(failure) = &outcome {
        announce.failed(failure);
    }
    outcome
}

fn in_background(args: &ExportArgs, file: &std::path::Path) -> Result<(), Failure> {
    let mut words: Vec<OsString> = ["export", "--foreground", "--ready-on-stdout"].map(OsString::from).into();
    let own = args.words().map_err(|error| Failure::new(format!("cannot start the server: {error}")))?;
    words.extend(own);
    launch(&words, Some(file))
}
