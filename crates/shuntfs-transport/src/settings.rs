//! Which transport, how many queues, how much memory.

use std::fmt;
use std::str::FromStr;

use shuntfs_sys::threads;

use crate::pools::{PoolPlan, Pools};

/// How requests arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransportKind {
    /// One /dev/fuse descriptor, read by all queues.
    Device,
    /// One /dev/fuse descriptor a queue (`FUSE_DEV_IOC_CLONE`).
    Cloned,
    /// One io_uring a queue; FORGET, INTERRUPT and notifications stay on the device.
    Uring,
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::Cloned => "cloned",
            Self::Uring => "uring",
        })
    }
}

impl FromStr for TransportKind {
    type Err = UnknownTransport;

    fn from_str(name: &str) -> Result<Self, UnknownTransport> {
        let all = [Self::Device, Self::Cloned, Self::Uring];
        all.into_iter().find(|kind| kind.to_string() == name).ok_or_else(|| UnknownTransport(name.into()))
    }
}

/// A name that is no transport's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no transport: device, cloned and uring are")]
pub struct UnknownTransport(pub String);

/// Settings of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How many queues. Default (`None`): one a CPU on a device, from 2 to 8, and one a CPU that is online on
    /// io_uring. The kernel has one for each possible CPU there: one thread serves several of them where there are fewer threads.
    ///
    /// A queue is a thread. On a device another one goes on where a handler blocks its own, so only as many of them as there are
    /// queues stop a mount. On io_uring the kernel gives a caller's requests to the queue of the caller's CPU: a handler that
    /// blocks holds up whoever calls from there.
    pub queues: Option<usize>,
    /// How many requests a queue serves at once, 1 to 1024. Default: 32. On io_uring: entries for each of the
    /// kernel's queues. Readahead and asynchronous direct I/O go no deeper than this.
    pub depth: usize,
    /// Payload of a request in bytes, a multiple of 4096 from 8192 on; READ and WRITE are at most this long.
    /// Default: 1 MiB.
    pub payload_len: usize,
    /// What the payloads of all queues may become together, in bytes. Memory is used as requests need it and
    /// given back when a queue is idle; beyond the cap the depth is made smaller, and where even a depth of 1
    /// is too much, the transport is refused. Where the kernel's queues have pools, it is the pools that are made smaller, and requests wait
    /// for a buffer. On io_uring it is shared among the CPUs that are online: each of the others has a queue, too, which uses no memory as
    /// long as no caller runs there, and at most two payloads if that CPU comes online later. Default: 256 MiB, or 4 MiB for each CPU that is
    /// online where that is more.
    pub payload_cap: u64,
    /// Threads for work that blocks, at most. Default: 64.
    pub offload_threads: usize,
    /// Whether the threads stay like others of the process: with its capabilities and its umask, in its class, on every
    /// CPU. Default: no. For servers whose operations act as the process itself, or start threads, which inherit all of that.
    /// Cost: each request wakes another CPU more often. Such threads must not act as callers.
    pub plain_threads: bool,
    /// Whether queues that serve much go to the class `SCHED_IDLE` while they do, where the process may come back from there
    /// (`CAP_SYS_NICE`). Default: yes.
    pub sched_idle: bool,
    /// How much of each slot is always in memory. Default: nothing.
    pub warm: Warm,
    /// What of pools and zero copy must be asked for on io_uring: no more than the kernel offers. Default: nothing.
    pub pools: Pools,
    /// Whether the memory of pools is pinned, where the limit of locked memory allows that for all of them. The kernel then looks no page up
    /// when it copies a request or an answer. Cost: the memory is used from the start on and never given back, 32 MiB for each of the kernel's
    /// queues where the cap allows that. Default: no, as no gain was measured.
    pub pin: bool,
}

/// How much of each slot is always in memory. There the kernel never waits for a page in the middle of copying a request or an answer: a server that
/// is killed just then fails the caller with EIO, and no successor can help.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Warm {
    /// Nothing.
    #[default]
    Nothing,
    /// The first two pages, in which small requests and answers end. Cost: 8 KiB a slot.
    Start,
    /// The same, and on a device all of the slot that a request is read into, and of those that were since memory was last given back. Cost: the
    /// length of a payload for each thread that reads, also while nothing is asked for, and for each request that was under way at the same time.
    Read,
    /// All of it. Cost: that much memory, also while nothing is asked for.
    All,
}

impl Settings {
    /// How many threads read a device, or clones of it.
    #[must_use]
    pub fn device_queues(&self) -> usize {
        device_queues(self, threads::possible_cpus() as usize)
    }
}

fn device_queues(settings: &Settings, cpus: usize) -> usize {
    settings.queues.unwrap_or(cpus.clamp(2, DEVICE_QUEUES_MAX)).max(1)
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queues: None,
            depth: 32,
            payload_len: 1 << 20,
            payload_cap: payload_cap(threads::online_cpus().len()),
            offload_threads: 64,
            plain_threads: false,
            sched_idle: true,
            warm: Warm::Nothing,
            pools: Pools::Lacking,
            pin: false,
        }
    }
}

