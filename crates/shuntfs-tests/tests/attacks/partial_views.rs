//! A user who sees a file in part cuts it, by a descriptor or a name from a time when it saw all of it.
//!
//! A descriptor that was opened with `O_PATH` holds a node and no right. What it is used for is judged when it is used.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions, hard_link, read};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::{Mode, OFlags, open};
use shuntfs_testkit::raw::truncate;

use crate::stage::{ATTACKER, Ground, OWNER, by, folder, on_each_transport, put};

const TEXT: &[u8] = b"what the owner wrote";

const RULES: &str = "[[rule]]\npath = 'masked/**'\nuid = 4002\nredact = { ranges = [[0, 4]] }\n";

fn prepare(source: &Path, beside: &Path) -> Result<Vec<OsString>> {
    folder(&source.join("masked"), OWNER, 0o777)?;
    put(&source.join("file"), TEXT, OWNER, 0o666)?;
    fs::set_permissions(source, Permissions::from_mode(0o777))?;
    let file = beside.join("rules.toml");
    put(&file, RULES.as_bytes(), 0, 0o644)?;
    Ok(vec!["--rules".into(), file.into()])
}

#[test]
fn a_file_that_is_seen_in_part_is_not_cut() -> Result<()> {
    on_each_transport(&Ground::default(), prepare, |stage| {
        let (path, masked) = (stage.at("file"), stage.at("masked/file"));
        let held = by(ATTACKER, || open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))?;
        by(OWNER, || hard_link(&path, &masked))?;
        let by_descriptor = format!("/proc/self/fd/{}", held.as_raw_fd());
        for name in [Path::new(&by_descriptor), &path, &masked] {
            let cut = by(ATTACKER, || open(name, OFlags::WRONLY | OFlags::TRUNC, Mode::empty()));
            ensure!(cut.is_err(), "{} was opened and cut", name.display());
            let cut = by(ATTACKER, || truncate(name, 0));
            ensure!(cut.is_err(), "{} was cut", name.display());
            ensure!(read(stage.source.join("file"))? == TEXT, "{} was cut", name.display());
            let write = by(ATTACKER, || OpenOptions::new().write(true).open(name));
            ensure!(write.is_err(), "{} was opened for writing", name.display());
        }
        by(OWNER, || OpenOptions::new().write(true).open(&masked)?.set_len(4))?;
        ensure!(read(stage.source.join("file"))? == TEXT[..4], "the owner may");
        Ok(())
    })
}
