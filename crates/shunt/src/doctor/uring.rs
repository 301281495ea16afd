//! io_uring: for the transport, and for the server's own reads.

use std::fs;
use std::path::Path;

use shuntfs_sys::{Cap, OsError, caps, kernel};

use super::Finding;

/// The kernel's switch for FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

pub(super) fn findings() -> Vec<Finding> {
    vec![transport(), rings(), seccomp()]
}

fn transport() -> Finding {
    const WHAT: &str = "fuse io_uring";
    match kernel::fuse_module_param("enable_uring").as_deref().map(str::trim) {
        Some("Y" | "1") => Finding::ok(WHAT, "turned on: --transport uring is available"),
        Some(_) => Finding::note(WHAT, "turned off: requests come over /dev/fuse")
            .advice(format!("now, as root:    echo Y > {SWITCH}"))
            .advice(stays()),
        None => Finding::note(WHAT, "this kernel has none: requests come over /dev/fuse")
            .advice("Linux 6.14 or newer with CONFIG_FUSE_IO_URING, and the module loaded: modprobe fuse"),
    }
}

/// How the switch stays on: a module takes it from modprobe.d, a built-in one from the kernel's command line.
fn stays() -> String {
    if Path::new("/sys/module/fuse/initstate").exists() {
        "at every start:  echo 'options fuse enable_uring=1' > /etc/modprobe.d/fuse-uring.conf".into()
    } else {
        "at every start:  add fuse.enable_uring=1 to the kernel's command line (fuse is built in)".into()
    }
}

fn rings() -> Finding {
    const WHAT: &str = "io_uring";
    let setting = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match setting.trim() {
        "2" => {
            return Finding::note(
                WHAT,
                "kernel.io_uring_disabled = 2: nobody may use it; plain system calls instead",
            )
            .advice("sysctl kernel.io_uring_disabled=0");
        }
        "1" if !caps::has_effective(Cap::SysAdmin) => {
            return Finding::note(
                WHAT,
                "kernel.io_uring_disabled = 1: for root and kernel.io_uring_group only",
            )
            .advice("sysctl kernel.io_uring_disabled=0, or join that group");
        }
        _ => {}
    }
    match shuntfs_sys::uring::Ring::new(8) {
        Ok(_) => Finding::ok(WHAT, "works"),
        Err(error @ (OsError::PERM | OsError::ACCESS | OsError::NOSYS)) => {
            Finding::note(WHAT, format!("refused ({}); plain system calls instead", std::io::Error::from(error)))
                .advice("a container's seccomp profile forbids it: allow io_uring_setup, io_uring_enter, io_uring_register")
        }
        Err(error) => Finding::note(WHAT, format!("does not start: {}", std::io::Error::from(error))),
    }
}

fn seccomp() -> Finding {
    const WHAT: &str = "seccomp";
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    match status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim) {
        Some("0") => Finding::ok(WHAT, "no filter"),
        Some("2") => Finding::note(WHAT, "a filter is on this process: mount and io_uring may be refused")
            .advice("in a container, the lines above say what is refused"),
        _ => Finding::note(WHAT, "unknown"),
    }
}
