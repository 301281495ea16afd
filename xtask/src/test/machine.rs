//! What the tests need beyond Rust: programs, looked for by name, installed where we may.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// A program and the Debian package it comes in.
const NEEDED: &[(&str, &str)] = &[
    ("bash", "bash"),
    ("btrfs", "btrfs-progs"),
    ("cc", "gcc"),
    ("fallocate", "util-linux"),
    ("fincore", "util-linux"),
    ("find", "findutils"),
    ("fio", "fio"),
    ("fsfreeze", "util-linux"),
    ("fsverity", "fsverity"),
    ("fusermount3", "fuse3"),
    ("gcc", "gcc"),
    ("getfacl", "acl"),
    ("getfattr", "attr"),
    ("git", "git"),
    ("initdb", "postgresql"),
    ("ip", "iproute2"),
    ("losetup", "mount"),
    ("make", "make"),
    ("chattr", "e2fsprogs"),
    ("mkfs.exfat", "exfatprogs"),
    ("mkfs.vfat", "dosfstools"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("e2fsck", "e2fsprogs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mergerfs", "mergerfs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mount", "mount"),
    ("openssl", "openssl"),
    ("perl", "perl-base"),
    ("pgbench", "postgresql"),
    ("pkill", "procps"),
    ("prlimit", "util-linux"),
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    ("ps", "procps"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("rsync", "rsync"),
    ("setpriv", "util-linux"),
    ("sqlite3", "sqlite3"),
    ("strace", "strace"),
    ("tar", "tar"),
    ("taskset", "util-linux"),
    ("unshare", "util-linux"),
];

/// Folders that programs are in beside those of the PATH: an ordinary user's PATH has no sbin, and Debian keeps the
/// server's programs of PostgreSQL apart.
const FOLDERS: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// Debian's switch against a database server that starts because a package is installed.
const NO_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/shuntfs-tests.conf";

/// What systemd takes for a service that is not to start.
const MASKED: &str = "/etc/systemd/system/prometheus.service";

/// Installs what is missing where that can be done, and says what is missing where it cannot.
pub(crate) fn set_up() {
    let packages = missing_packages(&has);
    if packages.is_empty() {
        println!("set-up: every program that the tests use is installed");
        return;
    }
    let list = packages.join(" ");
    if !is_root() || !Path::new("/etc/debian_version").exists() {
        println!(
            "set-up: missing, and only installed as root on Debian: {list}; the tests that use them are skipped"
        );
        return;
    }
    println!("set-up: apt-get update && apt-get install -y --no-install-recommends {list}");
    if let Err(error) = install(&packages) {
        println!("set-up: {error:#}; the tests that use them are skipped");
    }
}

/// Checks that programs are there; installs none.
///
/// # Errors
/// Names those that are missing.
pub(crate) fn require(programs: &[&str]) -> Result<()> {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !has(program)).collect();
    anyhow::ensure!(
        missing.is_empty(),
        "missing programs: {} (`cargo xtask test` installs some)",
        missing.join(", ")
    );
    Ok(())
}

/// Returns the folders that programs are in, on the PATH or not.
pub(crate) fn folders() -> Vec<PathBuf> {
    let versions = std::fs::read_dir(POSTGRESQL).into_iter().flatten().flatten();
    let postgresql = versions.map(|version| version.path().join("bin"));
    FOLDERS.iter().map(PathBuf::from).chain(postgresql).collect()
}

/// Returns the packages of the programs that do not exist, each once.
fn missing_packages(has: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    let mut packages: Vec<&str> =
        NEEDED.iter().filter(|(program, _)| !has(program)).map(|&(_, package)| package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&path).chain(folders());
    all.any(|folder| folder.join(program).is_file())
}

fn install(packages: &[&str]) -> Result<()> {
    apt_get(&["update"])?;
    let held_back = packages.contains(&"postgresql") && hold_back_the_server();
    if packages.contains(&"prometheus") {
        mask_the_service();
    }
    let outcome = apt_get(&[&["install", "-y", "--no-install-recommends"], packages].concat());
    if held_back {
        std::fs::remove_file(NO_CLUSTER).with_context(|| NO_CLUSTER.to_owned())?;
    }
    outcome
}

/// Keeps the package from making and starting a database of its own: the tests make theirs.
fn hold_back_the_server() -> bool {
    let folder = Path::new(NO_CLUSTER).parent().unwrap_or(Path::new("/"));
    let made = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(NO_CLUSTER, "create_main_cluster = false\nstart_conf = 'manual'\n"));
    made.is_ok()
}

/// Keeps the package from starting a Prometheus that scrapes this machine from now on: the tests start theirs. Who wants it
/// unmasks it.
fn mask_the_service() {
    let _there_already = std::os::unix::fs::symlink("/dev/null", MASKED);
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("timeout");
    command.args(["900", "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]).args(arguments);
    let status = command.env("DEBIAN_FRONTEND", "noninteractive").status().context("cannot start apt-get")?;
    anyhow::ensure!(status.success(), "apt-get {} failed", arguments.join(" "));
    Ok(())
}

pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_once_and_only_when_a_program_is_missing() {
        assert!(missing_packages(&|_| true).is_empty());
        assert_eq!(
            missing_packages(&|program| program != "btrfs" && program != "mkfs.btrfs"),
            ["btrfs-progs"]
        );
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(has("sh"));
        assert!(!has("no-such-program-here"));
        assert!(require(&["sh"]).is_ok());
        let error = require(&["sh", "no-such-program-here"]).unwrap_err().to_string();
        assert!(error.contains(": no-such-program-here ("), "{error}");
    }
}
