//! Published crates that use fuser, as they are published: their own tests where they have some, on each transport.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use shuntfs_testkit::mounted::Transport;
use shuntfs_testkit::program::run;
use shuntfs_testkit::{say, serial, skipped};

use crate::build::{Built, Package, Target, build, crates, home};
use crate::server::Server;

const EASY: [&str; 6] = [
    "integration_test",
    "offset_test",
    "hard_link_test",
    "async_test",
    "test_recursion",
    "test_cd_non_existent_subdir",
];
const MUSE: [&str; 5] = ["mount", "concurrency", "concurrent_reads", "passthrough", "read_consistency"];

/// Tests of theirs that need what is not here.
const LEFT_OUT: [&str; 1] = ["randomized_reads_match_oracle_all_formats"];

/// So that dependents of fuser 0.17 and 0.18 get ours: a patch must have the name and the version that they ask for.
fn shim(version: &str) -> Result<()> {
    let folder = home()?.join(format!("fuser-{version}"));
    fs::create_dir_all(folder.join("src"))?;
    let ours = crates().join("shuntfs-fuser");
    let manifest = format!(
        "[package]\nname = \"fuser\"\nversion = \"{version}\"\nedition = \"2024\"\npublish = false\n[workspace]\n\
         [features]\nlibfuse = []\nmacos-no-mount = []\n[dependencies]\nshuntfs-fuser = {{ path = {ours:?} }}\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    Ok(fs::write(folder.join("src/lib.rs"), "//! Made by a test.\npub use shuntfs_fuser::*;\n")?)
}

const EASY_AND_NG: &str = r#"version = "0.0.0"
edition = "2024"
publish = false
[workspace]
[features]
default = ["serial", "parallel", "async"]
serial = []
parallel = []
async = []
[dependencies]
easy_fuser = "=0.7.1"
easy_fuser_macro = "0.2"
fuser-ng = "=0.9.1"
async-trait = "0.1"
tokio = { version = "1", features = ["full"] }
env_logger = "0.11"
tempfile = "3"
libc = "0.2"
log = "0.4"
[patch.crates-io]
fuser = { path = "../fuser-0.18.0" }
[profile.dev]
debug = 0
"#;

const MUSEFS: &str = r#"version = "0.0.0"
edition = "2024"
publish = false
[workspace]
[features]
default = ["metrics"]
metrics = ["musefs-fuse/metrics"]
[dependencies]
fuser = "0.17"
musefs-fuse = "=1.3.0"
musefs-core = "1.3"
musefs-db = "1.3"
musefs-format = { version = "1.3", features = ["fuzzing"] }
tempfile = "3"
libc = "0.2"
rustix = { version = "1", features = ["fs", "process"] }
base64 = "0.22"
memmap2 = "0.9"
metaflac = "0.2"
ogg = "0.9"
sha2 = "0.11"
[patch.crates-io]
fuser = { path = "../fuser-0.17.0" }
[profile.dev]
debug = 0
"#;

fn own(source: &'static str, names: &[&str]) -> Vec<Target<'static>> {
    let of = |name: &&str| Target {
        name: format!("{source}-{name}"),
        kind: "test",
        source: Some(source),
        path: format!("tests/{name}.rs"),
    };
    names.iter().map(of).collect()
}

/// Builds what depends on a version of fuser, with ours in its place.
pub(crate) fn with_ours(version: &str, package: &Package<'_>) -> Result<Option<Built>> {
    if !rustix::process::geteuid().is_root() {
        skipped("mounting what was written for fuser needs root");
        return Ok(None);
    }
    shim(version)?;
    build(package, &["test", "--quiet", "--no-run"])
}

fn easy_and_ng() -> Result<Option<Built>> {
    let mut targets = own("easy_fuser", &EASY);
    targets.push(Target { name: "mirror".into(), kind: "bin", source: None, path: "src/mirror.rs".into() });
    let files = [("src/mirror.rs", include_str!("mirror.rs.txt"))];
    with_ours("0.18.0", &Package { name: "easy-and-ng", manifest: EASY_AND_NG, targets, files: &files })
}

fn musefs() -> Result<Option<Built>> {
    let targets = own("musefs-fuse", &MUSE);
    with_ours("0.17.0", &Package { name: "musefs", manifest: MUSEFS, targets, files: &[] })
}

/// The tests of a published crate, one after the other, on each transport.
fn pass(built: &Built, source: &str, names: &[&str], at_least: usize) -> Result<()> {
    let _serial = serial();
    for transport in Transport::ALL.into_iter().filter(|transport| transport.is_available()) {
        let mut command = built.cargo()?;
        command.args(["test", "--quiet", "--no-fail-fast"]);
        for name in names {
            command.arg("--test").arg(format!("{source}-{name}"));
        }
        command.args(["--", "--include-ignored", "--test-threads=1"]);
        for name in LEFT_OUT {
            command.arg("--skip").arg(name);
        }
        command.env("SHUNTFS_FUSER_TRANSPORT", transport.name());
        let text =
            run(&mut command, Duration::from_secs(600))?.ok(&format!("{source} on {}", transport.name()))?;
        let passed: usize = text
            .lines()
            .filter_map(|line| {
                line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<usize>().ok()
            })
            .sum();
        ensure!(passed >= at_least, "{passed} tests passed: {text}");
        say(&format!("{source} on {}: {passed} tests of its own pass", transport.name()));
    }
    Ok(())
}

#[test]
fn easy_fuser_passes_its_own_tests() -> Result<()> {
    match easy_and_ng()? {
        Some(built) => pass(&built, "easy_fuser", &EASY, 7),
        None => Ok(()),
    }
}

#[test]
fn musefs_passes_its_own_tests() -> Result<()> {
    match musefs()? {
        Some(built) => pass(&built, "musefs-fuse", &MUSE, 10),
        None => Ok(()),
    }
}

#[test]
fn a_folder_is_shown_through_fuser_ng() -> Result<()> {
    let Some(built) = easy_and_ng()? else { return Ok(()) };
    let _serial = serial();
    let program = built.program("bin", "mirror")?;
    let source = tempfile::tempdir()?;
    fs::create_dir_all(source.path().join("a/b"))?;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    fs::write(source.path().join("a/b/big"), &bytes)?;
    for number in 0..300 {
        fs::write(source.path().join(format!("a/file{number}")), number.to_string())?;
    }
    for transport in Transport::ALL.into_iter().filter(|transport| transport.is_available()) {
        let words = |point: &Path| [source.path(), point].map(|path| path.display().to_string()).to_vec();
        let server = Server::start(&program, Some(transport), Duration::from_secs(60), words)?;
        ensure!(fs::read(server.join("a/b/big"))? == bytes);
        ensure!(server.script("cat a/file* | wc -c")?.trim() == "790", "300 files");
        ensure!(server.script(&format!("diff -r . {}", source.path().display()))?.is_empty());
        server.end(true)?;
        say(&format!("fuser-ng on {}: 303 files are the same", transport.name()));
    }
    Ok(())
}
