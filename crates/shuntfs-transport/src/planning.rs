//! How many threads, queues and buffers a transport has, and what it will lack.

use shuntfs_sys::threads;

use crate::pools::{NoZeroCopy, NotPinned, Pools};
use crate::prepared::PrepareError;
use crate::settings::{Plan, QUIET_DEPTH, Settings, TransportKind};

/// What a transport is to have on this machine.
///
/// # Errors
/// [`PrepareError::PayloadCap`].
pub(crate) fn plan(
    kind: TransportKind,
    settings: &Settings,
    cpus: (usize, usize),
) -> Result<Plan, PrepareError> {
    Plan::new(kind, settings, cpus).ok_or_else(|| {
        let one = Settings { depth: 1, payload_cap: u64::MAX, ..*settings };
        let needed = Plan::new(kind, &one, cpus).map_or(u64::MAX, |plan| plan.payload_max());
        PrepareError::PayloadCap { needed, cap: settings.payload_cap }
    })
}

/// One ring has no more entries than this by default: neither the kernel's limit for a ring nor that for a table of pages is near.
pub(crate) const RING_SLOTS_MAX: usize = 4096;

/// For rings that another server can take over: all queues have the same room, as other CPUs may be online then.
pub(crate) fn kept_plan(settings: &Settings) -> Result<Plan, PrepareError> {
    let cpus = threads::possible_cpus() as usize;
    plan(TransportKind::Uring, settings, (cpus, cpus))
}

/// How many threads serve rings by default: one for each CPU that is online, and more only where each would have too many entries.
pub(crate) fn ring_threads(online: usize, possible: usize, depth: usize) -> usize {
    let entries = online * depth + possible.saturating_sub(online) * QUIET_DEPTH.min(depth);
    online.max(entries.div_ceil(RING_SLOTS_MAX))
}

/// Why there will be no zero copy, as far as that is known before the kernel is asked.
pub(crate) fn no_zero_copy(plan: &Plan) -> Option<NoZeroCopy> {
    match plan.settings.pools {
        _ if plan.kind != TransportKind::Uring => Some(NoZeroCopy::NoRing),
        Pools::Lacking => Some(NoZeroCopy::KernelLacks),
        Pools::Plain => Some(NoZeroCopy::TurnedOff),
        Pools::ZeroCopy => plan.pool.is_none().then_some(NoZeroCopy::NoPool),
    }
}

/// The same for pinned memory. The limit holds for whoever could go past it, too: it is how the administrator says how much memory may stay.
pub(crate) fn not_pinned(plan: &Plan) -> Option<NotPinned> {
    let Some(pool) = plan.pool else { return Some(NotPinned::NoPool) };
    let len = plan.called * pool.buffers * plan.settings.payload_len;
    let is_too_much = shuntfs_sys::limits::memlock().is_some_and(|limit| len as u64 > limit);
    match plan.settings.pin {
        false => Some(NotPinned::NotAsked),
        true => is_too_much.then_some(NotPinned::Limit),
    }
}
