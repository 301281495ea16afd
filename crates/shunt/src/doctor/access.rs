//! Who may mount: the device, capabilities, fusermount3, its configuration, fusectl, the mount helper.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use shuntfs_sys::{Cap, FuseDevice, OsError, caps};

use super::Finding;
use super::kernel::in_first_user_namespace;
use crate::mounts::Mounts;
use crate::{log, serving};

pub(super) fn findings() -> Vec<Finding> {
    vec![
        mounting(),
        device(),
        capabilities(),
        kept(),
        fusermount(),
        configuration(),
        fusectl(),
        system_log(),
        helper(),
    ]
}

/// Who mounts, from here.
fn mounting() -> Finding {
    const WHAT: &str = "mounting";
    if caps::has_effective(Cap::SysAdmin) {
        return if in_first_user_namespace() {
            Finding::ok(WHAT, "by this user, directly")
        } else {
            Finding::note(
                WHAT,
                "by this user, inside a user namespace: a mount shows in its own mount namespace only",
            )
            .advice("mount outside of it if others must see the mount")
        };
    }
    match mounting_is_ruled_out() {
        Some(why) => Finding::bad(WHAT, why).advice(RULED_OUT),
        None if in_path("fusermount3").is_none() => {
            Finding::bad(WHAT, "not by this user: that needs fusermount3").advice(NO_FUSERMOUNT)
        }
        None => Finding::ok(WHAT, "through fusermount3"),
    }
}

/// Why not even fusermount3 can mount for this process; `None` where nothing of this kind is known.
pub(crate) fn mounting_is_ruled_out() -> Option<&'static str> {
    ruled_out(&fs::read_to_string("/proc/self/status").ok()?)
}

fn ruled_out(status: &str) -> Option<&'static str> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let bounds = field("CapBnd:").and_then(|text| u64::from_str_radix(text, 16).ok());
    if bounds.is_some_and(|bounds| bounds & (1 << SYS_ADMIN) == 0) {
        return Some("CAP_SYS_ADMIN is out of reach for every program here, as in a container without it");
    }
    (field("NoNewPrivs:") == Some("1"))
        .then_some("programs gain no privileges here (no_new_privs), fusermount3 neither")
}

/// The number of `CAP_SYS_ADMIN` (`linux/capability.h`).
const SYS_ADMIN: u32 = 21;

/// What to do where mounting is ruled out.
pub(crate) const RULED_OUT: &str =
    "start the container with --device /dev/fuse --cap-add SYS_ADMIN, and without no-new-privileges";

fn device() -> Finding {
    const WHAT: &str = "/dev/fuse";
    let Ok(metadata) = fs::metadata(WHAT) else {
        return Finding::bad(WHAT, "is not there").advice(MISSING_DEVICE);
    };
    let mode = format!(
        "mode {:04o}, owner {}:{}",
        metadata.permissions().mode() & 0o7777,
        metadata.uid(),
        metadata.gid()
    );
    match FuseDevice::open() {
        Ok(_) if metadata.permissions().mode() & 0o006 == 0o006 => Finding::ok(WHAT, mode),
        Ok(_) => Finding::ok(WHAT, format!("{mode}: for its owner and group only")),
        Err(OsError::ACCESS | OsError::PERM) => {
            Finding::bad(WHAT, format!("{mode}: not for you")).advice(CLOSED_DEVICE)
        }
        Err(error) => {
            let error = std::io::Error::from(error);
            Finding::bad(WHAT, format!("{mode}: cannot be opened: {error}")).advice("modprobe fuse")
        }
    }
}

/// What to do where there is no device.
pub(crate) const MISSING_DEVICE: &str =
    "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN";
/// What to do where the device may not be opened.
pub(crate) const CLOSED_DEVICE: &str =
    "mount as root, or open it to everybody as distributions do: chmod 666 /dev/fuse";

fn capabilities() -> Finding {
    const WHAT: &str = "capabilities";
    // What each is for, and what is done without.
    const NEEDED: [(Cap, &str); 8] = [
        (Cap::SysAdmin, "mounting without fusermount3, passthrough"),
        (Cap::DacReadSearch, "few descriptors, by file handles"),
        (Cap::Setuid, "serving other users"),
        (Cap::Setgid, "serving other groups"),
        (Cap::Chown, "giving files away"),
        (Cap::Fowner, "files of other users"),
        (Cap::SysNice, "waking callers at little cost"),
        (Cap::SysPtrace, "rules that ask for the program, and who keeps a mount busy"),
    ];
    let missing: Vec<String> = NEEDED
        .iter()
        .filter(|(cap, _)| !caps::has_effective(*cap))
        .map(|(cap, purpose)| format!("{} ({purpose})", cap.name()))
        .collect();
    let place = if in_first_user_namespace() { "" } else { ", inside a user namespace" };
    if missing.is_empty() {
        Finding::ok(WHAT, format!("all that shunt uses{place}"))
    } else {
        Finding::note(WHAT, format!("without {}{place}", missing.join(", ")))
            .advice("mount as root for these")
    }
}

