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

use super::texts::SECTIONS;
use crate::metrics::listen_address;
use crate::settings::{CacheChoice, PermissionsChoice, Settings, StallAfter, TransportChoice};
use crate::units::{duration, size, small_size};

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
    /// Users of libfuse know it, and it is not available here, for this reason.
    NotOffered,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The word; one that ends in `*` stands for all words that begin so.
    pub name: &'static str,
    /// What it does.
    pub effect: Effect,
    /// What other option it is as, or why it is ignored or not offered; empty where [`SECTIONS`] has a text of it.
    pub help: &'static str,
}

impl Row {
    const fn meaning(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    /// As it is written, with its value.
    fn spelled(&self) -> String {
        match self.effect {
            Effect::Value(value, _) | Effect::Path(value, _) => format!("{}={value}", self.name),
            _ => self.name.to_owned(),
        }
    }
}

const fn flag(name: &'static str, set: fn(&mut Settings)) -> Row {
    Row { name, effect: Effect::Flag(set), help: "" }
}

const fn value(name: &'static str, word: &'static str, set: Setter) -> Row {
    Row { name, effect: Effect::Value(word, set), help: "" }
}

const fn path(name: &'static str, word: &'static str, set: fn(&mut Settings, PathBuf)) -> Row {
    Row { name, effect: Effect::Path(word, set), help: "" }
}

const fn ignored(name: &'static str, help: &'static str) -> Row {
    Row { name, effect: Effect::Ignored, help }
}

const fn not_offered(name: &'static str, help: &'static str) -> Row {
    Row { name, effect: Effect::NotOffered, help }
}

/// The policy of a function, or of a category of them.
macro_rules! policy_for {
    ($name:literal, $set:ident($what:expr)) => {
        value($name, "POLICY", |s, v| policy(v).map(|policy| s.merge.$set($what, policy)))
    };
}

/// Every option that is known.
pub const OPTIONS: &[Row] = &[
    flag("ro", |s| s.mount.read_only = true),
    flag("read_only", |s| s.mount.read_only = true),
    flag("rw", |s| s.mount.read_only = false),
    flag("allow_other", |s| s.mount.allow_other = true),
    flag("default_permissions", |s| s.permissions = PermissionsChoice::Kernel),
    flag("suid", |s| s.mount.nosuid = false),
    flag("nosuid", |s| s.mount.nosuid = true),
    flag("dev", |s| s.mount.nodev = false),
    flag("nodev", |s| s.mount.nodev = true),
    flag("exec", |s| s.mount.noexec = false),
    flag("noexec", |s| s.mount.noexec = true),
    flag("atime", |s| s.mount.access_times = AccessTimes::default()),
    flag("noatime", |s| s.mount.access_times.kept = Some(AccessTime::Never)),
    flag("relatime", |s| s.mount.access_times.kept = Some(AccessTime::Relative)),
    flag("strictatime", |s| s.mount.access_times.kept = Some(AccessTime::Strict)),
    flag("nodiratime", |s| s.mount.access_times.not_of_folders = true),
    flag("diratime", |s| s.mount.access_times.not_of_folders = false),
    value("fsname", "NAME", |s, v| set_some(&mut s.mount.fsname, v)),
    value("subtype", "NAME", |s, v| set_some(&mut s.mount.subtype, v)),
    value("max_read", "SIZE", set_max_read),
    value("max_readahead", "SIZE", set_max_readahead),
    value("transport", "auto|device|cloned|uring", |s, v| choose(&mut s.transport, v)),
    value("flow", "auto|passthrough|relay|splice|served", |s, v| choose(&mut s.flow, v)),
    value("takeover", "off|crash|upgrade", |s, v| choose(&mut s.takeover, v)),
    value("replace_hung", "DURATION", set_replace_hung),
    value("threads", "N", |s, v| number(&mut s.threads, v)),
    value("queue_depth", "N", |s, v| number(&mut s.queue_depth, v)),
    value("cache", "auto|default|second|none", |s, v| choose(&mut s.cache, v)),
    value("locks", "kernel|lower", |s, v| choose(&mut s.locks, v)),
    flag("handles", |s| s.handles = true),
    value("permissions", "kernel|none", |s, v| choose(&mut s.permissions, v)),
    value("xattrs", "on|off", |s, v| choose(&mut s.xattrs, v)),
    value("sched_idle", "on|off", |s, v| choose(&mut s.sched_idle, v)),
    value("zero_copy", "on|off", |s, v| choose(&mut s.zero_copy, v)),
    path("rules", "FILE", |s, path| s.rules = Some(path)),
    value("view", "NAME", set_view),
    value("verify", "required|if-sealed|off", |s, v| choose(&mut s.verify.what, v)),
    path("trust", "KEY.pub", |s, path| s.verify.trust.keys.push(path)),
    value("threshold", "N", |s, v| number(&mut s.verify.trust.threshold, v)),
    value("digest", "HEX", set_digest),
    value("tree", "NAME", set_tree),
    path("trust_store", "DIR", |s, path| s.verify.trust.store = Some(path)),
    path("seal_store", "DIR", |s, path| s.verify.store = Some(path)),
    value("tree_cache", "SIZE", set_tree_cache),
    value("tree_readahead", "on|off", |s, v| choose(&mut s.verify.tree_readahead, v)),
    policy_for!("category.create", set_category(Category::Create)),
    policy_for!("create", set_category(Category::Create)),
    policy_for!("category.action", set_category(Category::Action)),
    policy_for!("action", set_category(Category::Action)),
    policy_for!("category.search", set_category(Category::Search)),
    policy_for!("search", set_category(Category::Search)),
    value("policy_for", "FUNC=POLICY", set_policy_for),
    policy_for!("func.create", set_function(Function::Create)),
    policy_for!("func.mkdir", set_function(Function::Mkdir)),
    policy_for!("func.mknod", set_function(Function::Mknod)),
    policy_for!("func.symlink", set_function(Function::Symlink)),
    policy_for!("func.rename", set_function(Function::Rename)),
    policy_for!("func.unlink", set_function(Function::Unlink)),
    policy_for!("func.getattr", set_function(Function::GetAttr)),
    value("branches_wait", "DURATION", set_branches_wait),
    value("branch_timeout", "DURATION", set_branch_timeout),
    flag("read_copies", |s| s.merge.read_copies = true),
    value("inodecalc", "WAY", set_inode_calc),
    value("inode_calc", "WAY", set_inode_calc),
    value("minfreespace", "SIZE", set_min_free),
    value("moveonenospc", "true|false|POLICY", set_move_on_full),
    value("move_on_full", "true|false|POLICY", set_move_on_full),
    value("passthrough_reserve", "SIZE", set_passthrough_reserve),
    value("entry_timeout", "SECONDS", set_timeout)
        .meaning("0 as `cache=none`, 1 as `cache=second`; other times are refused"),
    value("attr_timeout", "SECONDS", set_timeout)
        .meaning("0 as `cache=none`, 1 as `cache=second`; other times are refused"),
    value("negative_timeout", "0", set_no_negatives)
        .meaning("as `cache=none`, unless `cache=second` is set; other times are refused"),
    value("log", "error|warn|info|debug|trace", |s, v| choose(&mut s.log, v)),
    value("stall_after", "DURATION|off", set_stall_after),
    path("log_file", "FILE", |s, path| s.log_file = Some(path)),
    value("metrics_listen", "ADDR", set_metrics),
    flag("kernel_cache", |s| s.cache = CacheChoice::Auto).meaning("as `cache=auto`"),
    flag("auto_cache", |s| s.cache = CacheChoice::Auto).meaning("as `cache=auto`"),
    flag("direct_io", |s| s.cache = CacheChoice::None).meaning("as `cache=none`"),
    flag("clone_fd", |s| s.transport = TransportChoice::Cloned).meaning("as `transport=cloned`"),
    flag("io_uring", |s| s.transport = TransportChoice::Uring).meaning("as `transport=uring`"),
    value("io_uring_q_depth", "N", |s, v| number(&mut s.queue_depth, v)).meaning("as `queue_depth=N`"),
    value("max_threads", "N", |s, v| number(&mut s.threads, v)).meaning("as `threads=N`"),
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
    ignored("defaults", "has no effect"),
    ignored("comment", "a comment"),
    ignored("nonempty", "always on: a mount point may contain files, which are hidden while it is mounted"),
    ignored("async", "always on"),
    ignored("norelatime", "the lower file system handles atime in its own way"),
    ignored("lazytime", "the lower file system handles times in its own way"),
    ignored("silent", "for mount(8)"),
    ignored("loud", "for mount(8)"),
    ignored("big_writes", "always on"),
    ignored("large_read", "always on"),
    not_offered("allow_root", "access can only be given to all other users: allow_other"),
    not_offered(
        "auto_unmount",
        "a server that exits, by itself or on a signal, unmounts; after SIGKILL: shunt umount MNT",
    ),
    not_offered("remount", "unmount, then mount again"),
    not_offered("sync", "writers can request it at open: O_SYNC"),
    not_offered("dirsync", "set it on the lower folder: chattr +D"),
    not_offered("uid", "files keep their owner"),
    not_offered("gid", "files keep their group"),
    not_offered("umask", "files keep their mode"),
    not_offered("fscontext", "files keep their labels"),
    not_offered("defcontext", "files keep their labels"),
    not_offered("rootcontext", "files keep their labels"),
    not_offered("context", "files keep their labels"),
    not_offered("blksize", "the block size is that of the lower file system"),
    not_offered("remember", "nodes are kept as long as the kernel remembers them"),
    not_offered("noforget", "nodes are kept as long as the kernel remembers them"),
];

/// The options as the help of `shunt mount` shows them, below the flags.
#[must_use]
pub fn help() -> String {
    let mut text = String::from(
        "Each of these flags is also an option for -o, as in fstab, without its dashes: -o transport=uring,read_only.\n\n\
         Options for -o alone:\n",
    );
    let mut tell = |names: &[String], help: &str| {
        let rows = OPTIONS.iter().filter(|row| names.iter().any(|name| name == row.name));
        let names = rows.map(Row::spelled).collect::<Vec<_>>().join(", ");
        let _infallible = writeln!(text, "  {names:<42} {help}");
    };
    for one in SECTIONS.iter().flat_map(|section| &section.texts) {
        match &one.flag {
            None => tell(&one.options, &one.short()),
            Some(flag) if one.options.len() > 1 => tell(&one.options[1..], &format!("As --{flag}")),
            Some(_) => {}
        }
    }
    let named = OPTIONS.iter().filter(|row| !row.help.is_empty());
    let (ignored, others): (Vec<&Row>, Vec<&Row>) = named
        .filter(|row| !matches!(row.effect, Effect::NotOffered))
        .partition(|row| matches!(row.effect, Effect::Ignored));
    others.iter().for_each(|row| tell(&[row.name.to_owned()], row.help));
    let ignored: Vec<&str> = ignored.iter().map(|row| row.name).collect();
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

fn set_policy_for(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    let text = value.to_str().ok_or("a function and its policy")?;
    let (function, policy) = crate::cli::policy_for(text)?;
    settings.merge.set_function(function, policy);
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
    settings.merge.wait = Some(value.to_str().ok_or("a time".to_owned()).and_then(duration)?);
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

/// Reads how long a branch may take.
pub(crate) fn branch_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text).ok().filter(|time| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(time));
    timeout.ok_or_else(|| "a time from 500ms to 60m, such as 30s".to_owned())
}

fn set_replace_hung(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    settings.replace_hung = Some(value.to_str().ok_or("a time".to_owned()).and_then(replace_hung)?);
    Ok(())
}

/// The shortest time after which a server that reads nothing is replaced.
const HUNG_MIN: Duration = Duration::from_secs(1);

/// Reads after how long a server that reads nothing is replaced.
pub(crate) fn replace_hung(text: &str) -> Result<Duration, String> {
    let limit = duration(text).ok().filter(|time| (HUNG_MIN..=TIMEOUT_MAX).contains(time));
    limit.ok_or_else(|| "a time from 1s to 60m, such as 30s".to_owned())
}

/// The shortest time after which a request is told of.
const STALL_MIN: Duration = Duration::from_millis(100);

/// Reads after how long a request is told of, if ever.
pub(crate) fn stall_after(text: &str) -> Result<StallAfter, String> {
    if text == "off" {
        return Ok(StallAfter(None));
    }
    let time = duration(text).ok().filter(|time| (STALL_MIN..=TIMEOUT_MAX).contains(time));
    time.map(|time| StallAfter(Some(time))).ok_or_else(|| "`off`, or a time from 100ms to 60m".to_owned())
}

fn set_stall_after(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    settings.stall_after = value.to_str().ok_or("a time".to_owned()).and_then(stall_after)?;
    Ok(())
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
    settings.verify.tree_cache = Some(value.to_str().ok_or("a size".to_owned()).and_then(tree_cache)?);
    Ok(())
}

/// Reads how much memory blocks of hash trees may take.
pub(crate) fn tree_cache(text: &str) -> Result<u64, String> {
    // A number alone was one of MiB in earlier versions.
    size(text)
        .ok()
        .filter(|bytes| *bytes >= 1 << 20)
        .ok_or_else(|| "a size from 1M on, such as 64M".to_owned())
}

fn set_max_read(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    let bytes = value.to_str().and_then(|text| small_size(text).ok()).filter(|bytes| *bytes >= 4096);
    settings.mount.max_read = Some(bytes.ok_or("a size from 4K to less than 4G")?);
    Ok(())
}

fn set_max_readahead(settings: &mut Settings, value: &OsStr) -> Result<(), String> {
    let bytes = value.to_str().and_then(|text| small_size(text).ok());
    settings.mount.max_readahead = Some(bytes.ok_or("a size of less than 4G")?);
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

/// That a name does not exist is remembered by `default` alone.
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
    fn times_for_servers_are_read() {
        assert_eq!(replace_hung("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(replace_hung("60m"), Ok(Duration::from_secs(3600)));
        for text in ["", "off", "999ms", "61m", "0"] {
            assert!(replace_hung(text).is_err_and(|why| why.contains("1s to 60m")), "{text}");
        }
    }

    #[test]
    fn times_for_requests_are_read_and_survive() {
        for (text, time) in
            [("off", None), ("100ms", Some(100)), ("10", Some(10_000)), ("60m", Some(3_600_000))]
        {
            let after = StallAfter(time.map(Duration::from_millis));
            assert_eq!(stall_after(text), Ok(after), "{text}");
            assert_eq!(stall_after(&after.to_string()), Ok(after), "{text}");
        }
        for text in ["", "on", "99ms", "61m", "0"] {
            assert!(stall_after(text).is_err_and(|why| why.contains("100ms to 60m")), "{text}");
        }
    }

    #[test]
    fn times_for_branches_are_read_with_their_units() {
        for (text, ms) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1.5s", 1500),
            ("1h", 3_600_000),
        ] {
            assert_eq!(branch_timeout(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in
            ["", "s", "0", "499ms", "61m", "1h1m", "-1s", "+5s", "5 s", "0.4s", "2h", "99999999999999999999m"]
        {
            assert!(branch_timeout(text).is_err_and(|why| why.contains("500ms to 60m")), "{text}");
        }
    }
}
