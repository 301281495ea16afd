//! The table of mount options.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use shuntfs_pool::policy::{Category, Function, POLICIES, Policy};
use shuntfs_pool::{AccessTime, AccessTimes, InodeCalc, MoveOnFull};
use shuntfs_verity::Digest;

use crate::export::size;
use crate::metrics::listen_address;
use crate::settings::{CacheChoice, PermissionsChoice, Settings, TransportChoice};

/// Changes settings by the value of an option, or says which values there are.
pub type Setter = fn(&mut Settings, &OsStr) -> Result<(), String>;

/// What an option does.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// It is on when it is there.
    Flag(fn(&mut Settings)),
    /// It has a value, shown in help by this word.
    Value(&'static str, Setter),
    /// Its value is a path, shown in help by this word; one that is not absolute is taken from the folder of the caller.
    Path(&'static str, fn(&mut Settings, PathBuf)),
    /// It is for others (fstab, mount(8), systemd) or already so; with or without a value.
    Ignored,
    /// Users of libfuse know it, and it is not to be had here, for this reason.
    NotOffered,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The word; one that ends in `*` stands for all words that begin so.
    pub name: &'static str,
    /// What it does.
    pub effect: Effect,
    /// What it means, or why it is ignored or not offered.
    pub help: &'static str,
}

const fn flag(name: &'static str, set: fn(&mut Settings), help: &'static str) -> Row {
    Row { name, effect: Effect::Flag(set), help }
}

const fn value(name: &'static str, word: &'static str, set: Setter, help: &'static str) -> Row {
    Row { name, effect: Effect::Value(word, set), help }
}

const fn path(
    name: &'static str,
    word: &'static str,
    set: fn(&mut Settings, PathBuf),
    help: &'static str,
) -> Row {
    Row { name, effect: Effect::Path(word, set), help }
}

const fn ignored(name: &'static str, help: &'static str) -> Row {
    Row { name, effect: Effect::Ignored, help }
}

const fn not_offered(name: &'static str, help: &'static str) -> Row {
    Row { name, effect: Effect::NotOffered, help }
}

/// Every option that is known.
pub const OPTIONS: &[Row] = &[
    flag("ro", |s| s.mount.read_only = true, "nothing may be written"),
    flag("rw", |s| s.mount.read_only = false, "files may be written (default)"),
    flag("allow_other", |s| s.mount.allow_other = true, "other users get in, as their own permissions allow"),
    flag(
        "default_permissions",
        |s| s.permissions = PermissionsChoice::Kernel,
        "the kernel checks permissions (default)",
    ),
    flag("suid", |s| s.mount.nosuid = false, "set-uid bits have effect (default for root)"),
    flag("nosuid", |s| s.mount.nosuid = true, "set-uid bits have no effect"),
    flag("dev", |s| s.mount.nodev = false, "device files have effect (default for root)"),
    flag("nodev", |s| s.mount.nodev = true, "device files have no effect"),
    flag("exec", |s| s.mount.noexec = false, "files may be executed (default)"),
    flag("noexec", |s| s.mount.noexec = true, "no file may be executed"),
    flag(
        "atime",
        |s| s.mount.access_times = AccessTimes::default(),
        "times of access as the lower file system keeps them (default)",
    ),
    flag(
        "noatime",
        |s| s.mount.access_times.kept = Some(AccessTime::Never),
        "reading sets no time of access",
    ),
    flag(
        "relatime",
        |s| s.mount.access_times.kept = Some(AccessTime::Relative),
        "reading sets it where it is older than the last change or than a day",
    ),
    flag("strictatime", |s| s.mount.access_times.kept = Some(AccessTime::Strict), "reading always sets it"),
    flag("nodiratime", |s| s.mount.access_times.not_of_folders = true, "listing a folder does not set it"),
    flag(
        "diratime",
        |s| s.mount.access_times.not_of_folders = false,
        "listing a folder sets it, too (default)",
    ),
    value(
        "fsname",
        "NAME",
        |s, v| set_some(&mut s.mount.fsname, v),
        "source in the list of mounts (default: SRC)",
    ),
    value("subtype", "NAME", |s, v| set_some(&mut s.mount.subtype, v), "type after `fuse.` (default: shunt)"),
    value("max_read", "BYTES", set_max_read, "the most that one READ asks for, at least 4096"),
    value("max_readahead", "BYTES", set_max_readahead, "how far the kernel reads ahead (needs root)"),
    value("transport", "auto|device|cloned|uring", |s, v| choose(&mut s.transport, v), "how requests arrive"),
    value(
        "flow",
        "auto|passthrough|relay|splice|served",
        |s, v| choose(&mut s.flow, v),
        "which flow opens wish for",
    ),
    value("threads", "N", |s, v| number(&mut s.threads, v), "number of queues"),
    value("queue_depth", "N", |s, v| number(&mut s.queue_depth, v), "requests that one queue may hold"),
    value("cache", "auto|default|none", |s, v| choose(&mut s.cache, v), "what the kernel may remember"),
    value("locks", "kernel|lower", |s, v| choose(&mut s.locks, v), "where file locks hold"),
    flag("handles", |s| s.handles = true, "handles of files hold over the kernel's memory and the mount"),
    value("permissions", "kernel|none", |s, v| choose(&mut s.permissions, v), "who checks permissions"),
    value(
        "xattrs",
        "on|off",
        |s, v| choose(&mut s.xattrs, v),
        "whether files have extended attributes and ACLs",
    ),
    value(
        "sched_idle",
        "on|off",
        |s, v| choose(&mut s.sched_idle, v),
        "whether threads that serve much go to SCHED_IDLE",
    ),
    path("rules", "FILE", |s, path| s.rules = Some(path), "decides by the rules of this file"),
    value("view", "NAME", set_view, "shows the view of this name"),
    value(
        "verify",
        "required|if-sealed|off",
        |s, v| choose(&mut s.verify.what, v),
        "what is checked against its seal",
    ),
    path(
        "trust",
        "KEY.pub",
        |s, path| s.verify.trust.keys.push(path),
        "trusts seals that this key has signed; may be given again",
    ),
    value(
        "threshold",
        "N",
        |s, v| number(&mut s.verify.trust.threshold, v),
        "how many of the keys must have signed",
    ),
    value("digest", "HEX", set_digest, "takes the seal with this digest and no other"),
    value("tree", "NAME", set_tree, "takes the seal of the tree of this name"),
    path(
        "trust_store",
        "DIR",
        |s, path| s.verify.trust.store = Some(path),
        "where keys and the highest serials seen are",
    ),
    path("seal_store", "DIR", |s, path| s.verify.store = Some(path), "where the seal of SRC is"),
    value("tree_cache", "MIB", set_tree_cache, "memory for verified blocks of hash trees"),
    value(
        "tree_readahead",
        "on|off",
        |s, v| choose(&mut s.verify.tree_readahead, v),
        "whether hash trees are read ahead",
    ),
    value(
        "category.create",
        "POLICY",
        |s, v| policy(v).map(|policy| s.merge.set_category(Category::Create, policy)),
        "where new things are made, of several branches",
    ),
    value(
        "category.action",
        "POLICY",
        |s, v| policy(v).map(|policy| s.merge.set_category(Category::Action, policy)),
        "where names are removed and moved",
    ),
    value(
        "category.search",
        "POLICY",
        |s, v| policy(v).map(|policy| s.merge.set_category(Category::Search, policy)),
        "which of several with one name is shown",
    ),
    value(
        "func.create",
        "POLICY",
        |s, v| policy(v).map(|policy| s.merge.set_function(Function::Create, policy)),
        "where files are made, and whether what moves keeps to folders that are there",
    ),
    value(
        "func.mkdir",
        "POLICY",
        |s, v| policy(v).map(|policy| s.merge.set_function(Function::Mkdir, policy)),
        "where folders are made",
    ),
    value(
        "func.mknod",
        "POLICY",
        |s, v| policy(v).map(|policy| s.merge.set_function(Function::Mknod, policy)),
        "where devices, FIFOs and sockets are made",
    ),
    value(
        "func.symlink",
        "POLICY",
        |s, v| policy(v).map(|policy| s.merge.set_function(Function::Symlink, policy)),
        "where symlinks are made",
    ),
    value(
        "func.rename",
        "POLICY",
        |s, v| policy(v).map(|policy| s.merge.set_function(Function::Rename, policy)),
        "which copies of a file are moved",
    ),
    value(
        "func.unlink",
        "POLICY",
        |s, v| policy(v).map(|policy| s.merge.set_function(Function::Unlink, policy)),
        "which copies of a file are removed",
    ),
    value(
        "func.getattr",
        "POLICY",
        |s, v| policy(v).map(|policy| s.merge.set_function(Function::GetAttr, policy)),
        "as category.search",
    ),
    value(
        "branches_wait",
        "SECONDS",
        set_branches_wait,
        "waits so long at the start until the disks of all branches are there",
    ),
    value(
        "branch_timeout",
        "DURATION",
        set_branch_timeout,
        "sets a branch aside that takes longer than this, until it answers (default: off)",
    ),
    flag("read_copies", |s| s.merge.read_copies = true, "reads another copy of a file that cannot be read"),
    value("inodecalc", "WAY", set_inode_calc, "what inode numbers go by (default: devino-hash)"),
    value("minfreespace", "SIZE", set_min_free, "what something new leaves free on a branch (default: 4G)"),
    value(
        "moveonenospc",
        "true|false|POLICY",
        set_move_on_full,
        "whether a file is moved to another branch when its own is full, and by which policy (default: pfrd)",
    ),
    value("move_on_full", "true|false|POLICY", set_move_on_full, "as moveonenospc"),
    value(
        "passthrough_reserve",
        "SIZE",
        set_passthrough_reserve,
        "what a branch must have free for each file that is open for writing in passthrough (default: its minfreespace)",
    ),
    value("entry_timeout", "SECONDS", set_timeout, "0 is as cache=none, 1 as cache=second"),
    value("attr_timeout", "SECONDS", set_timeout, "0 is as cache=none, 1 as cache=second"),
    value("negative_timeout", "0", set_no_negatives, "as cache=none, but for cache=second, which has none"),
    value("log", "error|warn|info|debug|trace", |s, v| choose(&mut s.log, v), "how much is logged"),
    path("log_file", "FILE", |s, path| s.log_file = Some(path), "where it is logged"),
    value("metrics_listen", "ADDR", set_metrics, "serves metrics over HTTP at this port or address"),
    flag("kernel_cache", |s| s.cache = CacheChoice::Auto, "as cache=auto"),
    flag("auto_cache", |s| s.cache = CacheChoice::Auto, "as cache=auto"),
    flag("direct_io", |s| s.cache = CacheChoice::None, "as cache=none"),
    flag("clone_fd", |s| s.transport = TransportChoice::Cloned, "as transport=cloned"),
    flag("io_uring", |s| s.transport = TransportChoice::Uring, "as transport=uring"),
    value("io_uring_q_depth", "N", |s, v| number(&mut s.queue_depth, v), "as queue_depth="),
    value("max_threads", "N", |s, v| number(&mut s.threads, v), "as threads="),
    ignored("x-*", "for systemd, mount(8) and others"),
    ignored("X-*", "for mount(8) and others"),
    ignored("_netdev", "for the boot order"),
    ignored("nofail", "for the boot order"),
    ignored("auto", "for mount -a"),
    ignored("noauto", "for mount -a"),
    ignored("user", "for mount(8)"),
    ignored("nouser", "for mount(8)"),
    ignored("users", "for mount(8)"),
    ignored("owner", "for mount(8)"),
    ignored("group", "for mount(8)"),
    ignored("defaults", "nothing beyond the defaults"),
    ignored("comment", "a comment"),
    ignored("nonempty", "always so: a mount point may hold files, which are hidden meanwhile"),
    ignored("async", "always so"),
    ignored("norelatime", "the lower file system keeps times of access in its own way"),
    ignored("lazytime", "the lower file system keeps times in its own way"),
    ignored("silent", "for mount(8)"),
    ignored("loud", "for mount(8)"),
    ignored("big_writes", "always so"),
    ignored("large_read", "always so"),
    not_offered("allow_root", "only all other users can be let in: allow_other"),
    not_offered(
        "auto_unmount",
        "a server that ends by itself or by a signal unmounts; after SIGKILL: shunt umount MNT",
    ),
    not_offered("remount", "umount and mount again"),
    not_offered("sync", "each writer asks for it at open: O_SYNC"),
    not_offered("dirsync", "set it on the lower folder: chattr +D"),
    not_offered("uid", "files keep their owner"),
    not_offered("gid", "files keep their group"),
    not_offered("umask", "files keep their mode"),
    not_offered("fscontext", "files keep their labels"),
    not_offered("defcontext", "files keep their labels"),
    not_offered("rootcontext", "files keep their labels"),
    not_offered("context", "files keep their labels"),
    not_offered("blksize", "the block size is that of the lower file system"),
    not_offered("remember", "nodes are kept as long as the kernel knows them"),
    not_offered("noforget", "nodes are kept as long as the kernel knows them"),
];

/// The options as the help of `shunt mount` shows them.
#[must_use]
pub fn help() -> String {
    let mut text = String::from("Words of -o, as in fstab:\n");
    let mut ignored = Vec::new();
    for row in OPTIONS {
        let word = match row.effect {
            Effect::Flag(_) => row.name.to_owned(),
            Effect::Value(value, _) | Effect::Path(value, _) => format!("{}={value}", row.name),
            Effect::Ignored => {
                ignored.push(row.name);
                continue;
            }
            Effect::NotOffered => continue,
        };
        let _infallible = writeln!(text, "  {word:<42} {}", row.help);
    }
    let _infallible = write!(text, "Accepted and ignored: {}", ignored.join(", "));
    text
}

fn set_some(place: &mut Option<std::ffi::OsString>, value: &OsStr) -> Result<(), String> {
    *place = Some(value.to_owned());
    Ok(())
}

fn policy(value: &OsStr) -> Result<&'static Policy, String> {
    let policy = value.to_str().and_then(Policy::of);
    let names = || POLICIES.iter().map(Policy::name).collect::<Vec<_>>().join(", ");
    policy.ok_or_else(|| format!("one of {}", names()))
}

