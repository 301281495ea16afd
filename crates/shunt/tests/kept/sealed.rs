//! A mount of a sealed folder, and what is done to it.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use shuntfs_sys::data::forget_cached;

use crate::common::{Ran, Room, SHUNT, eventually, run, shunt};
use crate::kept::{Kept, status};

pub(crate) const EIO: i32 = 5;
pub(crate) const BLOCK: usize = 4096;
/// So long that its tree has two levels.
pub(crate) const LARGE: usize = 300 * BLOCK + 77;

/// The block of `large` with this number, before it was changed.
pub(crate) fn block(number: usize) -> Vec<u8> {
    (0..BLOCK).map(|at| u8::try_from((number * 31 + at) % 251).expect("small")).collect()
}

pub(crate) fn large() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=LARGE / BLOCK).flat_map(block).collect();
    bytes.truncate(LARGE);
    bytes
}

/// A mount of a folder that the key `one` has sealed, beside a key that nobody trusts.
pub(crate) struct Sealed(pub(crate) Kept);

impl Sealed {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let room = Room::new();
        words(&room, &["key", "new", "one"]).ok();
        words(&room, &["key", "new", "two"]).ok();
        fs::write(room.src().join("large"), large()).expect("writes");
        fs::create_dir(room.src().join("folder")).expect("makes");
        fs::write(room.src().join("folder/inner"), "inner\n").expect("writes");
        std::os::unix::fs::symlink("large", room.src().join("link")).expect("makes");
        words(&room, &["src", "--key", "one"]).ok();
        // Not sealed, where the folder is shown.
        fs::write(room.src().join("free"), "free\n").expect("writes");
        let trust = room.path().join("one.pub").to_str().expect("plain").to_owned();
        Self(Kept::in_room(room, &[&["--trust", &trust], flags].concat()))
    }

    pub(crate) fn room(&self) -> &Room {
        &self.0.room
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.room().mnt().join(name)
    }

    pub(crate) fn below(&self, name: &str) -> PathBuf {
        self.room().src().join(name)
    }

    pub(crate) fn shell(&self, script: &str) {
        run(Command::new("sh").args(["-ec", script]).current_dir(self.room().path())).ok();
    }

    pub(crate) fn verify(&self) -> Value {
        status(self.room())["verify"].take()
    }

    /// How many servers were replaced; 0 while none can be asked.
    pub(crate) fn replaced(&self) -> u64 {
        let ran = shunt(["status".as_ref(), "--json".as_ref(), self.room().mnt().as_os_str()]);
        let status: Value = serde_json::from_str(&ran.out).unwrap_or_default();
        status["takeover"]["replaced"].as_u64().unwrap_or(0)
    }

    /// Kills the server, and waits for the next one: a SIGHUP that comes before the keeper has noticed is lost with the dead server.
    pub(crate) fn kill(&self) {
        let before = self.replaced();
        self.0.kill();
        fs::metadata(self.room().mnt()).expect("the next one answers");
        eventually("another one serves", || self.replaced() > before);
    }

    /// The bytes of a name, or the error of opening or reading it; not those that the kernel keeps.
    pub(crate) fn read(&self, name: &str) -> Result<Vec<u8>, i32> {
        let read = File::open(self.at(name)).and_then(|file| {
            forget_cached(&file)?;
            let mut bytes = Vec::new();
            (&file).read_to_end(&mut bytes).map(|_| bytes)
        });
        read.map_err(|error| error.raw_os_error().expect("of the kernel"))
    }

    pub(crate) fn ends(self) {
        // A process that another test starts has this one's open files for a moment, until it executes its program.
        eventually("is unmounted", || self.room().umount(&[]).code == Some(0));
        self.0.is_gone();
    }
}

pub(crate) fn words(room: &Room, words: &[&str]) -> Ran {
    run(Command::new(SHUNT).arg("seal").args(words).current_dir(room.path()))
}

pub(crate) fn errno<T>(outcome: io::Result<T>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

/// Changes one byte below, without a change of length or inode.
pub(crate) fn tamper(path: &Path, offset: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("is there");
    file.write_all_at(&[byte[0] ^ 1], offset).expect("is ours");
}
