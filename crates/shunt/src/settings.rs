//! What a mount must be: the meaning of everything that was typed.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use shuntfs_pool::policy::{Category, Function, Policy};
use shuntfs_pool::{AccessTimes, InodeCalc, MoveOnFull};
use shuntfs_seal::TreeName;
use shuntfs_verity::Digest;

use crate::failure::Failure;

/// How requests arrive.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum TransportChoice {
    /// The best that this machine offers; `shunt status` says which and why.
    #[default]
    Auto,
    /// One /dev/fuse descriptor.
    Device,
    /// One cloned /dev/fuse descriptor for each queue.
    Cloned,
    /// FUSE over io_uring, one ring for each queue.
    Uring,
}

/// Which flow opens wish for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum FlowChoice {
    /// Passthrough where it is available, else the next best; `shunt why FILE` says which and why.
    #[default]
    Auto,
    /// As `auto`, and a warning where the kernel or a missing privilege forbids it.
    Passthrough,
    /// The server's queue moves the bytes without looking at them; on a device transport this is `splice`.
    Relay,
    /// The kernel moves the bytes through a pipe of the server; on io_uring this is `relay`.
    Splice,
    /// The file system's own read and write.
    Served,
}

/// What the kernel may remember.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum CacheChoice {
    /// As `default` for one folder, and as `second` for several, whose users change the branches themselves.
    #[default]
    Auto,
    /// Names, attributes, symlinks, folders and pages: right where changes come through the mount.
    Default,
    /// Names and attributes for a second: right where others change the source folder meanwhile, and a second makes no difference; with rules
    /// or seals as `none`.
    Second,
    /// Nothing: right where others change the source folder meanwhile.
    None,
}

/// Where file locks hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum LocksChoice {
    /// Between processes on the mount: the kernel keeps them, at no cost.
    #[default]
    Kernel,
    /// On the lower files, so that processes beside the mount see them, too.
    Lower,
}

/// What happens to a mount whose server dies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum TakeoverChoice {
    /// It breaks: callers get errors.
    #[default]
    Off,
    /// Another server goes on, and callers see a pause.
    Crash,
    /// It breaks, but its program can be replaced by another while files stay open: on io_uring, where nothing more is possible.
    Upgrade,
}

impl TakeoverChoice {
    /// Whether there is a keeper.
    #[must_use]
    pub fn has_keeper(self) -> bool {
        self != Self::Off
    }

    /// Whether requests come by io_uring because of it.
    #[must_use]
    pub fn is_on_rings(self) -> bool {
        self == Self::Upgrade
    }
}

/// Who checks permissions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum PermissionsChoice {
    /// The kernel, as on any file system.
    #[default]
    Kernel,
    /// Nobody: whoever gets in may do what root may.
    None,
}

/// Something that is so unless it is turned off.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum Switch {
    /// It is.
    #[default]
    On,
    /// It is not.
    Off,
}

/// What is checked against its seal.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum VerifyChoice {
    /// Everything: names, attributes and bytes are those of the seal, and what is not sealed does not exist.
    Required,
    /// What is sealed; other files are as always.
    IfSealed,
    /// Nothing.
    #[default]
    Off,
}

/// Whether hash trees are read ahead.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum TreeReadaheadChoice {
    /// Of a sequential reader.
    #[default]
    On,
    /// Never: each block when it is needed first.
    Off,
}

/// Whose seals are taken; anybody's where nothing is said.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct TrustSettings {
    /// Files of public keys.
    pub keys: Vec<PathBuf>,
    /// How many of them must have signed; one where not said.
    pub threshold: Option<NonZeroUsize>,
    /// The one digest that is taken.
    pub digest: Option<Digest>,
    /// The one tree that is taken.
    pub tree: Option<TreeName>,
    /// The trust store with keys and seen serials.
    pub store: Option<PathBuf>,
}

/// What is checked, and by whose word.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct VerifySettings {
    /// What is checked.
    pub what: VerifyChoice,
    /// Whose seals are taken.
    pub trust: TrustSettings,
    /// Where the seal is; in the source folder where not said.
    pub store: Option<PathBuf>,
    /// Memory for verified tree blocks, in bytes; the default where not said.
    pub tree_cache: Option<u64>,
    /// Whether hash trees are read ahead.
    pub tree_readahead: TreeReadaheadChoice,
}

/// Which of several branches are picked; as mergerfs does by default where nothing is said.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct MergeSettings {
    /// Where new things are made.
    pub create: Option<&'static Policy>,
    /// Where names are removed and moved.
    pub action: Option<&'static Policy>,
    /// Which of several with one name is shown.
    pub search: Option<&'static Policy>,
    /// Policies of single functions, which go before that of their category.
    pub functions: Vec<(Function, &'static Policy)>,
    /// How many bytes something new must leave free.
    pub min_free: Option<u64>,
    /// Whether a file is moved when its branch is full, and by which policy.
    pub move_on_full: Option<MoveOnFull>,
    /// How many bytes must be free for each file that is open for writing in passthrough.
    pub passthrough_reserve: Option<u64>,
    /// What inode numbers go by.
    pub inode_calc: Option<InodeCalc>,
    /// How long it is waited at the start until the disks of all branches are there.
    pub wait: Option<Duration>,
    /// How long a branch may take before it is set aside.
    pub timeout: Option<Duration>,
    /// Whether a file that cannot be read goes on with another copy.
    pub read_copies: bool,
}