fn set_min_free(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    settings.merge.min_free = Some(value.to_str().ok_or("a size".to_owned()).and_then(size)?);
    Ok(())
}

fn set_move_on_full(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    settings.merge.move_on_full = Some(value.to_str().ok_or("a policy".to_owned()).and_then(move_on_full)?);
    Ok(())
}

/// Whether a file is moved when its branch is full, as mergerfs has it.
pub(crate) fn move_on_full(word: &str) -> Result<MoveOnFull, String> {
    let names = || POLICIES.iter().map(Policy::name).collect::<Vec<_>>().join(", ");
    MoveOnFull::of(word).ok_or_else(|| format!("true, false, or one of {}", names()))
}

fn set_passthrough_reserve(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    settings.merge.passthrough_reserve = Some(value.to_str().ok_or("a size".to_owned()).and_then(size)?);
    Ok(())
}

fn set_inode_calc(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    settings.merge.inode_calc = Some(value.to_str().ok_or("a way".to_owned()).and_then(inode_calc)?);
    Ok(())
}

/// What inode numbers go by, by mergerfs's name for it.
pub(crate) fn inode_calc(name: &str) -> Result<InodeCalc, String> {
    let names = || InodeCalc::ALL.map(|(name, _)| name).join(", ");
    InodeCalc::of(name).ok_or_else(|| format!("one of {}", names()))
}

