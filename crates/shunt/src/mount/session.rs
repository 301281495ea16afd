//! The mount itself: a pool and its session, made from settings.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shuntfs::takeover::TakeoverError;
use shuntfs::{
    Filesystem, Flow, MountError, MountOptions, Name, NodeId, Reason, Session, SessionOptions, Transport,
    TransportKind,
};
use shuntfs_keeper::Seat;
use shuntfs_pool::policy::Function;
use shuntfs_pool::{
    AccessTime, BranchChange, Cache, Caller, Calls, Explanation, Facts, FlowWish, Ledger, Locks,
    MergeOptions, MoverError, MoverFacts, MoverNews, Observer, Pool, PoolError, PoolOptions,
};
use shuntfs_rules::FlowWord;
use shuntfs_seal::NodeIndex;
use shuntfs_sys::{Cap, caps};
use shuntfs_verified::{SealNote, Sealed, Seals};

use super::check::Target;
use super::kept::{Kept, SeatOf, Shows};
use super::verify::{Verifying, lets_pass, without_effect};
use crate::control::{Spot, What};
use crate::doctor::{self, access};
use crate::failure::Failure;
use crate::rules::{LiveRules, RuleSource};
use crate::serving::kept_options;
use crate::settings::{
    CacheChoice, FlowChoice, LocksChoice, PermissionsChoice, Settings, Switch, TransportChoice, VerifyChoice,
};

/// A mount that answers.
#[derive(Debug)]
pub(super) struct Mounted {
    session: Session,
    /// What shows the folder, where it is not its manifest.
    pub(super) pool: Option<Observer>,
    folder: PathBuf,
    flow: FlowChoice,
    passthrough_off: Option<Reason>,
    rules: Option<LiveRules>,
    verifying: Option<Verifying>,
    /// What was asked for does not go with the rest, and was changed.
    changed: Vec<String>,
    /// Of a server that a keeper started.
    seat: Option<SeatOf>,
}

impl Mounted {
    /// Mounts.
    ///
    /// # Errors
    /// Where the folder cannot be shown, or the mount cannot be.
    pub(super) fn start(target: &Target, settings: &Settings) -> Result<Self, Failure> {
        let mut verifying = Verifying::open(&target.source, settings)?;
        let required = verifying.as_ref().filter(|verifying| verifying.is_required());
        let (session, pool, rules) = if let Some(verifying) = required {
            let sealed = Sealed::new(verifying.seals(), lets_pass(settings));
            let mut settings = settings.clone();
            // What nobody vouches for grants no privileges, whatever was asked for.
            settings.mount.nosuid |= verifying.is_powerless();
            settings.mount.nodev |= verifying.is_powerless();
            (mount(sealed, target, &settings)?, None, None)
        } else {
            refuse_others(settings)?;
            refuse_trust(settings)?;
            let seals = verifying.as_ref().map(Verifying::seals);
            let (pool, rules) = open_pool(&pool_options(target, settings), settings, seals, None)?;
            let observer = pool.observer();
            if let (Some(verifying), Some(control)) = (&mut verifying, pool.seal_control()) {
                verifying.hand_over(control);
            }
            (mount(pool, target, settings)?, Some(observer), rules)
        };
        let passthrough_off = session.negotiated().passthrough_off.or_else(not_privileged);
        let folder = target.source.clone();
        let changed = if pool.is_some() { changed(target, settings) } else { Vec::new() };
        let flow = settings.flow;
        Ok(Self { session, pool, folder, flow, passthrough_off, rules, verifying, changed, seat: None })
    }

    /// Serves a mount that a keeper keeps: from its begin, or where another server died.
    ///
    /// # Errors
    /// Where that cannot be begun, or gone on with.
    pub(super) fn take_seat(kept: &Kept<'_>, settings: &Settings, seat: &Seat<'_>) -> Result<Self, Failure> {
        // The readahead is the keeper's to set, once.
        let options = SessionOptions { readahead: None, ..session_options(kept.target, settings) };
        let options = kept_options(options, not_privileged().is_some(), settings.takeover);
        let (session, pool, rules, verifying) = match kept.begin(settings)? {
            Shows::Pool { pool, rules, verifying } => {
                let observer = pool.observer();
                (seat.begin_surviving(Arc::new(pool), &options), Some(observer), rules, verifying)
            }
            Shows::Sealed(sealed, verifying) => {
                (seat.begin_surviving(Arc::new(sealed), &options), None, None, Some(verifying))
            }
        };
        let session = session.map_err(|error| of_takeover(&error))?;
        Ok(Self {
            passthrough_off: session.negotiated().passthrough_off.or_else(not_privileged),
            session,
            changed: if pool.is_some() { changed(kept.target, settings) } else { Vec::new() },
            pool,
            folder: kept.target.source.clone(),
            flow: settings.flow,
            rules,
            verifying,
            seat: Some(SeatOf::new(seat, kept.target, settings)),
        })
    }

