//! pjdfstest on fuser's example `simple`: with fuser itself, and with `shuntfs-fuser` on each transport.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use shuntfs_testkit::mounted::Transport;
use shuntfs_testkit::program::run;
use shuntfs_testkit::tools::pjdfstest;
use shuntfs_testkit::{say, serial, skipped};

use crate::build::{Package, Target, build, fuser_as_ours};
use crate::server::Server;

const LIMIT: Duration = Duration::from_secs(1500);
const SUITE_LIMIT: Duration = Duration::from_secs(600);

const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

fn manifest(fuser: &str) -> String {
    format!(
        r#"version = "0.0.0"
edition = "2024"
publish = false
[workspace]
[dependencies]
{fuser}
clap = {{ version = "4.4", features = ["cargo", "derive"] }}
env_logger = "0.11.7"
libc = "0.2"
log = "0.4"
nix = {{ version = "0.31.0", features = ["fs"] }}
bincode = "1.3.1"
serde = {{ version = "1.0.102", features = ["std", "derive"] }}
[profile.dev]
debug = 0
"#
    )
}

/// Each test's name, with how it ended.
fn suite(program: &Path, folder: &Path) -> Result<BTreeMap<String, String>> {
    let (configuration, other) = (tempfile::NamedTempFile::new()?, tempfile::tempdir()?);
    fs::write(configuration.path(), CONFIGURATION)?;
    let mut command = Command::new(program);
    command.env("NO_COLOR", "1").env("RUST_BACKTRACE", "0");
    command.arg("-c").arg(configuration.path()).arg("-p").arg(folder).arg("-s").arg(other.path());
    let ran = run(&mut command, SUITE_LIMIT)?;
    ensure!(ran.stdout.contains("Summary"), "the suite did not come to its end: {}", ran.stderr);
    let ends = ran.stdout.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, end @ ("ok" | "FAILED" | "skipped")] if name.contains("::") => {
                Some((name.to_owned(), end.to_owned()))
            }
            _ => None,
        }
    });
    let ends: BTreeMap<String, String> = ends.collect();
    ensure!(ends.len() > 100, "only {} tests ran: {}", ends.len(), ran.stderr);
    Ok(ends)
}

fn results(
    suite_program: &Path,
    program: &Path,
    transport: Option<Transport>,
) -> Result<BTreeMap<String, String>> {
    let words = |point: &Path| {
        let data = point.with_file_name("data").display().to_string();
        let point = point.display().to_string();
        // Without auto_unmount it keeps other users out.
        ["--auto-unmount", "--suid", "--data-dir", &data, "--mount-point", &point].map(str::to_owned).to_vec()
    };
    let server = Server::start(program, transport, LIMIT, words)?;
    let found = suite(suite_program, &server.path())?;
    server.end(true)?;
    Ok(found)
}

#[test]
fn pjdfstest_ends_alike_with_fuser_and_with_ours() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        skipped("pjdfstest needs root");
        return Ok(());
    }
    let Some(suite_program) = pjdfstest()? else { return Ok(()) };
    let mut programs = Vec::new();
    let ours = format!(
        "{}\npublished = {{ package = \"fuser\", version = \"=0.18.0\", optional = true }}",
        fuser_as_ours()
    );
    for (name, fuser) in [("simple-of-fuser", "fuser = \"=0.18.0\""), ("simple-of-ours", &ours)] {
        let path = "examples/simple.rs".to_owned();
        let targets = vec![Target { name: name.to_owned(), kind: "bin", source: Some("fuser"), path }];
        let package = Package { name, manifest: &manifest(fuser), targets, files: &[] };
        let Some(built) = build(&package, &["build", "--quiet", "--bins"])? else { return Ok(()) };
        programs.push(built.program("bin", name)?);
    }
    let _serial = serial();
    let expected = results(&suite_program, &programs[0], None)?;
    let failed = expected.values().filter(|end| *end == "FAILED").count();
    say(&format!("pjdfstest on fuser's simple: {} tests, {failed} fail with fuser itself", expected.len()));
    for transport in Transport::ALL.into_iter().filter(|transport| transport.is_available()) {
        let seen = results(&suite_program, &programs[1], Some(transport))?;
        let different: Vec<String> = expected
            .iter()
            .filter(|(name, end)| seen.get(*name) != Some(*end))
            .map(|(name, end)| format!("{name}: {end}, here {:?}", seen.get(name)))
            .collect();
        ensure!(different.is_empty() && seen.len() == expected.len(), "{}: {different:#?}", transport.name());
        say(&format!("pjdfstest on fuser's simple, {}: the same", transport.name()));
    }
    Ok(())
}