fn set_branches_wait(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    settings.merge.wait =
        Some(value.to_str().and_then(|text| text.parse().ok()).ok_or("a number of seconds")?);
    Ok(())
}

fn set_branch_timeout(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    let timeout = value.to_str().ok_or("a time".to_owned()).and_then(branch_timeout)?;
    settings.merge.timeout = Some(timeout);
    Ok(())
}

/// The shortest and the longest time after which a branch is set aside.
const TIMEOUT_MIN: Duration = Duration::from_millis(500);
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Reads how long a branch may take: seconds, or a number with `ms`, `s` or `m`.
pub(crate) fn branch_timeout(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let number: Option<u64> =
        digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let ms = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    let timeout = ms.map(Duration::from_millis).filter(|time| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(time));
    timeout.ok_or_else(|| "a time from 500ms to 60m, such as 30s".to_owned())
}

fn set_metrics(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    settings.metrics = Some(value.to_str().ok_or("an address".to_owned()).and_then(listen_address)?);
    Ok(())
}

fn set_view(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    settings.view = Some(value.to_str().filter(|name| !name.is_empty()).ok_or("a name")?.to_owned());
    Ok(())
}

fn set_digest(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    let digest = value.to_str().and_then(|text| Digest::from_text(text).ok());
    settings.verify.trust.digest = Some(digest.ok_or("64 hexadecimal digits (sha256) or 128 (sha512)")?);
    Ok(())
}

