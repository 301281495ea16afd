//! A user reaches a protected file by another of its names: one that nobody has met, one that was made below the mount, one that
//! the kernel has forgotten, one in a folder that was moved.
//!
//! Rules go by names, and a file is judged by all that it has. Whatever name is not known is the adversary's way in.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Mode, OFlags, open};
use shuntfs_testkit::limit::wait_until;

use crate::stage::{ATTACKER, Ground, OWNER, Stage, by, folder, on_each_transport, put};

/// The attacker is to see nothing of what is in `masked`.
const RULES: &str = "[[rule]]\npath = 'masked/**'\nuid = 4002\ndeny = 'EPERM'\n";

fn prepare(source: &Path, beside: &Path) -> Result<Vec<OsString>> {
    for name in ["masked", "free", "other"] {
        folder(&source.join(name), OWNER, 0o777)?;
    }
    folder(&source.join("free/folder"), OWNER, 0o777)?;
    for name in ["masked/one", "masked/two", "masked/three", "free/folder/inside", "free/plain"] {
        put(&source.join(name), b"what is in it", OWNER, 0o644)?;
    }
    fs::hard_link(source.join("masked/two"), source.join("free/two"))?;
    fs::hard_link(source.join("free/folder/inside"), source.join("other/inside"))?;
    fs::write(beside.join("rules"), RULES)?;
    Ok(vec!["--rules".into(), beside.join("rules").into()])
}

fn read(stage: &Stage, name: &str) -> Option<ErrorKind> {
    let path = stage.at(name);
    by(ATTACKER, || fs::read(path)).err().map(|error| error.kind())
}

/// Has the kernel forget every name that nobody uses.
fn forget() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "2").context("drop_caches")
}

#[test]
fn a_link_is_judged_by_names_that_nobody_has_met_or_that_are_forgotten() -> Result<()> {
    on_each_transport(&Ground::default(), prepare, |stage| {
        let denied = Some(ErrorKind::PermissionDenied);
        ensure!(read(stage, "free/two") == denied, "its other name was never met");
        // The owner makes the second name of a file that had one when the source was searched.
        by(OWNER, || fs::hard_link(stage.at("masked/one"), stage.at("free/one")))?;
        ensure!(read(stage, "free/one") == denied);
        forget()?;
        ensure!(read(stage, "free/one") == denied, "the first name is forgotten");
        // And moves that name about.
        by(OWNER, || fs::rename(stage.at("masked/one"), stage.at("masked/renamed")))?;
        forget()?;
        ensure!(read(stage, "free/one") == denied);
        // A folder with one of two names comes under the rule.
        ensure!(read(stage, "other/inside").is_none());
        by(OWNER, || fs::rename(stage.at("free/folder"), stage.at("masked/folder")))?;
        ensure!(read(stage, "other/inside") == denied, "one of its names moved along with its folder");
        forget()?;
        ensure!(read(stage, "other/inside") == denied);
        by(OWNER, || fs::rename(stage.at("masked/folder"), stage.at("free/folder")))?;
        ensure!(read(stage, "other/inside").is_none(), "and back");
        Ok(())
    })
}

#[test]
fn a_link_that_is_made_below_the_mount_opens_no_way_in() -> Result<()> {
    for cache in ["default", "none"] {
        let prepare = |source: &Path, beside: &Path| {
            let mut args = prepare(source, beside)?;
            args.extend(["--cache".into(), cache.into()]);
            Ok(args)
        };
        on_each_transport(&Ground::default(), prepare, |stage| {
            let denied = Some(ErrorKind::PermissionDenied);
            let link = |from: &str, to: &str| fs::hard_link(stage.source.join(from), stage.source.join(to));
            link("masked/three", "free/three")?;
            for _ in 0..20 {
                ensure!(read(stage, "free/three") == denied, "--cache {cache}: by the new name");
                std::thread::sleep(Duration::from_millis(20));
            }
            // What is under no rule is readable as soon as the source was searched for its names.
            link("free/plain", "other/plain")?;
            let is_readable = || read(stage, "other/plain").is_none();
            ensure!(wait_until(Duration::from_secs(20), is_readable), "--cache {cache}: it stays refused");
            if cache == "none" {
                // Moved below, without a trace in the file: a link outside may be anywhere by now.
                fs::rename(stage.source.join("free/folder"), stage.source.join("masked/folder"))?;
                ensure!(read(stage, "other/inside") == denied, "its other name was moved below");
                fs::hard_link(stage.source.join("free/plain"), stage.beside.join("plain"))?;
                ensure!(read(stage, "free/plain") == denied, "a name outside of the source may come in");
                let why = shuntfs_testkit::mounted::shunt(&[
                    &"why",
                    &stage.at("free/plain"),
                    &"--as",
                    &ATTACKER.to_string(),
                ])?;
                ensure!(format!("{why:?}").contains("it has names that are not known"), "{why:?}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Who sees a file in part knows it by a node of their own, which was met by one of two names. When both were gone, that node
/// was judged by the first of them forever, as soon as the kernel had forgotten the other nodes of the file.
#[test]
fn a_file_that_has_lost_all_names_is_judged_by_the_last_one() -> Result<()> {
    const RULES: &str = "[[rule]]\npath = 'masked/**'\nuid = 4002\nredact = { ranges = [[0, 4]] }\n\
         [[rule]]\npath = 'hidden/**'\nuid = 4002\nhide = true\n";
    let prepare = |source: &Path, beside: &Path| {
        for name in ["masked", "hidden"] {
            folder(&source.join(name), OWNER, 0o777)?;
        }
        put(&source.join("hidden/file"), b"what is in it", OWNER, 0o644)?;
        fs::hard_link(source.join("hidden/file"), source.join("masked/file"))?;
        fs::write(beside.join("rules"), RULES)?;
        Ok(vec!["--rules".into(), beside.join("rules").into()])
    };
    on_each_transport(&Ground::default(), prepare, |stage| {
        let (name, flags) = (stage.at("masked/file"), OFlags::PATH | OFlags::CLOEXEC);
        let held = by(ATTACKER, || open(name, flags, Mode::empty()))?;
        // Somebody who has it open below keeps it alive.
        let _lower = fs::File::open(stage.source.join("hidden/file"))?;
        for name in ["masked/file", "hidden/file"] {
            by(OWNER, || fs::remove_file(stage.at(name)))?;
        }
        let again = format!("/proc/self/fd/{}", held.as_raw_fd());
        for _ in 0..20 {
            let seen = by(ATTACKER, || fs::read(&again));
            ensure!(seen.is_err(), "{:?}", seen.map(|bytes| bytes.escape_ascii().to_string()));
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    })
}