/// The default of [`Settings::payload_cap`]: on large machines, room for a few requests of each CPU.
fn payload_cap(online: usize) -> u64 {
    const LEAST: u64 = 256 << 20;
    const FOR_EACH: u64 = 4 << 20;
    LEAST.max(online as u64 * FOR_EACH)
}

/// What a transport will use, worked out from [`Settings`] and the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: TransportKind,
    /// Threads that serve requests.
    pub(crate) threads: usize,
    /// Queues of the kernel: possible CPUs on io_uring, else the same as `threads`.
    pub(crate) kernel_queues: usize,
    /// How many of them are of CPUs that are online. The others have no callers, unless their CPUs come online later.
    pub(crate) called: usize,
    /// With the depth and the payload that there will be.
    pub(crate) settings: Settings,
    /// The depth where each entry has a payload of its own.
    pub(crate) own_depth: usize,
    /// Where the kernel's queues are to have pools.
    pub(crate) pool: Option<PoolPlan>,
}

/// What one queue of the kernel is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueRoom {
    /// How many entries.
    pub(crate) depth: usize,
    /// How many of them have a payload of their own, where there is no pool.
    pub(crate) own_depth: usize,
    /// Nothing where there is no pool.
    pub(crate) pool: PoolPlan,
}

/// Slots of the thread that reads the device beside the rings.
pub(crate) const SIDE_DEPTH: usize = 2;
const DEVICE_QUEUES_MAX: usize = 8;
const DEPTH_MAX: usize = 1024;
/// How many entries the queue of a CPU that is not online has: one may wait for a lock that the other gives free.
pub(crate) const QUIET_DEPTH: usize = 2;

impl Plan {
    /// For a machine that may have so many CPUs, of which some are online. `None` where even a depth of 1 exceeds the cap.
    pub(crate) fn new(
        kind: TransportKind,
        settings: &Settings,
        (possible, online): (usize, usize),
    ) -> Option<Self> {
        let cpus = possible.max(1);
        let (threads, kernel_queues, called) = match kind {
            TransportKind::Uring => {
                (settings.queues.unwrap_or(cpus).clamp(1, cpus), cpus, online.clamp(1, cpus))
            }
            TransportKind::Device | TransportKind::Cloned => {
                let threads = device_queues(settings, cpus);
                (threads, threads, threads)
            }
        };
        let payload_len = settings.payload_len.max(8192).next_multiple_of(4096);
        let side = if kind == TransportKind::Uring { SIDE_DEPTH } else { 0 };
        let slots_max = usize::try_from(settings.payload_cap).unwrap_or(usize::MAX) / payload_len;
        let units = slots_max.saturating_sub(side) / called;
        let wanted = settings.depth.clamp(1, DEPTH_MAX);
        let own_depth = wanted.min(units);
        let pools = kind == TransportKind::Uring && settings.pools != Pools::Lacking;
        let pool = if pools { PoolPlan::new(wanted, units, payload_len) } else { None };
        let depth = if pool.is_some() { wanted } else { own_depth };
        let settings = Settings { depth, payload_len, ..*settings };
        (own_depth > 0).then_some(Self { kind, threads, kernel_queues, called, settings, own_depth, pool })
    }

    /// What the kernel's queue with this number is to have, where those with callers come first.
    pub(crate) fn room(&self, place: usize) -> QueueRoom {
        let none = PoolPlan { buffers: 0, spares: 0 };
        if place < self.called {
            let pool = self.pool.unwrap_or(none);
            return QueueRoom { depth: self.settings.depth, own_depth: self.own_depth, pool };
        }
        let pool = self.pool.map_or(none, |_| PoolPlan { buffers: 1, spares: 1 });
        QueueRoom {
            depth: self.settings.depth.min(QUIET_DEPTH),
            own_depth: self.own_depth.min(QUIET_DEPTH),
            pool,
        }
    }

    /// What the payloads can become with the CPUs that are online, in bytes.
    pub(crate) fn payload_max(&self) -> u64 {
        let side = if self.kind == TransportKind::Uring { SIDE_DEPTH } else { 0 };
        let of_queue = self.pool.map_or(self.own_depth, |pool| pool.buffers + pool.spares);
        ((self.called * of_queue + side) * self.settings.payload_len) as u64
    }