fn set_tree(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    let name = value.to_str().and_then(|text| text.parse().ok());
    settings.verify.trust.tree = Some(name.ok_or("a name of at most 64 letters, digits and . _ - + @ : /")?);
    Ok(())
}

fn set_tree_cache(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    let mib = value.to_str().and_then(|text| text.parse().ok());
    settings.verify.tree_cache_mib = Some(mib.ok_or("a number of MiB")?);
    Ok(())
}

fn set_max_read(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    let bytes = value.to_str().and_then(|text| text.parse::<u32>().ok()).filter(|bytes| *bytes >= 4096);
    settings.mount.max_read = Some(bytes.ok_or("a number of bytes from 4096 to 4294967295")?);
    Ok(())
}

fn set_max_readahead(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    let bytes = value.to_str().and_then(|text| text.parse().ok());
    settings.mount.max_readahead = Some(bytes.ok_or("a number of bytes up to 4294967295")?);
    Ok(())
}

fn choose<T: ValueEnum>(place: &mut T, value: &OsStr) -> Result<(), String> {
    match value.to_str().and_then(|text| T::from_str(text, false).ok()) {
        Some(choice) => {
            *place = choice;
            Ok(())
        }
        None => {
            let names: Vec<String> = T::value_variants()
                .iter()
                .filter_map(|variant| variant.to_possible_value().map(|known| known.get_name().to_owned()))
                .collect();
            Err(format!("one of {}", names.join(", ")))
        }
    }
}

