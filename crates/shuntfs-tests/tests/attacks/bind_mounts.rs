//! A user reaches a protected file through another mount of the folder that it is in: a bind mount below the source.
//!
//! The file has one name and two paths, each on a mount of its own, and the rule is about one of them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use shuntfs_testkit::program::run;

use crate::stage::{ATTACKER, Ground, OWNER, by, folder, on_each_transport, put};

const RULES: &str = "[[rule]]\npath = 'closed/**'\nuid = 4002\ndeny = 'EPERM'\n\
     [[rule]]\npath = 'blank/**'\nuid = 4002\nredact = 'whole'\n";
const LIMIT: Duration = Duration::from_secs(10);

/// A mount below the source, gone with its guard.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        // The server holds it.
        let _ended = run(Command::new("umount").arg("-l").arg(&self.0), LIMIT);
    }
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    run(Command::new("mount").arg("--bind").arg(from).arg(to), LIMIT)?.ok("mount --bind")?;
    Ok(())
}

#[test]
fn a_file_is_judged_by_its_paths_through_every_mount() -> Result<()> {
    let prepare = |source: &Path, beside: &Path| {
        for name in ["open", "seen"] {
            folder(&source.join(name), OWNER, 0o755)?;
            folder(&source.join(name).join("inner"), OWNER, 0o755)?;
        }
        for name in ["open/file", "open/inner/file", "seen/file", "seen/inner/file", "free"] {
            put(&source.join(name), b"what is in it", OWNER, 0o644)?;
        }
        bind(&source.join("open/inner"), &source.join("closed"))?;
        bind(&source.join("seen"), &source.join("blank"))?;
        fs::write(beside.join("rules"), RULES)?;
        Ok(vec!["--rules".into(), beside.join("rules").into()])
    };
    on_each_transport(&Ground::default(), prepare, |stage| {
        let _bound = ["closed", "blank"].map(|name| Bound(stage.source.join(name)));
        let read = |name: &str| by(ATTACKER, || fs::read(stage.at(name)));
        for name in ["open/inner/file", "closed/file"] {
            let error = read(name).err().map(|error| error.kind());
            ensure!(error == Some(ErrorKind::PermissionDenied), "{name}: {error:?}");
        }
        for name in ["seen/file", "seen/inner/file", "blank/inner/file"] {
            let bytes = read(name)?;
            ensure!(bytes == [0; 13], "{name}: {}", String::from_utf8_lossy(&bytes));
        }
        for name in ["open/file", "free"] {
            ensure!(read(name)? == b"what is in it", "{name}");
        }
        Ok(())
    })
}

/// The same for names: each is judged by the paths through every mount, whichever of them is used first.
#[test]
fn a_name_is_judged_by_its_paths_through_every_mount() -> Result<()> {
    const RULES: &str = "[[rule]]\npath = 'a/secret*'\nuid = 4002\ndeny = 'EPERM'\n\
         [[rule]]\npath = 'a/red*'\nuid = 4002\nredact = 'whole'\n\
         [[rule]]\npath = 'a/deep/**'\nuid = 4002\ndeny = 'EPERM'\n\
         [[rule]]\npath = 'a/hidden*'\nuid = 4002\nhide = true\n\
         [[rule]]\npath = 'log/**'\nuid = 4002\nappend_only = true\n\
         [[rule]]\npath = 'fixed/**'\nuid = 4002\nread_only = true\n";
    let prepare = |source: &Path, beside: &Path| {
        for name in ["a", "a/deep", "log", "fixed"] {
            folder(&source.join(name), OWNER, 0o777)?;
        }
        for name in ["a/secret", "a/red", "a/deep/file", "a/hidden", "log/file", "fixed/file"] {
            put(&source.join(name), b"what is in it", OWNER, 0o666)?;
        }
        for (from, to) in [("a", "twin"), ("log", "log-twin"), ("fixed", "fixed-twin")] {
            bind(&source.join(from), &source.join(to))?;
        }
        fs::write(beside.join("rules"), RULES)?;
        Ok(vec!["--rules".into(), beside.join("rules").into()])
    };
    on_each_transport(&Ground::default(), prepare, |stage| {
        let _bound = ["twin", "log-twin", "fixed-twin"].map(|name| Bound(stage.source.join(name)));
        let rename = |from: &str, to: &str| by(ATTACKER, || fs::rename(stage.at(from), stage.at(to)));
        for (from, to) in [
            ("twin/secret", "twin/p"),
            ("twin/red", "twin/q"),
            ("twin/deep", "twin/r"),
            ("log-twin/file", "log-twin/s"),
            ("fixed-twin/file", "fixed-twin/t"),
        ] {
            ensure!(rename(from, to).is_err(), "{from} was moved");
        }
        for name in ["log-twin/file", "fixed-twin/file", "twin/hidden"] {
            ensure!(by(ATTACKER, || fs::remove_file(stage.at(name))).is_err(), "{name} was removed");
        }
        for name in ["fixed-twin/new", "twin/hidden-new", "twin/secret-new"] {
            ensure!(by(ATTACKER, || fs::write(stage.at(name), "")).is_err(), "{name} was made");
            ensure!(by(ATTACKER, || fs::create_dir(stage.at(name))).is_err(), "the folder {name} was made");
        }
        let met = by(ATTACKER, || fs::symlink_metadata(stage.at("twin/hidden"))).map(drop);
        ensure!(met.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound), "{met:?}");
        let names = by(ATTACKER, || -> Result<Vec<_>> {
            Ok(fs::read_dir(stage.at("twin"))?.flatten().map(|entry| entry.file_name()).collect())
        })?;
        ensure!(names.iter().all(|name| name != "hidden") && names.len() == 3, "{names:?}");
        Ok(())
    })
}
