//! An export that another build of this program kept until now, in this very process: trying whether this one could continue, and continuing.
//!
//! The image and the files that it stands on come as descriptors, under locks that are never free; they are not looked for by their names. FILE is
//! not looked at, because whoever touches it waits for a server.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use shuntfs_image::{Descriptors, Export, ImageFiles};
use shuntfs_keeper::{Passed, Trial};
use shuntfs_sys::{data, stat_of};

use super::args::ExportArgs;
use super::check::Place;
use super::kept::{Kept, LastWords, TOLD, Told};
use super::serve::{exported, image_options, kept_options, of_image, settings_of, source_of};
use crate::failure::Failure;
use crate::serving;
use crate::upgrade::candidate::print_suits;

/// More is nothing that we wrote.
const TOLD_MAX: u64 = 1 << 20;

/// Continues the export, or tries whether it could.
///
/// # Errors
/// Why it could not, and if there is no server any more that could continue.
pub(super) fn run(args: &ExportArgs, note: RawFd) -> Result<(), Failure> {
    if args.takeover_trial {
        return try_out(args, note);
    }
    // Before anything is opened.
    let mut passed = Passed::take(note).map_err(|error| Failure::new(error.to_string()))?;
    shuntfs_sys::threads::set_process_name(c"shunt");
    let path = passed.path().to_owned();
    let kept = match take(args, &path, passed.kept()) {
        Ok(kept) => kept,
        Err(failure) => {
            let _there_is_no_way_back = passed.returns(&failure.to_string());
            return Err(failure);
        }
    };
    let is_foreground = !args.ready_on_stdout;
    let outcome = serving::go_on(&settings_of(args), is_foreground, &kept.handed(), passed, |seat| {
        kept.start(args, seat)
    });
    let closed = kept.close();
    outcome.and(closed)
}

/// Does what can be done beside the server that serves. The locks are those of the descriptors that the keeper has, and are not given back here.
fn try_out(args: &ExportArgs, note: RawFd) -> Result<(), Failure> {
    let failed = |error: shuntfs_keeper::PassedError| Failure::new(error.to_string());
    let trial = Trial::take(note).map_err(failed)?;
    let mut descriptors = trial.all_kept().map_err(failed)?;
    let (image, _) = args.image_and_file()?;
    let (files, _) = files(args, &image, &mut descriptors)?;
    let export = Export::new(Arc::new(files.rehearsed().map_err(|error| of_image(&error))?), exported(args));
    trial.check(&export, &kept_options(args)).map_err(failed)?;
    print_suits()
}

/// Takes what was handed over. On an error, all descriptors are still open, so that the program before can continue.
fn take(args: &ExportArgs, path: &Path, descriptors: &mut Descriptors) -> Result<Kept, Failure> {
    let failed = |error: io::Error| Failure::new(format!("the export cannot be kept: {error}"));
    let (image, _) = args.image_and_file()?;
    let words = Arc::new(LastWords::new().map_err(failed)?);
    let (files, made) = files(args, &image, descriptors)?;
    let told = descriptors.remove(TOLD).ok_or_else(nothing_told)?.into();
    let place = Arc::new(Place::of(path.to_owned(), made));
    Ok(Kept { files, place, source: source_of(args, &image), words, told })
}

/// The files of the image, and the file that was made for the export.
fn files(
    args: &ExportArgs,
    image: &Path,
    descriptors: &mut Descriptors,
) -> Result<(ImageFiles, Option<(u64, u64)>), Failure> {
    let refused = |error: io::Error| Failure::new(format!("the image cannot be taken over: {error}"));
    let told = read(descriptors.get(TOLD).ok_or_else(nothing_told)?).map_err(refused)?;
    let files = ImageFiles::taken(&image_options(args, image), &told.files, descriptors);
    Ok((files.map_err(refused)?, told.made))
}

fn nothing_told() -> Failure {
    Failure::new("nothing was told of the image")
}

fn read(told: &OwnedFd) -> io::Result<Told> {
    let len = stat_of(told)?.size.min(TOLD_MAX);
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    let read = data::read_at(told, &mut bytes, 0)?;
    Ok(serde_json::from_slice(&bytes[..read])?)
}