impl MergeSettings {
    /// Whether anything was said.
    pub(crate) fn is_asked(&self) -> bool {
        *self != Self::default()
    }

    /// Gives all functions of a category a policy: as in mergerfs, what was said of one of them before holds no more.
    pub(crate) fn set_category(&mut self, category: Category, policy: &'static Policy) {
        self.functions.retain(|(function, _)| function.category() != category);
        let place = match category {
            Category::Create => &mut self.create,
            Category::Action => &mut self.action,
            _ => &mut self.search,
        };
        *place = Some(policy);
    }

    /// Gives one function a policy.
    pub(crate) fn set_function(&mut self, function: Function, policy: &'static Policy) {
        self.functions.retain(|(other, _)| *other != function);
        self.functions.push((function, policy));
    }
}

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug, ValueEnum)]
#[non_exhaustive]
pub enum LevelChoice {
    /// Errors.
    Error,
    /// And warnings.
    Warn,
    /// And what the mount does once: start, transport, downgrades, end.
    #[default]
    Info,
    /// And what it does seldom.
    Debug,
    /// And each request.
    Trace,
}

/// After how long the log tells of a request that is under way; never where there is no time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StallAfter(pub Option<Duration>);

impl Default for StallAfter {
    fn default() -> Self {
        Self(Some(Duration::from_secs(10)))
    }
}

impl std::fmt::Display for StallAfter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(time) => write!(f, "{}ms", time.as_millis()),
            None => f.write_str("off"),
        }
    }
}

/// Everything that was asked of one mount, besides its source folder and its mount point.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How requests arrive.
    pub transport: TransportChoice,
    /// Which flow opens wish for.
    pub flow: FlowChoice,
    /// Number of queues; by the machine where not said.
    pub threads: Option<NonZeroUsize>,
    /// Requests that one queue may hold; by the transport where not said.
    pub queue_depth: Option<NonZeroUsize>,
    /// What happens to it when its server dies.
    pub takeover: TakeoverChoice,
    /// After how long a server that reads no requests is replaced; never where not said.
    pub replace_hung: Option<Duration>,
    /// What the kernel may remember.
    pub cache: CacheChoice,
    /// Where file locks hold.
    pub locks: LocksChoice,
    /// Whether handles of files outlive what the kernel remembers, and the mount.
    pub handles: bool,
    /// Who checks permissions.
    pub permissions: PermissionsChoice,
    /// Whether files have extended attributes. Otherwise no ACL is enforced, the kernel does not ask for them before it writes, and
    /// nobody else gets an answer.
    pub xattrs: Switch,
    /// Whether queues that serve much go to `SCHED_IDLE`.
    pub sched_idle: Switch,
    /// Whether bytes that the server need not see may be moved by zero copy.
    pub zero_copy: Switch,
    /// What the kernel is told at the mount.
    pub mount: MountFlags,
    /// The file of rules, where there is one.
    pub rules: Option<PathBuf>,
    /// The view that is shown; the one without a name where not said.
    pub view: Option<String>,
    /// What is checked against its seal.
    pub verify: VerifySettings,
    /// Which of several branches are picked.
    pub merge: MergeSettings,
    /// How much is logged.
    pub log: LevelChoice,
    /// After how long a request that is under way is told of.
    pub stall_after: StallAfter,
    /// Where it is logged; to standard error or the system log where not said.
    pub log_file: Option<PathBuf>,
    /// Where scrapes are answered; nowhere where not said.
    pub metrics: Option<SocketAddr>,
}

impl Settings {
    /// Refuses to leave out what keeps somebody from something, where there is somebody to keep.
    ///
    /// # Errors
    /// Where others have access, or rules and seals are asked.
    pub(crate) fn check_trust(&self) -> Result<(), Failure> {
        let sealed = self.verify.what != VerifyChoice::Off;
        if !(self.mount.allow_other || self.rules.is_some() || sealed) {
            return Ok(());
        }
        let (flag, why) = match (self.permissions, self.xattrs) {
            (PermissionsChoice::None, _) => ("--permissions none", "nobody would check what others may do"),
            (_, Switch::Off) => ("--xattrs off", "without extended attributes no ACL keeps others out"),
            _ => return Ok(()),
        };
        Err(Failure::usage(why).hint(format!("leave {flag} out, or --allow-other, --rules and --verify")))
    }
}

/// What the kernel is told at the mount.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "mount flags are independent of each other, each a word in fstab"
)]
pub struct MountFlags {
    /// Nothing may be written.
    pub read_only: bool,
    /// Set-uid and set-gid bits have no effect.
    pub nosuid: bool,
    /// Device files have no effect.
    pub nodev: bool,
    /// Nothing may be executed.
    pub noexec: bool,
    /// When what is read gets a new time of access.
    pub access_times: AccessTimes,
    /// Other users than the one who mounts get in.
    pub allow_other: bool,
    /// What stands as source in the list of mounts; the source folder where not said.
    pub fsname: Option<OsString>,
    /// What follows `fuse.` as type in the list of mounts; `shunt` where not said.
    pub subtype: Option<OsString>,
    /// The most bytes that one READ asks for.
    pub max_read: Option<u32>,
    /// How many bytes the kernel reads ahead of a sequential reader.
    pub max_readahead: Option<u32>,
}
