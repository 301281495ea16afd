//! The small server on the fake kernel.

use std::time::Duration;

use shuntfs::Errno;
use shuntfs_fake::{Broken, Fake, O_RDWR, Rings, Settings};

use crate::server::{Deed, Rogue, Seen};

/// What came of a server.
#[derive(Debug)]
pub(crate) struct Came {
    /// Four bytes that were read at the start of its file.
    pub(crate) read: Result<Vec<u8>, Errno>,
    /// Four that were written.
    pub(crate) written: Result<usize, Errno>,
    pub(crate) seen: Seen,
}

/// Also tells what was broken.
pub(crate) fn on_fake(deed: Deed) -> (Came, Option<Broken>) {
    // Whoever is never answered is let go soon; an honest server on a busy machine has time.
    let limit = Duration::from_secs(if matches!(deed, Deed::Nothing | Deed::NothingPinned) { 20 } else { 1 });
    let settings = Settings { rings: Some(Rings::with_pools()), limit, doubts: false, ..Settings::default() };
    let (mut fake, device) = Fake::bare(&settings).expect("a device");
    let rogue = Rogue::start(device, deed);
    fake.greet(&settings).expect("INIT is answered");
    let file = fake.open("/file", O_RDWR);
    let read = file.as_ref().map_err(|errno| *errno).and_then(|file| file.read_at(0, 4));
    let written = file.as_ref().map_err(|errno| *errno).and_then(|file| file.write_at(0, b"four"));
    drop(file);
    let broken = fake.finish().err();
    let seen = rogue.join().expect("the rogue itself does not panic");
    (Came { read, written, seen }, broken)
}