fn number(place: &mut Option<NonZeroUsize>, value: &OsStr) -> Result<(), String> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    *place = Some(number.ok_or("a number from 1 on")?);
    Ok(())
}

/// That a name is not there is remembered by `default` alone.
fn set_no_negatives(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    if value.to_str().and_then(|text| text.parse::<f64>().ok()) != Some(0.0) {
        return Err("0; leave it out".to_owned());
    }
    if settings.cache != CacheChoice::Second {
        settings.cache = CacheChoice::None;
    }
    Ok(())
}

/// What the kernel remembers is remembered for a second, until it changes, or not at all.
fn set_timeout(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    settings.cache = match value.to_str().and_then(|text| text.parse::<f64>().ok()) {
        Some(0.0) => CacheChoice::None,
        Some(1.0) => CacheChoice::Second,
        _ => {
            return Err("0 or 1; leave it out, and what the kernel remembers stays valid until it changes, or a second where there are several folders".to_owned());
        }
    };
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn times_for_branches_are_read_with_their_units() {
        for (text, ms) in
            [("30", 30_000), ("30s", 30_000), ("500ms", 500), ("2m", 120_000), ("60m", 3_600_000)]
        {
            assert_eq!(branch_timeout(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "0", "499ms", "61m", "1h", "-1s", "+5s", "1.5s", "5 s", "99999999999999999999m"]
        {
            assert!(branch_timeout(text).is_err_and(|why| why.contains("500ms to 60m")), "{text}");
        }
    }
}