    /// Which of the kernel's queues a thread serves.
    pub(crate) fn queues_of(&self, thread: usize) -> impl Iterator<Item = usize> + use<> {
        (thread..self.kernel_queues).step_by(self.threads)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn plan(kind: TransportKind, settings: &Settings, cpus: usize) -> Option<Plan> {
        Plan::new(kind, settings, (cpus, cpus))
    }

    #[test]
    fn the_cap_bounds_the_payloads() {
        for (cpus, cap_mib, depth) in [(2, 256, 32), (64, 256, 3), (2, 8, 3), (200, 256, 1)] {
            let settings = Settings { payload_cap: cap_mib << 20, ..Settings::default() };
            let plan = plan(TransportKind::Uring, &settings, cpus).expect("fits");
            assert_eq!(plan.settings.depth, depth, "{cpus} CPUs, {cap_mib} MiB");
            assert!(plan.payload_max() <= cap_mib << 20);
        }
        let tight = Settings { payload_cap: 1 << 20, ..Settings::default() };
        assert_eq!(plan(TransportKind::Uring, &tight, 4), None);
        let settings = Settings { payload_cap: 256 << 20, ..Settings::default() };
        let of = |cpus| plan(TransportKind::Uring, &settings, cpus);
        assert_eq!(
            (of(254).is_some(), of(255)),
            (true, None),
            "a payload for each queue and two for the device"
        );
    }

    /// Entries cost next to nothing where payloads come from a pool, and where the kernel refuses it there are as many as without.
    #[test]
    fn the_cap_bounds_pools_and_not_entries() {
        for (cpus, cap_mib, own, buffers, spares) in
            [(2, 256, 32, 32, 8), (16, 256, 15, 12, 3), (64, 256, 3, 2, 1), (256, 1024, 3, 2, 1)]
        {
            let settings =
                Settings { payload_cap: cap_mib << 20, pools: Pools::ZeroCopy, ..Settings::default() };
            let of = |settings| plan(TransportKind::Uring, settings, cpus).expect("fits");
            let with = of(&settings);
            assert_eq!((with.settings.depth, with.own_depth), (32, own), "{cpus} CPUs, {cap_mib} MiB");
            assert_eq!(with.pool, Some(PoolPlan { buffers, spares }), "{cpus} CPUs, {cap_mib} MiB");
            assert!(with.payload_max() <= cap_mib << 20);
            let without = Settings { pools: Pools::Lacking, ..settings };
            assert_eq!(of(&without).settings.depth, own);
        }
        let settings = Settings { pools: Pools::ZeroCopy, payload_cap: 256 << 20, ..Settings::default() };
        let tight = plan(TransportKind::Uring, &settings, 200).expect("fits");
        assert_eq!((tight.pool, tight.settings.depth), (None, 1), "no room for a pool and a spare");
        assert_eq!(plan(TransportKind::Cloned, &settings, 2).expect("fits").pool, None);
    }

    /// A regression: a machine that might have 128 CPUs had no pools, and one that might have 255 no rings, however few were online.
    #[test]
    fn only_cpus_that_are_online_share_the_cap() {
        let none = PoolPlan { buffers: 0, spares: 0 };
        for (pools, pool, quiet_pool) in [
            (Pools::ZeroCopy, PoolPlan { buffers: 24, spares: 7 }, PoolPlan { buffers: 1, spares: 1 }),
            (Pools::Lacking, none, none),
        ] {
            let settings = Settings { payload_cap: 256 << 20, pools, ..Settings::default() };
            for possible in [8, 128, 256, 8192] {
                let plan = Plan::new(TransportKind::Uring, &settings, (possible, 8)).expect("fits");
                let depth = if pools == Pools::Lacking { 31 } else { 32 };
                assert_eq!(plan.room(7), QueueRoom { depth, own_depth: 31, pool }, "{possible}");
                let quiet = QueueRoom { depth: 2, own_depth: 2, pool: quiet_pool };
                assert_eq!(plan.room(8), quiet, "{possible}");
                assert!(plan.payload_max() <= 256 << 20);
            }
        }
    }

    /// On a machine where all of many CPUs are online, the default leaves room for a pool of each.
    #[test]
    fn the_default_cap_grows_with_the_machine() {
        for (online, mib) in [(1, 256), (64, 256), (65, 260), (256, 1024)] {
            assert_eq!(payload_cap(online), mib << 20, "{online} CPUs");
            let settings =
                Settings { payload_cap: payload_cap(online), pools: Pools::ZeroCopy, ..Settings::default() };
            let plan = plan(TransportKind::Uring, &settings, online).expect("fits");
            assert!(plan.pool.is_some_and(|pool| pool.buffers >= 2), "{online} CPUs: {plan:?}");
        }
    }

    #[test]
    fn every_queue_of_the_kernel_has_one_thread() {
        for threads in 1..=5 {
            let settings = Settings { queues: Some(threads), ..Settings::default() };
            let plan = plan(TransportKind::Uring, &settings, 5).expect("fits");
            let mut served: Vec<_> = (0..plan.threads).flat_map(|thread| plan.queues_of(thread)).collect();
            served.sort_unstable();
            assert_eq!(served, [0, 1, 2, 3, 4], "{threads} threads");
        }
    }
}
