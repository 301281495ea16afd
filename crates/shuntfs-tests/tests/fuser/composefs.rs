//! A published program that uses fuser 0.18, as it is published: `cfsctl`, which shows images of composefs without root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shuntfs_testkit::mounted::Transport;
use shuntfs_testkit::program::run;
use shuntfs_testkit::{say, serial, skipped};

use crate::build::{Built, Package, Target};
use crate::crates::with_ours;
use crate::server::{How, Server};

const MANIFEST: &str = r#"version = "0.0.0"
edition = "2024"
publish = false
[workspace]
[features]
default = ["fuse"]
fuse = []
containers-storage = []
[dependencies]
anyhow = "1"
clap = { version = "4.5", features = ["derive"] }
clap_complete = { version = "4.5", features = ["unstable-dynamic"] }
composefs-ctl = { version = "=0.9.4", default-features = false, features = ["fuse", "pre-6.15", "pre-6.16"] }
env_logger = { version = "0.11", default-features = false }
tokio = { version = "1", features = ["rt-multi-thread"] }
[patch.crates-io]
fuser = { path = "../fuser-0.18.0" }
[profile.dev]
debug = 0
"#;

const NOBODY: u32 = 65_534;
const LIMIT: Duration = Duration::from_secs(60);

fn cfsctl() -> Result<Option<Built>> {
    let source = Some("composefs-ctl");
    let target = Target { name: "cfsctl".into(), kind: "bin", source, path: "src/main.rs".into() };
    with_ours("0.18.0", &Package { name: "composefs", manifest: MANIFEST, targets: vec![target], files: &[] })
}

/// Files that lie in the image, files that lie beside it, and a link.
fn fill(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder.join("a/b"))?;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    fs::write(folder.join("a/b/big"), bytes)?;
    for number in 0..300 {
        fs::write(folder.join(format!("a/file{number}")), number.to_string())?;
    }
    std::os::unix::fs::symlink("b/big", folder.join("a/link")).context("a link")
}

/// As root the program would lay an overlay over what it serves, which then gets no READ.
#[test]
fn an_image_of_composefs_is_shown_to_an_ordinary_user() -> Result<()> {
    let Some(built) = cfsctl()? else { return Ok(()) };
    if fs::metadata("/usr/bin/fusermount3").map_or(true, |found| found.permissions().mode() & 0o4000 == 0) {
        skipped("fusermount3 is not there, or not set-uid");
        return Ok(());
    }
    let _serial = serial();
    // The folders of the built one may be closed to others.
    let room = tempfile::tempdir()?;
    fs::set_permissions(room.path(), Permissions::from_mode(0o755))?;
    let [program, source, own] = ["cfsctl", "source", "own"].map(|name| room.path().join(name));
    fs::copy(built.program("bin", "cfsctl")?, &program)?;
    fill(&source)?;
    fs::create_dir(&own)?;
    chown(&own, Some(NOBODY), Some(NOBODY))?;
    let words = |more: &[&str]| {
        let own = own.join("repository").display().to_string();
        ["--repo", &own].iter().chain(more).map(ToString::to_string).collect::<Vec<_>>()
    };
    let folder = source.display().to_string();
    for steps in
        [&["init", "--insecure"][..], &["create-image", "--no-propagate-usr-to-root", &folder, "tree"]]
    {
        run(Command::new(&program).args(words(steps)).uid(NOBODY).gid(NOBODY), LIMIT)?.ok(steps[0])?;
    }
    for transport in Transport::ALL.into_iter().filter(|transport| transport.is_available()) {
        let how = How { user: Some(NOBODY), ..How::default() };
        let mount = |point: &Path| {
            let point = point.display().to_string();
            words(&["mount", "--fuse", "yes", "--foreground", "refs/tree", &point])
        };
        let server = Server::start_by(how, &program, Some(transport), LIMIT, mount)?;
        let look = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-ec", script]).current_dir(&source).uid(NOBODY).gid(NOBODY);
            run(shell.arg("sh").arg(server.path()), LIMIT)
        };
        ensure!(look("diff -r . $1")?.ok("diff")?.is_empty());
        ensure!(look("readlink $1/a/link; stat -c %s $1/a/b/big")?.ok("stat")? == "b/big\n3000000\n");
        ensure!(look("touch $1/new")?.stderr.contains("Read-only file system"));
        server.end_as(NOBODY).with_context(|| transport.name())?;
        say(&format!("cfsctl on {}: 301 files are the same", transport.name()));
    }
    Ok(())
}
