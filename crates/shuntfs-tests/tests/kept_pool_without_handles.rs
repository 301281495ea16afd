//! What is asked of a pool in `kept_pool.rs`, where the file system has no handles: each node is held by a descriptor, which the next server gets, and
//! none may be left when the kernel has forgotten its node. Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere it says so and passes.

#[path = "../../shuntfs-keeper/tests/privileged_surviving.rs"]
mod surviving;

use std::process::Command;

use surviving::support::{ORDINARY, can_mount};

/// Some of it once more as an ordinary user, who mounts by fusermount3: on the disk of /tmp, and on tmpfs. In a mount namespace of its own, where
/// everybody may open /dev/fuse.
#[test]
fn privileged_ordinary_users_notice_nothing_either() {
    const SCRIPT: &str = r#"
        if [ "$2" = tmpfs ]; then mount -t tmpfs -o mode=1777 none /tmp; fi
        mount -t tmpfs none /dev; mknod -m 666 /dev/fuse c 10 229; mknod -m 666 /dev/null c 1 3
        cd /
        exec timeout 240 setpriv --reuid 65534 --regid 65534 --clear-groups "$1" "$3" --nocapture"#;
    if std::env::var_os(ORDINARY).is_some() || !can_mount() {
        return;
    }
    if Command::new("fusermount3").arg("--version").output().is_err() {
        println!("SKIPPED: there is no fusermount3");
        return;
    }
    for (place, test) in [("disk", "what_is_open_stays_open"), ("tmpfs", "names_change_over_forty_kills")] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", SCRIPT, "sh"]);
        command.arg(std::env::current_exe().expect("is known")).args([place, test]).env(ORDINARY, "1");
        let ran = command.output().expect("starts");
        let said = String::from_utf8_lossy(&ran.stdout);
        println!("{said}");
        assert!(ran.status.success(), "on {place}: {said}{}", String::from_utf8_lossy(&ran.stderr));
        assert!(said.contains("1 passed") && !said.contains("SKIPPED"), "on {place}: {said}");
    }
}
