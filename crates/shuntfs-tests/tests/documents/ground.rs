//! The machine that the pages assume: a home with photos and an image, disks below /mnt, `shunt` and `cargo` on the path.
//!
//! It is a namespace of processes and mounts. When its first process ends, however it does, everything in it is gone:
//! servers, mounts, loop devices.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use shuntfs_testkit::mounted::shunt_binary;
use shuntfs_testkit::photo::{Order, photo};
use shuntfs_testkit::program::{find, run};

use crate::page::Block;

/// How long the blocks of one page may take.
const LIMIT: Duration = Duration::from_mins(2);

/// Printed after each block, so that what a block prints is known.
const MARK: &str = "== end of block ==";

/// A control socket, a disk or a folder of the real machine shows nowhere.
const SET_UP: &str = r#"
    for folder in /run /mnt /srv; do mount -t tmpfs none "$folder"; done
    for disk in disk1:64 disk2:256 old:64; do
        mkdir -p "/mnt/${disk%:*}"
        mount -t tmpfs -o "size=${disk#*:}M" none "/mnt/${disk%:*}"
    done
    mkdir -p /mnt/pool
    if [ -n "$2" ]; then
        truncate -s 64M disk.raw && mkfs.ext4 -q disk.raw && qemu-img convert -O qcow2 disk.raw disk.qcow2
        rm disk.raw
    fi
    . "$1"
"#;

/// `cargo run` starts what is built already.
const CARGO: &str = r#"#!/bin/sh -e
case "$*" in
    "run --release -- "*) shift 3; exec shunt "$@" ;;
    "run --release -p shuntfs --example "*) example="$6"; shift 7; exec "$EXAMPLES/$example" "$@" ;;
    *) echo "the test has no such cargo: $*" >&2; exit 1 ;;
esac
"#;

/// A home, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ground {
    home: tempfile::TempDir,
}

impl Ground {
    /// Makes one.
    pub(crate) fn new() -> Result<Self> {
        let home = tempfile::tempdir()?;
        for folder in ["photos", "Documents", "bin"] {
            fs::create_dir(home.path().join(folder))?;
        }
        fs::write(home.path().join("photos/cat.jpg"), photo(Order::Big, 64, 64)?)?;
        fs::write(home.path().join("Documents/letter"), "Dear reader\n")?;
        let bin = home.path().join("bin");
        std::os::unix::fs::symlink(shunt_binary()?, bin.join("shunt"))?;
        fs::write(bin.join("cargo"), CARGO)?;
        fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755))?;
        Ok(Self { home })
    }

    /// Runs the blocks one after the other in one shell. The first that fails, or prints something else, is the end.
    pub(crate) fn run(&self, blocks: &[Block]) -> Result<()> {
        let home = self.home.path();
        let mut script = String::new();
        for block in blocks {
            script += &format!("{}\necho '{MARK}'\n", block.script);
        }
        let needs_image = script.contains("disk.qcow2") && !script.contains("qemu-img create");
        fs::write(home.join("page.sh"), &script)?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-euc", SET_UP, "sh"]).arg(home.join("page.sh"));
        command.arg(if needs_image { "image" } else { "" });
        let mut path = home.join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        for name in ["mkfs.ext4", "losetup"] {
            if let Some(folder) = find(name).as_deref().and_then(|program| program.parent()) {
                path.push(":");
                path.push(folder);
            }
        }
        command.env("HOME", home).env("PATH", path).env("EXAMPLES", examples()?).current_dir(home);
        command.env_remove("XDG_RUNTIME_DIR").env_remove("SHUNT_BIN");
        let ran = run(&mut command, LIMIT)?;
        let said = format!("--- stdout\n{}\n--- stderr\n{}", ran.stdout, ran.stderr);
        ensure!(ran.status.success(), "{}\n{said}", ran.status);
        let mut printed = ran.stdout.split(MARK);
        for block in blocks {
            let text = printed.next().with_context(|| format!("a block is missing\n{said}"))?;
            let mut lines = text.lines();
            for wanted in &block.prints {
                let found = lines.any(|line| line.contains(wanted.as_str()));
                ensure!(found, "`{wanted}` is not printed, or not in this order, by\n{}\n{said}", block.script);
            }
        }
        Ok(())
    }
}

/// The folder of examples, which `cargo test` builds beside the tests.
fn examples() -> Result<std::path::PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(|deps| deps.parent()).context("a test without a folder")?;
    Ok(folder.join("examples"))
}
