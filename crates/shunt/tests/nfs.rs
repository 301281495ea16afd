//! A pool that is exported by NFS. Needs root and /dev/fuse, and nfs-ganesha, rpcbind and libnfs, which `cargo xtask test` does not install, because Debian's
//! packages of them start servers. It runs in namespaces of its own.

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{SHUNT, can_mount};
use shuntfs_testkit::program::{have, run};
use shuntfs_testkit::{serial, skipped};

/// What the client ends with if there is no libnfs.
const SKIPPED: i32 = 77;

/// A client reads and writes files that it had open before both the pool and the NFS server were started anew, with the branches in another order.
#[test]
fn privileged_what_nfs_clients_have_open_outlives_both_servers() {
    if !can_mount() || !have(&["ganesha.nfsd", "rpcbind", "python3", "unshare", "ip", "mountpoint"]) {
        return;
    }
    let _serial = serial();
    let room = tempfile::tempdir().expect("makes");
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nfs");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sh"]);
    command.arg(scripts.join("run.sh")).arg(room.path()).arg(&scripts).env("SHUNT", SHUNT);
    let ran = run(&mut command, Duration::from_secs(120)).expect("ends");
    if ran.status.code() == Some(SKIPPED) {
        return skipped("there is no libnfs.so.13");
    }
    let log = std::fs::read_to_string(room.path().join("log")).unwrap_or_default();
    assert!(ran.status.success(), "{}{}\n{log}", ran.stdout, ran.stderr);
}
