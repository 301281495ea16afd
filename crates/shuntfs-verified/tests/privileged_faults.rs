//! A sealed file on the real kernel, and each lower call of its readers made to fail, one in each run: by rings, too, which the fake kernel
//! lacks. What is read is what was sealed, or nothing is. Needs root and /dev/fuse.
//!
//! Faults hold for the whole process: the only test of its program.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod common;

use std::fs::{self, File};
use std::io;
use std::path::Path;

use common::{Fixture, content, each, options, seal};
use shuntfs_fake::{Failed, Faults, OsError};
use shuntfs_testkit::lower::LowerKind;

const LEN: usize = 900_001;
const CALLS_MAX: u64 = 1000;
/// The kernel asks again for what its readahead did not get.
const IN_A_ROW: u64 = 4;
const EIO: i32 = 5;

/// Reads all of it, from below.
fn look(mnt: &Path) -> io::Result<()> {
    let file = File::open(mnt.join("file"))?;
    shuntfs_sys::data::forget_cached(&file)?;
    assert!(fs::read(mnt.join("file"))? == content(LEN));
    Ok(())
}

#[test]
fn whatever_fails_below_a_mount_nothing_but_what_was_sealed_is_read() {
    each(&[LowerKind::Ext4], |kind, lower| {
        let faults = Faults::alone();
        let root = lower.folder("tree").unwrap();
        fs::write(root.join("file"), content(LEN)).unwrap();
        seal(&root, &[]);
        let (mut by_ring, mut told) = (0, 0);
        for nth in 0.. {
            assert!(nth < CALLS_MAX, "the run has no end");
            // Anew, so that nothing of the tree is cached.
            let fixture = Fixture::new(&root, &options(kind));
            faults.fail(nth..nth + IN_A_ROW, OsError::IO);
            let looked = look(fixture.path());
            let Failed { at, .. } = faults.stop();
            let what = format!("{kind}, call {nth} ({at:?}) failed, and {looked:?}");
            assert!(looked.as_ref().err().is_none_or(|error| error.raw_os_error() == Some(EIO)), "{what}");
            look(fixture.path()).unwrap_or_else(|error| panic!("{what}: it does not go on: {error}"));
            assert_eq!(fixture.facts().bad_blocks, 0, "{what}: taken for a block that is wrong");
            told += usize::from(looked.is_err());
            by_ring += usize::from(at.is_some_and(|at| at.file().contains("shuntfs-runtime")));
            if at.is_none() {
                assert!(looked.is_ok(), "{what}");
                break;
            }
        }
        println!("{kind}: {by_ring} reads of rings failed; readers saw {told} failures");
        assert!(
            told > 0 && (by_ring > 0 || kind != shuntfs::TransportKind::Uring),
            "{kind}: {told}, {by_ring}"
        );
    });
}
