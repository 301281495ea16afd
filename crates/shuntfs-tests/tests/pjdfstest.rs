//! pjdfstest, the POSIX test suite: every test must end on a mount as it ends on the bare lower file system, but for what several branches
//! are known to do otherwise.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use shuntfs_testkit::conformance::case_limit;
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};
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
    // Three minutes, and more where a machine is said to be slow.
    let ran = run(&mut command, 6 * case_limit())?;
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

/// What ends otherwise on a pool that has files on another branch than folders: the times of a folder are those of the branch where it is shown
/// (docs/pool.md, How it is tested).
const OTHERWISE_ON_POOLS: &[&str] = &[
    "link::changed_ctime_success::block",
    "link::changed_ctime_success::char",
    "link::changed_ctime_success::fifo",
    "link::changed_ctime_success::regular",
    "link::changed_ctime_success::socket",
    "mkfifo::changed_time_fields_success",
    "mknod::changed_time_fields_success",
    "mknod::changed_times_success::block",
    "mknod::changed_times_success::char",
    "open::changed_time_fields_success",
    "symlink::changed_parent_time_success",
    "unlink::update_mtime_ctime_success_folder::block",
    "unlink::update_mtime_ctime_success_folder::char",
    "unlink::update_mtime_ctime_success_folder::fifo",
    "unlink::update_mtime_ctime_success_folder::regular",
    "unlink::update_mtime_ctime_success_folder::socket",
    "unlink::update_mtime_ctime_success_folder::symlink",
];

fn same_as_bare(transport: Transport, flow: Flow) -> Result<()> {
    let _serial = serial();
    let Some(program) = program()? else { return Ok(()) };
    let Some(lower) = Lower::make(LowerKind::Ext4)? else { return Ok(()) };
    let (bare, source) = (lower.folder("bare")?, lower.folder("source")?);
    differ(&program, &bare, &MountSpec::new(&source, transport, flow), &[])
}

/// Three disks, the last of which has the most room.
fn same_on_a_pool(transport: Transport, args: &[&str], otherwise: &[&str]) -> Result<()> {
    let _serial = serial();
    let Some(program) = program()? else { return Ok(()) };
    let mut disks = Vec::new();
    for size in [300 << 20, 300 << 20, 1 << 30] {
        let Some(disk) = LowerSpec::new(LowerKind::Ext4).size(size).make()? else { return Ok(()) };
        disks.push(disk);
    }
    let bare = disks[2].folder("bare")?;
    let branches = disks.iter().map(|disk| disk.folder("branch")).collect::<Result<Vec<_>>>()?;
    let branches: Vec<String> = branches.iter().map(|branch| branch.display().to_string()).collect();
    let spec = MountSpec::new(Path::new(&branches.join(":")), transport, Flow::Passthrough);
    differ(&program, &bare, &spec.args(&["--minfreespace", "0"]).args(args), otherwise)
}

fn program() -> Result<Option<PathBuf>> {
    if rustix::process::geteuid().is_root() {
        return pjdfstest();
    }
    skipped("pjdfstest needs root");
    Ok(None)
}

/// Runs the suite on a bare folder and on a mount. Just these tests may end otherwise, and they do.
fn differ(program: &Path, bare: &Path, spec: &MountSpec, otherwise: &[&str]) -> Result<()> {
    let Some(other) = Lower::make(LowerKind::Tmpfs)? else { return Ok(()) };
    // It is there during both runs.
    let limit = 13 * case_limit().as_secs();
    let Some(mut mount) = Mounted::start(&spec.clone().limit(limit))? else { return Ok(()) };
    let expected = suite(program, bare, other.path())?;
    let seen = suite(program, mount.path(), other.path())?;
    let failed = expected.values().filter(|text| text.starts_with("FAILED")).count();
    let left_out = expected.values().filter(|text| text.starts_with("skipped")).count();
    say(&format!(
        "pjdfstest on ext4: {} tests, {failed} fail and {left_out} are skipped on the bare one",
        expected.len()
    ));
    let is_known = |name: &str, is_other: bool| match end(seen.get(name)) {
        "skipped" if SKIPPED_ON_FUSE.contains(&name) => true,
        _ => otherwise.contains(&name) == is_other,
    };
    let different: Vec<String> = expected
        .iter()
        .filter(|(name, result)| !is_known(name, end(Some(*result)) != end(seen.get(*name))))
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
    same_as_bare(Transport::Device, Flow::Passthrough)
}

#[test]
fn cloned() -> Result<()> {
    same_as_bare(Transport::Cloned, Flow::Passthrough)
}

#[test]
fn uring() -> Result<()> {
    same_as_bare(Transport::Uring, Flow::Passthrough)
}

/// By zero copy, where the kernel has it.
#[test]
fn uring_delegated() -> Result<()> {
    same_as_bare(Transport::Uring, Flow::Delegated)
}

/// Everything is made on the first branch, and looked for on all.
#[test]
fn a_pool_that_makes_everything_in_one_place() -> Result<()> {
    same_on_a_pool(Transport::Uring, &["--create", "ff"], &[])
}

/// Folders are made on the first branch, and files on the last, where the folders follow.
#[test]
fn a_pool_with_files_elsewhere() -> Result<()> {
    for transport in [Transport::Device, Transport::Cloned] {
        let args = ["--create", "mfs", "--policy-for", "mkdir=ff"];
        same_on_a_pool(transport, &args, OTHERWISE_ON_POOLS)?;
    }
    Ok(())
}

/// `cargo xtask compat` runs it before the others, which then run where there is no network.
#[test]
fn the_suite_is_installed() -> Result<()> {
    let Some(program) = pjdfstest()? else { return Ok(()) };
    let help = run(Command::new(program).arg("--help"), Duration::from_secs(10))?.ok("pjdfstest --help")?;
    ensure!(help.contains("--configuration-file") || help.contains("-c"), "{help}");
    Ok(())
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