/// What a server that is started from here would run with.
fn kept() -> Finding {
    const WHAT: &str = "a server's rights";
    let kept = serving::kept(serving::Task::Folder).into_iter().filter(|cap| caps::has_effective(*cap));
    let names: Vec<String> = kept.map(|cap| cap.name().trim_start_matches("CAP_").to_lowercase()).collect();
    if names.is_empty() {
        return Finding::ok(WHAT, "no capabilities: it acts as its user");
    }
    Finding::ok(WHAT, format!("it keeps {}, and gives up the rest", names.join(" ")))
}

fn fusermount() -> Finding {
    const WHAT: &str = "fusermount3";
    let root = caps::has_effective(Cap::SysAdmin);
    let Some(path) = in_path("fusermount3") else {
        let text = "is not there: only root can mount";
        let finding = if root { Finding::note(WHAT, text) } else { Finding::bad(WHAT, text) };
        return finding.advice(NO_FUSERMOUNT);
    };
    let shown = path.display().to_string();
    match fs::metadata(&path) {
        Ok(metadata) if metadata.permissions().mode() & 0o4000 != 0 && metadata.uid() == 0 => {
            Finding::ok(WHAT, shown)
        }
        _ => Finding::note(WHAT, format!("{shown} is not set-uid root: only root can mount"))
            .advice(format!("chown root {shown} && chmod 4755 {shown}")),
    }
}

/// What to do without fusermount3.
pub(crate) const NO_FUSERMOUNT: &str = "apt-get install fuse3";

/// Finds a program.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}

fn configuration() -> Finding {
    const WHAT: &str = "/etc/fuse.conf";
    if allow_other_is_allowed() {
        return Finding::ok(WHAT, "user_allow_other: ordinary users may let others in");
    }
    Finding::note(WHAT, "no user_allow_other: only root may use --allow-other")
        .advice("echo user_allow_other >> /etc/fuse.conf")
}

/// Whether fusermount3 lets ordinary users use `allow_other`.
pub(crate) fn allow_other_is_allowed() -> bool {
    let text = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    text.lines().any(|line| line.trim() == "user_allow_other")
}

fn fusectl() -> Finding {
    const WHAT: &str = "fusectl";
    const PLACE: &str = "/sys/fs/fuse/connections";
    let mounted = Mounts::read().is_ok_and(|mounts| mounts.iter().any(|mount| mount.fs_type == "fusectl"));
    if mounted {
        return Finding::ok(WHAT, format!("{PLACE}: stuck mounts can be ended there"));
    }
    Finding::note(WHAT, "not mounted: ordinary users cannot abort a stuck mount of theirs (root can)")
        .advice(format!("mount -t fusectl none {PLACE}"))
}

fn system_log() -> Finding {
    const WHAT: &str = "system log";
    if log::has_system_log() {
        return Finding::ok(WHAT, "/dev/log: servers in the background log there");
    }
    Finding::note(WHAT, "nobody listens at /dev/log: what servers in the background log is lost")
        .advice("mount with --log-file FILE")
}

fn helper() -> Finding {
    const WHAT: &str = "mount helper";
    let places = ["/sbin/mount.fuse.shunt", "/usr/sbin/mount.fuse.shunt"];
    match places.iter().find(|place| Path::new(place).exists()) {
        Some(place) => Finding::ok(WHAT, format!("{place}: fstab type fuse.shunt works")),
        None => Finding::note(
            WHAT,
            "not installed: fstab type fuse.shunt works where mount.fuse3 finds shunt in PATH",
        )
        .advice("ln -s /usr/local/bin/shunt /sbin/mount.fuse.shunt"),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_rules_out_mounting_is_read_from_proc() {
        let status =
            |bounds: &str, flag: &str| format!("Name:\tshunt\nCapBnd:\t{bounds}\nNoNewPrivs:\t{flag}\n");
        assert_eq!(ruled_out(&status("000001ffffffffff", "0")), None);
        // What Docker leaves to a container.
        assert!(ruled_out(&status("00000000a80425fb", "0")).is_some_and(|why| why.contains("CAP_SYS_ADMIN")));
        assert!(ruled_out(&status("000001ffffffffff", "1")).is_some_and(|why| why.contains("no_new_privs")));
        assert_eq!(ruled_out("CapBnd:\tnonsense\n"), None);
    }
}