    /// What is known of the keeper, where there is one.
    pub(super) fn seat(&self) -> Option<&SeatOf> {
        self.seat.as_ref()
    }

    /// What the user should know of how it turned out.
    pub(super) fn notes(&self, settings: &Settings) -> Vec<String> {
        let (ring, mut notes) = (self.is_ring(), self.less_than_asked(settings));
        notes.extend(self.verifying.iter().flat_map(Verifying::notes));
        notes.extend(self.rules.iter().flat_map(LiveRules::warnings).cloned());
        if self.pool.is_none() {
            notes.extend(without_effect(settings).map(str::to_owned));
            return notes;
        }
        notes.extend(self.changed.iter().cloned());
        notes.extend(self.cost_of_timeout(settings).map(str::to_owned));
        let wanted = matches!(self.flow, FlowChoice::Auto | FlowChoice::Passthrough);
        if let Some(reason) = self.passthrough_off.filter(|_| wanted) {
            let reason = crate::meaning::of_reason(reason);
            notes.push(format!("files flow by {}, not by passthrough: {reason}", self.moved_by_us()));
        }
        match self.flow {
            FlowChoice::Splice if ring => {
                notes.push(format!("on io_uring files flow by {}, not by splice", self.moved_by_us()));
            }
            FlowChoice::Relay if !ring => notes.push("on a device files flow by splice, not by relay".into()),
            _ => {}
        }
        notes
    }

