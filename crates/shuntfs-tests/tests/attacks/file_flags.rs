//! Whoever can open a file for reading tries to make it immutable, append-only or undumped.
//!
//! The kernel checks the owner for the number that 64-bit programs use, and for that of 32-bit programs where one of
//! them sends it. A 64-bit program that sends the 32-bit number is checked by nobody before the server.

use std::fs::File;
use std::path::Path;

use anyhow::{Result, ensure};
use shuntfs_testkit::raw::ioctl_int;

use crate::stage::{ATTACKER, Ground, OWNER, by, folder, on_each_transport, put};

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const SETFLAGS_32: u32 = 0x4004_6602;
/// Immutable, append-only, not dumped.
const WANTED: [i32; 3] = [0x10, 0x20, 0x40];

#[test]
fn nobody_but_the_owner_changes_the_flags_of_a_file() -> Result<()> {
    let prepare = |source: &Path, _: &Path| {
        folder(&source.join("folder"), OWNER, 0o755)?;
        put(&source.join("folder/file"), b"as it was", OWNER, 0o644)?;
        Ok(Vec::new())
    };
    on_each_transport(&Ground::default(), prepare, |stage| {
        let lower = File::open(stage.source.join("folder/file"))?;
        let flags = || -> Result<i32> {
            let mut flags = 0;
            ioctl_int(&lower, GETFLAGS, &mut flags)?;
            Ok(flags)
        };
        let before = flags()?;
        let path = stage.at("folder/file");
        for number in [SETFLAGS, SETFLAGS_32] {
            for wanted in WANTED {
                let answer = by(ATTACKER, || -> Result<bool> {
                    Ok(ioctl_int(File::open(&path)?, number, &mut (before | wanted)).is_ok())
                })?;
                ensure!(!answer, "{number:#x} with {wanted:#x} was accepted");
                ensure!(flags()? == before, "{number:#x} set {wanted:#x}");
            }
        }
        // The owner may, by the number that the kernel checks.
        by(OWNER, || -> Result<()> { Ok(ioctl_int(File::open(&path)?, SETFLAGS, &mut (before | 0x40))?) })?;
        ensure!(flags()? & 0x40 != 0, "the owner's flag did not arrive");
        Ok(())
    })
}
