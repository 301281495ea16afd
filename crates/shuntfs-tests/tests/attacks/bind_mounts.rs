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
