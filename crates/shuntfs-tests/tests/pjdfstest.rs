//! pjdfstest, the POSIX test suite: every test must end on a mount as it ends on the bare lower file system.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::program::run;
use shuntfs_testkit::tools::pjdfstest;
use shuntfs_testkit::{say, serial, skipped};

/// The naps are longer than any kernel's tick. The users are two that every Debian has.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.015
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// One run of the suite: each test's name, with how it ended and why.
fn suite(program: &Path, folder: &Path, other: &Path) -> Result<BTreeMap<String, String>> {
    let configuration = tempfile::NamedTempFile::new()?;
    fs::write(configuration.path(), CONFIGURATION)?;
    let mut command = Command::new(program);
    command.env("NO_COLOR", "1").env("RUST_BACKTRACE", "0");
    command.arg("-c").arg(configuration.path()).arg("-p").arg(folder).arg("-s").arg(other);
    let ran = run(&mut command, Duration::from_secs(180))?;
    let found = parse(&ran.stdout);
    ensure!(found.len() > 100, "only {} tests ran: {}", found.len(), ran.stderr);
    ensure!(ran.stdout.contains("Summary"), "the suite did not come to its end: {}", ran.stderr);
    Ok(found)
}

fn parse(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut last = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, end @ ("ok" | "FAILED" | "skipped")] if name.contains("::") && !line.starts_with('\t') => {
                last = name.to_owned();
                found.insert(last.clone(), end.to_owned());
            }
            _ => {
                if let Some(entry) = found.get_mut(&last)
                    && line.starts_with('\t')
                {
                    entry.push_str(": ");
                    entry.push_str(line.trim());
                }
            }
        }
    }
    found
}

/// The C library knows the largest number of links by the type of file system, and has none for FUSE: it asks no server.
const SKIPPED_ON_FUSE: &[&str] = &["link::link_count_max"];

/// How a test ended, without the reason, which may name numbers and paths.
fn end(result: Option<&String>) -> &str {
    result.map_or("missing", |text| text.split(':').next().unwrap_or_default())
}

fn same_as_bare(transport: Transport) -> Result<()> {
    let _serial = serial();
    if !rustix::process::geteuid().is_root() {
        skipped("pjdfstest needs root");
        return Ok(());
    }
    let Some(program) = pjdfstest()? else { return Ok(()) };
    let (Some(lower), Some(other)) = (Lower::make(LowerKind::Ext4)?, Lower::make(LowerKind::Tmpfs)?) else {
        return Ok(());
    };
    let (bare, source) = (lower.folder("bare")?, lower.folder("source")?);
    let spec = MountSpec::new(&source, transport, Flow::Passthrough).limit(200);
    let Some(mut mount) = Mounted::start(&spec)? else { return Ok(()) };
    let expected = suite(&program, &bare, other.path())?;
    let seen = suite(&program, mount.path(), other.path())?;
    let failed = expected.values().filter(|text| text.starts_with("FAILED")).count();
    let left_out = expected.values().filter(|text| text.starts_with("skipped")).count();
    say(&format!(
        "pjdfstest on ext4: {} tests, {failed} fail and {left_out} are skipped on the bare one",
        expected.len()
    ));
    let different: Vec<String> = expected
        .iter()
        .filter(|(name, result)| end(Some(*result)) != end(seen.get(*name)))
        .filter(|(name, _)| !(SKIPPED_ON_FUSE.contains(&name.as_str()) && end(seen.get(*name)) == "skipped"))
        .map(|(name, result)| format!("{name}: expected {result}, seen {:?}", seen.get(name)))
        .collect();
    ensure!(
        different.is_empty() && seen.len() == expected.len(),
        "{spec}: {} differences:\n  {}",
        different.len(),
        different.join("\n  ")
    );
    let status = mount.unmount()?;
    ensure!(status.success(), "the server ended with {status}:\n{}", mount.log());
    Ok(())
}

#[test]
fn device() -> Result<()> {
    same_as_bare(Transport::Device)
}

#[test]
fn cloned() -> Result<()> {
    same_as_bare(Transport::Cloned)
}

#[test]
fn uring() -> Result<()> {
    same_as_bare(Transport::Uring)
}

#[test]
fn results_are_read() {
    let text = "chmod::a::b      ok\nchmod::c         skipped\n\trequires features: x\nopen::d     FAILED\n\twhy\nSummary: 1\n";
    let found = parse(text);
    assert_eq!(found.len(), 3);
    assert_eq!(end(found.get("open::d")), "FAILED");
    assert_eq!(found["chmod::c"], "skipped: requires features: x");
    assert_eq!(end(None), "missing");
}
