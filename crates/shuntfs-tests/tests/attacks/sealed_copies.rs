//! Whoever may write below the mount changes a sealed file, and has it copied by ways that do not read it.
//!
//! `copy_file_range` may be done by the lower file system, and a copy that skips holes asks where they are: neither hashes
//! anything.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use shuntfs_testkit::mounted::shunt;

use crate::stage::{ATTACKER, Ground, OWNER, by, on_each_transport, put};

const LEN: u64 = 1 << 20;
/// What is changed below: not at the beginning, which an open may look at.
const AT: u64 = 512 << 10;

fn prepare(source: &Path, _: &Path) -> Result<Vec<OsString>> {
    for name in ["changed", "holed"] {
        put(&source.join(name), &vec![0x5a; usize::try_from(LEN)?], OWNER, 0o644)?;
    }
    fs::set_permissions(source, Permissions::from_mode(0o777))?;
    let sealed = shunt(&[&"seal", &source])?;
    ensure!(sealed.status.success(), "{sealed:?}");
    Ok(vec!["--verify=if-sealed".into()])
}

#[test]
fn a_copy_of_a_sealed_file_is_of_what_was_sealed() -> Result<()> {
    on_each_transport(&Ground::default(), prepare, |stage| {
        let below = File::options().write(true).open(stage.source.join("changed"))?;
        below.write_all_at(&[0; 4096], AT)?;
        let from = by(ATTACKER, || File::open(stage.at("changed")))?;
        let copy = stage.at("copy");
        let to = by(ATTACKER, || File::create_new(&copy))?;
        let mut offsets = (0, 0);
        let mut copied = Ok(1);
        while matches!(copied, Ok(1..)) {
            copied = copy_file_range(&from, Some(&mut offsets.0), &to, Some(&mut offsets.1), usize::MAX >> 1);
        }
        ensure!(copied == Err(rustix::io::Errno::IO), "the copy ended with {copied:?} at {offsets:?}");
        let got = fs::read(&copy)?;
        ensure!(got.iter().all(|byte| *byte == 0x5a), "what nobody sealed was copied");
        Ok(())
    })
}

#[test]
fn a_hole_that_was_made_below_is_not_skipped() -> Result<()> {
    on_each_transport(&Ground::default(), prepare, |stage| {
        let below = File::options().write(true).open(stage.source.join("holed"))?;
        fallocate(&below, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, AT, 64 << 10)?;
        let file = by(ATTACKER, || File::open(stage.at("holed")))?;
        ensure!(seek(&file, SeekFrom::Hole(0))? == LEN, "a hole is told of");
        ensure!(seek(&file, SeekFrom::Data(AT))? == AT, "data is not told of");
        ensure!(seek(&file, SeekFrom::Data(LEN)) == Err(rustix::io::Errno::NXIO), "data behind the end");
        let read = file.read_at(&mut [0; 4096], AT);
        ensure!(read.is_err(), "the hole was read");
        Ok(())
    })
}
