//! The kernel: its version, FUSE, passthrough.

use std::fs;
use std::path::Path;

use shuntfs_sys::spawn::effective_uid;
use shuntfs_sys::{Cap, FuseDevice, OsError, caps, kernel};

use super::Finding;
use crate::control::{self, Client};

/// Passthrough.
const PASSTHROUGH_SINCE: (u32, u32) = (6, 9);
/// The oldest kernel whose protocol is served (FUSE 7.33).
const OLDEST: (u32, u32) = (5, 12);

pub(super) fn findings() -> Vec<Finding> {
    vec![version(), protocol(), passthrough()]
}

fn version() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let text = format!("Linux {}", release.trim());
    let version = kernel::kernel_version();
    if version >= PASSTHROUGH_SINCE {
        Finding::ok("kernel", text)
    } else if version >= OLDEST {
        Finding::note("kernel", text).advice("passthrough needs Linux 6.9, io_uring transport 6.14")
    } else {
        Finding::note("kernel", text).advice("older than what shunt is made for (5.12)")
    }
}

/// The kernel tells its protocol to a server at the start of a mount, and to nobody else.
fn protocol() -> Finding {
    let places = [effective_uid(), 0]
        .into_iter()
        .flat_map(|uid| control::folders_of(uid).into_iter().map(move |folder| (uid, folder)));
    let asked = places.flat_map(|(uid, folder)| {
        control::sockets(&folder).into_iter().map(move |(_, socket)| (uid, socket))
    });
    let spoken = asked
        .filter_map(|(uid, socket)| Client::connect(&socket, uid).ok()?.status().ok())
        .map(|status| status.protocol)
        .find(|protocol| !protocol.is_empty());
    match spoken {
        Some(protocol) => {
            Finding::ok("protocol", format!("FUSE {protocol}, as a running mount has agreed with the kernel"))
        }
        None => Finding::note("protocol", "the kernel tells it to a mount only")
            .advice("shunt status MNT says it"),
    }
}

fn passthrough() -> Finding {
    const WHAT: &str = "passthrough";
    if !offers_passthrough() {
        return Finding::note(WHAT, "this kernel has none: reads and writes go through the server")
            .advice("Linux 6.9 or newer with CONFIG_FUSE_PASSTHROUGH");
    }
    if !caps::has_effective(Cap::SysAdmin) {
        return Finding::note(WHAT, "the kernel has it, and gives it to CAP_SYS_ADMIN only")
            .advice("mount as root; else reads and writes go through the server");
    }
    if !in_first_user_namespace() {
        return Finding::note(WHAT, "the kernel has it, and not inside a user namespace")
            .advice("mount outside of the container; else reads and writes go through the server");
    }
    Finding::ok(WHAT, "reads and writes go past the server")
}

/// Asks a device that is not mounted to register a file: a kernel that knows the request refuses with EPERM,
/// one that does not with ENOTTY. Where the device cannot be asked, the kernel's version must do.
fn offers_passthrough() -> bool {
    if kernel::kernel_version() < PASSTHROUGH_SINCE || configured() == Some(false) {
        return false;
    }
    let (Ok(device), Ok(null)) = (FuseDevice::open(), fs::File::open("/dev/null")) else { return true };
    !matches!(device.backing_open(&null), Err(OsError::NOTTY | OsError::OPNOTSUPP))
}

/// Whether the kernel was built with it, where its configuration is available as text.
fn configured() -> Option<bool> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let config = fs::read_to_string(Path::new("/boot").join(format!("config-{}", release.trim()))).ok()?;
    Some(config.lines().any(|line| line == "CONFIG_FUSE_PASSTHROUGH=y"))
}

/// Whether uids of this process are those of the machine.
pub(crate) fn in_first_user_namespace() -> bool {
    let Ok(map) = fs::read_to_string("/proc/self/uid_map") else { return true };
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}
