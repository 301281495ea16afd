//! The machine that the pages assume: a home with photos and an image, disks below /mnt, `shunt` and `cargo` on the path;
//! in each [`Place`] that people run it in.
//!
//! It is a namespace of processes and mounts. When its first process ends, however it does, everything in it is gone:
//! servers, mounts, loop devices.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use shuntfs_testkit::mounted::shunt_binary;
use shuntfs_testkit::photo::{Order, photo};
use shuntfs_testkit::program::{Ran, call, run};

use crate::page::Block;

/// How long the blocks of one page may take.
const LIMIT: Duration = Duration::from_mins(2);

/// Printed after each block, so that what a block prints is known.
const MARK: &str = "== end of block ==";

/// Where the commands run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// As root on the machine.
    Machine,
    /// The same, without the control file system of FUSE and with a `/sys` that cannot be written.
    Bare,
    /// As root of a user namespace that an ordinary user made, with no device but `/dev/fuse`.
    Container,
    /// As root without `CAP_SYS_ADMIN`, which is how containers start by default.
    Confined,
    /// As an ordinary user.
    User,
    /// The same where programs gain no privileges.
    NoNewPrivileges,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Bare => "bare",
            Self::Container => "container",
            Self::Confined => "confined",
            Self::User => "user",
            Self::NoNewPrivileges => "no-new-privileges",
        }
    }
}

/// `place.sh PLACE IMAGE`. Nothing that the real machine has below /run, /mnt and /srv shows.
const SET_UP: &str = r#"
ordinary="setpriv --reuid 65534 --regid 65534 --clear-groups"
disks() {
    for folder in /run /mnt /srv; do mount -t tmpfs none "$folder"; done
    for disk in disk1:64 disk2:256 old:64; do
        mkdir -p "/mnt/${disk%:*}"
        mount -t tmpfs -o "size=${disk#*:}M" none "/mnt/${disk%:*}"
    done
    mkdir -p /mnt/pool
}
bare() {
    while umount /sys/fs/fuse/connections 2> /dev/null; do :; done
    mount -o remount,bind,ro /sys
}
device() {
    mknod -m 666 fuse c 10 229
    mknod -m 666 null c 1 3
    chown -R 65534:65534 .
    mount --bind fuse /dev/fuse
    [ ! -e /etc/fuse.conf ] || mount --bind /dev/null /etc/fuse.conf
}
if [ "$2" = image ]; then
    truncate -s 64M disk.raw && mkfs.ext4 -q disk.raw && qemu-img convert -O qcow2 disk.raw disk.qcow2
    rm disk.raw
fi
case "$1" in
machine) disks; exec sh -eu page.sh ;;
bare) bare; disks; exec sh -eu page.sh ;;
confined) bare; disks; exec setpriv --bounding-set -sys_admin --inh-caps -sys_admin sh -eu page.sh ;;
user) device; disks; chown -R 65534:65534 /mnt; exec $ordinary sh -eu page.sh ;;
no-new-privileges) device; disks; exec $ordinary --no-new-privs sh -eu page.sh ;;
container)
    device
    exec $ordinary unshare --user --map-root-user --mount --pid --fork --kill-child --mount-proc \
        sh -eu place.sh inside none ;;
inside)
    mount -t tmpfs none /dev
    touch /dev/fuse /dev/null
    mount --bind fuse /dev/fuse
    mount --bind null /dev/null
    disks; exec sh -eu page.sh ;;
esac
"#;

/// `cargo run` starts what is built already.
const CARGO: &str = r#"#!/bin/sh -e
case "$*" in
    "run --release -- "*) shift 3; exec shunt "$@" ;;
    "run --release -p shuntfs --example "*) example="$6"; shift 7; exec "$example" "$@" ;;
    *) echo "the test has no such cargo: $*" >&2; exit 1 ;;
esac
"#;

/// A home, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ground {
    home: tempfile::TempDir,
    place: Place,
}

impl Ground {
    /// Makes one.
    pub(crate) fn new(place: Place) -> Result<Self> {
        let home = tempfile::tempdir()?;
        for folder in ["photos", "Documents", "bin"] {
            fs::create_dir(home.path().join(folder))?;
        }
        fs::write(home.path().join("photos/cat.jpg"), photo(Order::Big, 64, 64)?)?;
        fs::write(home.path().join("Documents/letter"), "Dear reader\n")?;
        fs::write(home.path().join("place.sh"), SET_UP)?;
        let bin = home.path().join("bin");
        // By another process: one that a parallel test starts meanwhile would inherit our descriptor for writing, and the
        // copy could not be run (ETXTBSY). Users cannot reach the folder that they are built in.
        for program in [shunt_binary()?, example("hello")?] {
            call("cp", &[&program, &bin], Duration::from_secs(30))?;
        }
        fs::write(bin.join("cargo"), CARGO)?;
        fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755))?;
        Ok(Self { home, place })
    }

    /// Runs the blocks one after the other in one shell. The first that fails, or prints something else, is the end.
    pub(crate) fn run(&self, blocks: &[Block]) -> Result<()> {
        let mut script = String::new();
        for block in blocks {
            script += &format!("{}\necho '{MARK}'\n", block.script);
        }
        let ran = self.shell(&script)?;
        let said = format!("--- stdout\n{}\n--- stderr\n{}", ran.stdout, ran.stderr);
        ensure!(ran.status.success(), "{:?}: {}\n{said}", self.place, ran.status);
        let mut printed = ran.stdout.split(MARK);
        for block in blocks {
            let text = printed.next().with_context(|| format!("a block is missing\n{said}"))?;
            let mut lines = text.lines();
            for wanted in &block.prints {
                let found = lines.any(|line| line.contains(wanted.as_str()));
                ensure!(
                    found,
                    "`{wanted}` is not printed, or not in this order, by\n{}\n{said}",
                    block.script
                );
            }
        }
        Ok(())
    }

    /// Runs a script in the place.
    pub(crate) fn shell(&self, script: &str) -> Result<Ran> {
        let home = self.home.path();
        fs::write(home.join("page.sh"), script)?;
        let needs_image = script.contains("disk.qcow2") && !script.contains("qemu-img create");
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        command.args([
            "sh",
            "-eu",
            "place.sh",
            self.place.name(),
            if needs_image { "image" } else { "none" },
        ]);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = vec![home.join("bin")];
        folders.extend(std::env::split_paths(&path));
        folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
        command.env("HOME", home).env("PATH", std::env::join_paths(folders)?).current_dir(home);
        command.env_remove("XDG_RUNTIME_DIR").env_remove("SHUNT_BIN");
        run(&mut command, LIMIT)
    }
}

/// An example of the library, which `cargo test` builds in a folder beside that of the tests.
fn example(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(Path::parent).context("a test without a folder")?;
    let program = folder.join("examples").join(name);
    ensure!(
        program.is_file(),
        "{name} is not built; run `cargo build -p shuntfs --examples`, or `cargo xtask test`"
    );
    Ok(program)
}