    /// What `--branch-timeout` makes of the transport.
    fn cost_of_timeout(&self, settings: &Settings) -> Option<&'static str> {
        settings.merge.timeout?;
        match settings.transport {
            _ if is_on_rings(settings) => {
                Some("with --branch-timeout on io_uring each request about names takes another thread")
            }
            TransportChoice::Auto => Some(
                "with --branch-timeout requests come by cloned descriptors, because a ring's callers would wait for a disk that hangs",
            ),
            _ => None,
        }
    }

    /// Numbers of queues and requests that are not what was asked for.
    fn less_than_asked(&self, settings: &Settings) -> Vec<String> {
        let transport = self.session.status().transport;
        let (kind, mut notes) = (&transport.kind, Vec::new());
        let mut compare = |asked: Option<std::num::NonZeroUsize>, got: usize, what: &str, why: &str| {
            if let Some(asked) = asked.filter(|asked| asked.get() > got) {
                notes.push(format!("{asked} {what} were asked for, and there are {got}: {why}"));
            }
        };
        compare(settings.threads, transport.queues, "queues", &format!("{kind} has no use for more"));
        let depth = "1024 at most, and as many as fit the memory for payloads";
        compare(settings.queue_depth, transport.depth, "requests for each queue", depth);
        notes
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// The rules, where there are any.
    pub(super) fn rules(&self) -> Option<&LiveRules> {
        self.rules.as_ref()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the pool says of itself, where there is one.
    pub(super) fn facts(&self) -> Option<Facts> {
        self.pool.as_ref().map(Observer::facts)
    }

    /// Whether several branches are shown as one.
    pub(super) fn has_branches(&self) -> bool {
        self.pool.as_ref().is_some_and(Observer::has_branches)
    }

    /// Which branches something would go to that somebody does; `None` where there is one folder.
    ///
    /// # Errors
    /// Where nothing is known of the folder.
    pub(super) fn explain(
        &self,
        what: What,
        at: &Spot,
        caller: &Caller,
    ) -> Result<Option<Explanation>, String> {
        let Some(pool) = &self.pool else { return Ok(None) };
        let folder = NodeId::new(at.folder).ok_or("there is no such folder")?;
        let name = CString::new(at.name.as_os_str().as_bytes()).map_err(|_| "it is no name")?;
        let name = Name::new(&name).ok_or("the top is on every branch")?;
        pool.explain(folder, name, function_of(what), caller).map_err(|error| error.to_string())
    }

    /// Has branches come, go or change.
    ///
    /// # Errors
    /// Where it cannot be; then nothing has changed.
    pub(super) fn change_branches(&self, change: &BranchChange) -> Result<(), PoolError> {
        let pool = self.pool.as_ref().ok_or(PoolError::NotOfOneFolder)?;
        pool.change_branches(change).map(drop)
    }

    /// Has the mover run once.
    ///
    /// # Errors
    /// Why it does not run.
    pub(super) fn run_mover(
        &self,
        dry_run: bool,
        tell: &mut (dyn FnMut(MoverNews) -> bool + Send),
    ) -> Result<MoverFacts, MoverError> {
        self.pool.as_ref().ok_or(MoverError::NotOfOneFolder)?.run_mover(dry_run, tell)
    }

    /// How far the mover is, or how its last run ended.
    pub(super) fn mover(&self) -> Option<MoverFacts> {
        self.pool.as_ref().and_then(Observer::mover)
    }

    /// What is checked, where anything is.
    pub(super) fn verifying(&self) -> Option<&Verifying> {
        self.verifying.as_ref()
    }

    /// The seal of a node, where it has one that is checked.
    pub(super) fn seal_of(&self, node: u64) -> Option<SealNote> {
        match &self.pool {
            None => self.verifying.as_ref()?.seals().note_of(NodeIndex::from_inode(node)?),
            Some(pool) => pool.seal_of(NodeId::new(node)?),
        }
    }

    /// The flow of a node that is settled, and why.
    pub(super) fn settled(&self, node: u64) -> Option<(Flow, Reason)> {
        let flows = self.session.flow_of(NodeId::new(node)?)?;
        Some((flows.reads.flow, flows.reads.reason))
    }

    /// The flow that an open of a file would get which nobody has open, and why.
    pub(super) fn expected(&self) -> (Flow, Reason) {
        match self.flow {
            FlowChoice::Served => (Flow::Served, Reason::Wished),
            FlowChoice::Relay | FlowChoice::Splice => (self.moved_by_us(), Reason::Wished),
            FlowChoice::Auto | FlowChoice::Passthrough => match self.passthrough_off {
                None => (Flow::Passthrough, Reason::Wished),
                Some(reason) => (self.moved_by_us(), reason),
            },
        }
    }

    /// The flow that such an open would get for which a rule wishes for `wish`.
    pub(super) fn expected_for(&self, wish: Option<FlowWord>) -> (Flow, Reason) {
        match (wish, self.passthrough_off) {
            (None, _) => self.expected(),
            (Some(FlowWord::Served), _) => (Flow::Served, Reason::Wished),
            (Some(FlowWord::Splice), _) => (self.moved_by_us(), Reason::Wished),
            (Some(FlowWord::Passthrough), None) => (Flow::Passthrough, Reason::Wished),
            (Some(FlowWord::Passthrough), Some(reason)) => (self.moved_by_us(), reason),
        }
    }

    fn moved_by_us(&self) -> Flow {
        crate::meaning::moved_by(&self.session.status().transport)
    }

    fn is_ring(&self) -> bool {
        self.session.status().transport.kind == TransportKind::Uring.to_string()
    }
}

/// By whose policy it is picked where something is done. What else is changed is changed where it is shown.
fn function_of(what: What) -> Function {
    match what {
        What::Create => Function::Create,
        What::Mkdir => Function::Mkdir,
        What::Remove => Function::Unlink,
        What::Rename => Function::Rename,
        _ => Function::GetAttr,
    }
}

fn mount<F: Filesystem>(fs: F, target: &Target, settings: &Settings) -> Result<Session, Failure> {
    let path = target.at.path();
    let (mount, options) = (mount_options(&target.source, settings), session_options(target, settings));
    Session::mount(Arc::new(fs), &path, &mount, &options).map_err(|error| of_mount(&error))
}

/// The kernel registers backing files only for who has this capability over the whole machine; it says so at
/// the first open, and users should hear it before.
pub(crate) fn not_privileged() -> Option<Reason> {
    let privileged = caps::has_effective(Cap::SysAdmin) && doctor::in_first_user_namespace();
    (!privileged).then_some(Reason::NotPrivileged)
}

/// Refuses to let others in where they can change something and the server may not act as them: what they make would be the
/// server's user's.
pub(super) fn refuse_others(settings: &Settings) -> Result<(), Failure> {
    let may_act = caps::has_effective(Cap::Setuid) && caps::has_effective(Cap::Setgid);
    if may_act || !settings.mount.allow_other || settings.mount.read_only {
        return Ok(());
    }
    let why = "other users cannot be given access (allow_other): the server may not act as them, so files that they create would belong to it";
    Err(Failure::new(why).hint("mount as root, which has CAP_SETUID and CAP_SETGID, or read-only (ro)"))
}

/// Refuses to leave the check of permissions out where the lower file system would check as the server's user at one time and not at
/// another: a file is opened below when its bytes are needed.
pub(super) fn refuse_trust(settings: &Settings) -> Result<(), Failure> {
    // Whoever has the uid of another user gets in, without the capability that the server has.
    let is_root = shuntfs_sys::spawn::effective_uid() == 0 && caps::has_effective(Cap::DacOverride);
    if settings.permissions == PermissionsChoice::Kernel || is_root {
        return Ok(());
    }
    Err(Failure::new("permissions can only be left unchecked by root").hint("leave --permissions none out"))
}

/// Opens the pool, under rules where there are any; a file of rules with a mistake is no mount. Rules that are in the ledger are in force
/// already, whatever is in the file by now.
///
/// # Errors
/// Those of the rules, and of [`Pool::open_with`].
pub(super) fn open_pool(
    options: &PoolOptions,
    settings: &Settings,
    seals: Option<Arc<Seals>>,
    ledger: Option<Arc<Ledger>>,
) -> Result<(Pool, Option<LiveRules>), Failure> {
    let Some(file) = &settings.rules else {
        return Ok((Pool::open_with(options, None, seals).map_err(|error| of_pool(&error))?, None));
    };
    let source = RuleSource::new(file, settings.view.clone())?.with_seal(seals.is_some());
    let (rules, in_force) =
        match ledger.as_ref().map(|ledger| ledger.rules()).filter(|words| !words.is_empty()) {
            Some(words) => source.again(&words)?,
            None => source.read()?,
        };
    let warnings = source.warnings(&rules);
    let earlier = ledger.as_ref().map(|ledger| ledger.earlier()).unwrap_or_default();
    let options = PoolOptions { earlier, ..options.clone() };
    let pool = Pool::open_with(&options, Some(rules), seals).map_err(|error| of_pool(&error))?;
    let rules = pool.rule_control().map(|control| LiveRules::new(source, control, warnings));
    let rules = rules.map(|rules| match &ledger {
        Some(ledger) => {
            pool.keep_in(Arc::clone(ledger));
            rules.kept_in(Arc::clone(ledger), in_force)
        }
        None => Ok(rules),
    });
    Ok((pool, rules.transpose()?))
}

/// What the kernel may keep. A view stands beside another mount of the folder, through which it changes: what the
/// kernel kept of names, and the paths that rules go by, would be wrong from then on.
fn cache_of(target: &Target, settings: &Settings) -> Cache {
    match settings.cache {
        _ if settings.view.is_some() => Cache::None,
        CacheChoice::Auto if target.branches.is_some() => Cache::Second,
        CacheChoice::Auto | CacheChoice::Default => Cache::Default,
        CacheChoice::Second => Cache::Second,
        CacheChoice::None => Cache::None,
    }
}

/// What was changed of that, and what should be.
fn changed(target: &Target, settings: &Settings) -> Vec<String> {
    let mut notes = Vec::new();
    if settings.view.is_some() && settings.cache != CacheChoice::None {
        notes.push(
            "a view is mounted with --cache none, because the folder changes through other mounts, too"
                .into(),
        );
    }
    if cache_of(target, settings) == Cache::Default
        && let Some(other) = shown_elsewhere(&target.source)
    {
        let other = other.display();
        notes.push(format!(
            "SRC is shown at {other}, too: what changes there shows here late or never, and rules go by names that may be gone; \
             where both are written, mount both with --cache none"
        ));
    }
    notes
}

/// Another mount of the folder by this program. It is told by what it calls its source, which somebody may have changed: this
/// is for a note, and decides nothing.
fn shown_elsewhere(source: &Path) -> Option<PathBuf> {
    let all = shuntfs_sys::mounts().unwrap_or_default();
    let mut of_source = all.into_iter().filter(|mount| {
        mount.fs_type == "fuse.shunt"
            && Path::new(&mount.source) == source
            && !mount.super_options.starts_with("ro")
    });
    // The last is the one that was just made.
    of_source.next_back()?;
    of_source.next().map(|mount| mount.mount_point)
}

pub(super) fn pool_options(target: &Target, settings: &Settings) -> PoolOptions {
    let mut options = PoolOptions::new(&target.source);
    options.merge = target.branches.clone().map(|branches| {
        let (asked, defaults) = (&settings.merge, MergeOptions::new(branches));
        MergeOptions {
            create: asked.create.unwrap_or(defaults.create),
            action: asked.action.unwrap_or(defaults.action),
            search: asked.search.unwrap_or(defaults.search),
            functions: asked.functions.clone(),
            min_free: asked.min_free.unwrap_or(defaults.min_free),
            inode_calc: asked.inode_calc.unwrap_or_default(),
            timeout: asked.timeout,
            read_copies: asked.read_copies,
            move_on_full: asked.move_on_full.unwrap_or_default(),
            passthrough_reserve: asked.passthrough_reserve,
            ..defaults
        }
    });
    if settings.merge.timeout.is_some() && is_on_rings(settings) {
        // A ring's queue that waits for a disk holds up its CPU's callers, and nobody else reads for it.
        options.calls = Calls::Offload;
    }
    options.cache = cache_of(target, settings);
    options.locks = match settings.locks {
        LocksChoice::Kernel => Locks::Kernel,
        LocksChoice::Lower => Locks::Lower,
    };
    options.flow = match settings.flow {
        FlowChoice::Auto | FlowChoice::Passthrough => FlowWish::Passthrough,
        FlowChoice::Relay | FlowChoice::Splice => FlowWish::Relay,
        FlowChoice::Served => FlowWish::Served,
    };
    options.read_only = settings.mount.read_only;
    options.access_times = settings.mount.access_times;
    options.handles = settings.handles;
    options.checks_permissions = settings.permissions == PermissionsChoice::Kernel;
    options.xattrs = settings.xattrs == Switch::On;
    options
}

/// How long the source of a mount may be that the list of mounts shows, in bytes (`fsconfig`, `fs/fsopen.c`, Linux 6.18).
pub(super) const SOURCE_MAX: usize = 255;

/// A source that is not too long: the beginning of a longer one, as of many branches, and three dots.
fn cut(source: String) -> String {
    const DOTS: &str = "...";
    if source.len() <= SOURCE_MAX {
        return source;
    }
    let mut end = SOURCE_MAX - DOTS.len();
    while !source.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{DOTS}", &source[..end])
}

pub(super) fn mount_options(source: &Path, settings: &Settings) -> MountOptions {
    let flags = &settings.mount;
    let text = |name: &std::ffi::OsStr| name.to_string_lossy().into_owned();
    let defaults = MountOptions::default();
    MountOptions {
        source: cut(text(flags.fsname.as_deref().unwrap_or(source.as_os_str()))),
        subtype: flags.subtype.as_deref().map(text).unwrap_or(defaults.subtype),
        allow_other: flags.allow_other,
        default_permissions: settings.permissions == PermissionsChoice::Kernel,
        read_only: flags.read_only,
        nosuid: flags.nosuid,
        nodev: flags.nodev,
        noexec: flags.noexec,
        noatime: flags.access_times.kept == Some(AccessTime::Never),
        max_read: flags.max_read,
        auto_unmount: false,
    }
}

/// Whether requests come by io_uring because somebody asked for that.
fn is_on_rings(settings: &Settings) -> bool {
    settings.transport == TransportChoice::Uring || settings.takeover.is_on_rings()
}

pub(super) fn session_options(target: &Target, settings: &Settings) -> SessionOptions {
    let (defaults, room) = (SessionOptions::default(), room_for_waiters(settings));
    // What is moved to another branch below is to free its space, so nothing is held that is not open.
    let may_move_below = target.branches.is_some() && cache_of(target, settings) != Cache::Default;
    SessionOptions {
        transport: match settings.transport {
            TransportChoice::Auto if settings.merge.timeout.is_some() => {
                Transport::Only(TransportKind::Cloned)
            }
            TransportChoice::Auto => Transport::Auto,
            TransportChoice::Device => Transport::Only(TransportKind::Device),
            TransportChoice::Cloned => Transport::Only(TransportKind::Cloned),
            TransportChoice::Uring => Transport::Only(TransportKind::Uring),
        },
        queues: settings.threads.map(usize::from).or_else(|| queues_beside_disks(settings)),
        depth: settings.queue_depth.map_or(room.depth, usize::from),
        sched_idle: settings.sched_idle == Switch::On,
        zero_copy: settings.zero_copy == Switch::On,
        // A rule may wish for it where the mount does not.
        passthrough: settings.rules.is_some()
            || matches!(settings.flow, FlowChoice::Auto | FlowChoice::Passthrough),
        readahead: readahead(settings, &room),
        stall_after: settings.stall_after.0,
        backing_ids_kept: if may_move_below { 0 } else { defaults.backing_ids_kept },
        offload_threads: offload_threads(settings, &defaults),
        ..room
    }
}

/// Where disks may hang, those that wait for one must not be all.
fn offload_threads(settings: &Settings, defaults: &SessionOptions) -> usize {
    const BESIDE_DISKS: usize = 256;
    if settings.merge.timeout.is_some() { BESIDE_DISKS } else { defaults.offload_threads }
}

/// Where disks may hang, more queues than serve at once: each of those may be held by the disk before somebody notices, and another one goes on.
fn queues_beside_disks(settings: &Settings) -> Option<usize> {
    const SPARE: usize = 2;
    let on_device = settings.merge.timeout.is_some() && !is_on_rings(settings);
    let cpus = usize::try_from(shuntfs_sys::threads::possible_cpus()).unwrap_or(1);
    on_device.then(|| cpus.clamp(2, 8) + SPARE)
}

/// As far as one READ is long, because each is a round trip: the kernel's own choice is an eighth of that. Only root may change it. What
/// is checked stays with the kernel's: its queue hashes a READ of that length at once.
pub(super) fn readahead(settings: &Settings, room: &SessionOptions) -> Option<u64> {
    let asked = settings.mount.max_readahead.map(u64::from);
    let may = shuntfs_sys::spawn::effective_uid() == 0;
    let by_us = may && settings.mount.max_read.is_none() && settings.verify.what == VerifyChoice::Off;
    asked.or(by_us.then_some(room.payload_len as u64))
}

/// Requests of a queue that are left where all that may wait for locks do.
const BESIDE_WAITERS: usize = 16;

/// Each process that waits for a lock kept below holds a request of its queue: there must be more of them than
/// the pool lets wait, whatever CPU they run on. Shorter requests pay for it in memory.
fn room_for_waiters(settings: &Settings) -> SessionOptions {
    let defaults = SessionOptions::default();
    if settings.locks == LocksChoice::Kernel {
        return defaults;
    }
    let depth = PoolOptions::new("").lock_waiters + BESIDE_WAITERS;
    let payload_len = 256 << 10;
    // On a device there are two queues on one CPU, too.
    let queues = (shuntfs_sys::threads::online_cpus().len() as u64).max(2);
    let all = depth as u64 * payload_len as u64 * queues;
    SessionOptions { depth, payload_len, payload_cap: defaults.payload_cap.max(all + (1 << 20)), ..defaults }
}

pub(super) fn of_pool(error: &PoolError) -> Failure {
    Failure::new(format!("SRC cannot be shown: {error}"))
}

pub(crate) fn of_takeover(error: &TakeoverError) -> Failure {
    match error {
        TakeoverError::Mount(error) => of_mount(error),
        error => Failure::new(error.to_string()),
    }
}

pub(crate) fn of_mount(error: &MountError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        MountError::NoDevice => Failure::new("there is no /dev/fuse").hint(access::MISSING_DEVICE),
        MountError::DeviceDenied(_) => failure.hint(access::CLOSED_DEVICE),
        MountError::Refused { error: shuntfs_sys::MountError::NoFusermount, .. } => {
            failure.hint(access::NO_FUSERMOUNT)
        }
        MountError::Refused { error, .. } if error.errno() == shuntfs_sys::OsError::PERM => {
            failure.hint("mount as root, or at a folder of your own")
        }
        MountError::Transport { .. } => failure.hint("leave --transport out, and see shunt doctor"),
        _ => failure,
    }
}
