//! An export that survives its servers: what its keeper has of it, how the last of them tells how it ended, and what another program is told of
//! it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shuntfs::FileType;
use shuntfs::takeover::KeptMount;
use shuntfs_image::{HandedFiles, ImageFiles};
use shuntfs_keeper::Seat;
use shuntfs_sys::memory;

use super::args::ExportArgs;
use super::check::Place;
use super::serve::{Exporting, image_options, mount_options, of_image, source_of, started};
use crate::failure::Failure;
use crate::json;
use crate::mount::check::{DEVICE, RING};
use crate::mount::session::of_mount;
use crate::mounts::shown;
use crate::serving::{self, Announce, KeptPlace, Started};
use crate::settings::{Settings, TakeoverChoice, TransportChoice};

/// What the keeper has, and each of its servers.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) files: ImageFiles,
    pub(super) place: Arc<Place>,
    pub(super) source: PathBuf,
    pub(super) words: Arc<LastWords>,
    /// What another program is told of the export, as JSON in memory.
    pub(super) told: File,
}

/// What is told of an export besides its descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) files: HandedFiles,
    /// The file that was made for it, by device and inode number.
    pub(super) made: Option<(u64, u64)>,
}

/// What that is called among what is handed over.
pub(super) const TOLD: &str = "export";

/// Keeps an export, whatever becomes of its servers.
///
/// # Errors
/// As [`super::serve::serve`], and where there is no server any more that could go on.
pub(super) fn keep(
    args: &ExportArgs,
    (image, file): (&Path, &Path),
    settings: &Settings,
    announce: Announce,
) -> Result<(), Failure> {
    refuse_transport(args)?;
    let failed = |error: io::Error| Failure::new(format!("the export cannot be kept: {error}"));
    let words = LastWords::new().map_err(failed)?;
    // The image first: FILE may be the image itself, and is hidden once it is mounted over.
    let files = ImageFiles::open(&image_options(args, image)).map_err(|error| of_image(&error))?;
    let place = Arc::new(Place::find(file)?);
    let told = tell(&Told { files: files.handed().map_err(failed)?, made: place.made() }).map_err(failed)?;
    let kept = Kept { files, place, source: source_of(args, image), words: Arc::new(words), told };
    let outcome = serving::keep(
        settings,
        announce,
        &kept.handed(),
        || {
            let options = mount_options(args, &kept.source, &kept.place.path);
            KeptMount::mount(&kept.place.path, &options, FileType::Regular).map_err(|error| of_mount(&error))
        },
        |seat| kept.start(args, seat),
    );
    let closed = kept.close();
    outcome.and(closed)
}

/// What no other server could go on with, and what could be gone on with after a crash, too.
fn refuse_transport(args: &ExportArgs) -> Result<(), Failure> {
    let (asked, what, instead) = match (args.takeover, args.transport) {
        (TakeoverChoice::Crash, TransportChoice::Uring) => {
            ("crash", RING, "--transport cloned, or device, or --takeover upgrade")
        }
        (TakeoverChoice::Upgrade, TransportChoice::Device | TransportChoice::Cloned) => {
            ("upgrade", DEVICE, "--takeover crash, which includes upgrades")
        }
        _ => return Ok(()),
    };
    let failure = Failure::usage(format!("--takeover {asked} is not possible with {what}"));
    Err(failure.hint(format!("{instead}, or leave out --takeover")))
}

impl Kept {
    /// How it is called, and what another program needs.
    pub(super) fn handed(&self) -> KeptPlace {
        let mut kept = self.files.descriptors();
        kept.push((TOLD.to_owned(), self.told.as_raw_fd()));
        KeptPlace { source: json::text(&self.source), readahead: None, kept, branches: None, seal: None }
    }

    /// Starts a server.
    ///
    /// # Errors
    /// As [`Exporting::take_seat`].
    pub(super) fn start(&self, args: &ExportArgs, seat: &Seat<'_>) -> Result<Started<Exporting>, Failure> {
        Ok(started(Exporting::take_seat(args, self, seat)?, &self.source, &self.place))
    }

    /// The end, where the last server did not come to it.
    pub(super) fn close(&self) -> Result<(), Failure> {
        let (is_removed, outcome) = self.words.hear().unwrap_or_else(|| {
            let outcome = self.files.close();
            if let Err(error) = &outcome {
                tracing::error!("what was written last to {} is lost: {error}", shown(&self.source));
            }
            (false, outcome.map_err(|error| error.to_string()))
        });
        if is_removed {
            self.place.is_removed();
        } else {
            self.place.remove();
        }
        let lost =
            |error: String| format!("what was written last to {} is lost: {error}", shown(&self.source));
        outcome.map_err(|error| Failure::new(lost(error)))
    }
}

fn tell(told: &Told) -> io::Result<File> {
    let file = memory::file_in_memory(c"shunt-export")?;
    file.write_all_at(&serde_json::to_vec(told)?, 0)?;
    Ok(file)
}

/// How the last act of a server went, for its keeper: one datagram, so that a server that is killed in the middle has said nothing.
#[derive(Debug)]
pub(super) struct LastWords {
    says: UnixDatagram,
    hears: UnixDatagram,
}

const REMOVED: u8 = b'-';
const STAYS: u8 = b'+';
const LEN_MAX: usize = 4096;

impl LastWords {
    pub(super) fn new() -> io::Result<Self> {
        let (says, hears) = UnixDatagram::pair()?;
        hears.set_nonblocking(true)?;
        Ok(Self { says, hears })
    }

    /// Says whether FILE was removed, and how the image was closed.
    pub(super) fn say(&self, is_removed: bool, outcome: &io::Result<()>) {
        let mut words = vec![if is_removed { REMOVED } else { STAYS }];
        words.extend(outcome.as_ref().err().map(ToString::to_string).unwrap_or_default().bytes());
        words.truncate(LEN_MAX);
        if let Err(error) = self.says.send(&words) {
            tracing::warn!("the keeper is not told of the end: {error}");
        }
    }

    fn hear(&self) -> Option<(bool, Result<(), String>)> {
        let mut room = [0; LEN_MAX];
        let len = self.hears.recv(&mut room).ok()?;
        let (first, rest) = room.get(..len)?.split_first()?;
        let error = String::from_utf8_lossy(rest).into_owned();
        Some((*first == REMOVED, if error.is_empty() { Ok(()) } else { Err(error) }))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn last_words_are_heard_once() {
        let words = LastWords::new().expect("a pair");
        assert_eq!(words.hear(), None);
        words.say(true, &Ok(()));
        assert_eq!(words.hear(), Some((true, Ok(()))));
        words.say(false, &Err(io::Error::other("no space")));
        assert_eq!(words.hear(), Some((false, Err("no space".to_owned()))));
        assert_eq!(words.hear(), None);
    }
}
