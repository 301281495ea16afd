//! A transport's life: prepared before INIT is answered, started after, joined when the connection ends.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use shuntfs_runtime::{OffloadPool, Queue, QueueParts, Ready, Slots};
use shuntfs_sys::OsError;
use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::threads::MachineCpus;
use shuntfs_sys::uring::Ring;
use shuntfs_sys::{sched, threads};
use thiserror::Error;

use crate::board::KeptSeat;
use crate::device::{Blocking, DeviceSeat};
use crate::exchange::{Done, Exchange};
use crate::interrupts::Interrupts;
use crate::kept::{Held, KeptRings};
use crate::meter::{Gauges, Meter};
use crate::planning::{kept_plan, no_zero_copy, not_pinned, plan, ring_threads};
use crate::pools::{NoZeroCopy, NotPinned, Pinned, Pools, Step, ZeroCopy};
use crate::readers::Readers;
use crate::ring::RingSeat;
use crate::ring_way::RingPlan;
use crate::settings::{Plan, SIDE_DEPTH, Settings, TransportKind, Warm};
use crate::slot::{PAGE, WARM, slot_len};
use crate::underway::{StallSink, StallWatch};
use crate::watch::{May, Watcher};

/// Why a transport is not available. Nothing has happened to the connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// Even one request a queue needs more payload memory than the cap allows.
    #[error("{needed} bytes of payload memory are needed at least, and the cap is {cap}")]
    PayloadCap {
        /// For a depth of 1.
        needed: u64,
        /// The setting.
        cap: u64,
    },
    /// No ring could be made.
    #[error(
        "io_uring is unavailable ({0}): a container or kernel.io_uring_disabled forbids it, or the kernel is too old"
    )]
    Ring(#[source] OsError),
    /// The device could not be cloned.
    #[error("the device cannot be cloned ({0})")]
    Clone(#[source] OsError),
    /// A thread cannot be kept from acting with more rights than its callers have.
    #[error("a thread cannot act as the server's callers ({0})")]
    Identity(#[source] OsError),
    /// Rings that a predecessor served cannot be gone on with.
    #[error(
        "this server would have other rings, or other slots, or its predecessor was not replaced as planned"
    )]
    Kept,
    /// Memory, a descriptor or a thread was not available.
    #[error("{what} could not be had ({error})")]
    Resource {
        /// Which.
        what: &'static str,
        /// Why.
        #[source]
        error: OsError,
    },
}

/// Why a prepared transport did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A thread died between the two steps.
    #[error("a queue's thread ended before it was started")]
    ThreadEnded,
}

/// A transport with its threads, rings and memory, waiting for INIT to be answered.
#[derive(Debug)]
pub struct Prepared {
    plan: Plan,
    seats: Vec<SeatHandle>,
    watcher: Watcher,
    rings_serve: Arc<AtomicBool>,
    zero_copy: Arc<ZeroCopy>,
    pinned: Arc<Pinned>,
    kept: Option<(Arc<KeptRings>, bool)>,
}

#[derive(Debug)]
struct SeatHandle {
    job: mpsc::Sender<Job>,
    thread: JoinHandle<()>,
    is_ring: bool,
}

type Job = Box<dyn FnOnce(Seat) + Send>;

enum Seat {
    Device(Box<DeviceSeat>),
    Ring(RingSeat),
}

/// What every thread of a connection shares.
#[derive(Clone)]
struct Shared {
    device: Arc<FuseDevice>,
    /// What the threads after the first one read.
    clones: Arc<[Arc<FuseDevice>]>,
    pool: Arc<OffloadPool>,
    registry: Arc<Interrupts>,
    readers: Arc<Readers>,
    blocking: Arc<Blocking>,
    gauges: Arc<Gauges>,
    /// Whether rings serve all that waits for an answer.
    rings_serve: Arc<AtomicBool>,
    zero_copy: Arc<ZeroCopy>,
    pinned: Arc<Pinned>,
    /// The CPUs that were online when the threads were made.
    online: Arc<[usize]>,
    /// Where another server can take the rings over, and whether this one has.
    kept: Option<(Arc<KeptRings>, bool)>,
}

/// A transport at work.
#[derive(Debug)]
pub struct Running {
    threads: Mutex<Vec<JoinHandle<()>>>,
    refused: Option<OsError>,
}

impl Prepared {
    /// Makes threads, rings and memory. The connection is not touched, but for clones of the device.
    ///
    /// # Errors
    /// What was not available; another transport may then be tried.
    pub fn prepare(
        kind: TransportKind,
        device: &Arc<FuseDevice>,
        settings: &Settings,
    ) -> Result<Self, PrepareError> {
        let MachineCpus { possible, online } = device.cpus();
        let rings = ring_threads(online.len(), possible, settings.depth);
        let few = Settings { queues: settings.queues.or(Some(rings)), ..*settings };
        let settings = if kind == TransportKind::Uring { &few } else { settings };
        let plan = plan(kind, settings, (possible, online.len()))?;
        let clones = if kind == TransportKind::Cloned { plan.threads - 1 } else { 0 };
        let clones = (0..clones).map(|_| device.clone_of().map(Arc::new)).collect::<Result<Arc<[_]>, _>>();
        Self::build((plan, online), device, clones.map_err(PrepareError::Clone)?, None)
    }

    /// Rings that another server can take over, or, where every slot of them holds something, takes over itself ([`KeptRings`]). They
    /// have no descriptors, no pools and no zero copy.
    ///
    /// # Errors
    /// As [`Prepared::prepare`]; [`PrepareError::Kept`] where this server would have others.
    pub fn on_kept_rings(
        device: &Arc<FuseDevice>,
        settings: &Settings,
        rings: Arc<KeptRings>,
        follows: bool,
    ) -> Result<Self, PrepareError> {
        let settings = Settings { pools: Pools::Lacking, ..rings.settings(settings) };
        let plan = kept_plan(&settings)?;
        let slots = plan.kernel_queues * plan.own_depth;
        let is_whole = |slot| matches!(rings.held(slot), Some(Held::Nothing | Held::Request | Held::Answer));
        if !rings.fits(&plan) || (follows && !(rings.are_full() && (0..slots).all(is_whole))) {
            return Err(PrepareError::Kept);
        }
        Self::build((plan, threads::online_cpus()), device, Arc::default(), Some((rings, follows)))
    }

    /// The same on descriptors of one connection that were cloned before, or that a predecessor leaves: each gets a thread. Where there
    /// are no clones, as many threads as the settings say read the device.
    ///
    /// # Errors
    /// As [`Prepared::prepare`].
    pub fn on(
        device: &Arc<FuseDevice>,
        clones: &[Arc<FuseDevice>],
        settings: &Settings,
    ) -> Result<Self, PrepareError> {
        if clones.is_empty() {
            return Self::prepare(TransportKind::Device, device, settings);
        }
        let settings = Settings { queues: Some(clones.len() + 1), ..*settings };
        let MachineCpus { possible, online } = device.cpus();
        let plan = plan(TransportKind::Cloned, &settings, (possible, online.len()))?;
        Self::build((plan, Vec::new()), device, clones.into(), None)
    }

    fn build(
        (plan, online): (Plan, Vec<usize>),
        device: &Arc<FuseDevice>,
        clones: Arc<[Arc<FuseDevice>]>,
        kept: Option<(Arc<KeptRings>, bool)>,
    ) -> Result<Self, PrepareError> {
        let is_uring = plan.kind == TransportKind::Uring;
        let (rings, device_threads) = if is_uring { (plan.threads, 1) } else { (0, plan.threads) };
        let plain = plan.settings.plain_threads;
        let gauges = Gauges::new(rings + device_threads).map_err(lacks("a timer"))?;
        let shared = Shared {
            device: Arc::clone(device),
            clones,
            pool: OffloadPool::new(plan.settings.offload_threads, move || {
                if !plain {
                    leave_queue();
                }
            }),
            registry: Arc::new(
                kept.as_ref().map_or_else(Interrupts::default, |(rings, _)| Interrupts::on(rings)),
            ),
            readers: Readers::new(device_threads),
            blocking: Arc::default(),
            gauges,
            rings_serve: Arc::default(),
            zero_copy: Arc::new(ZeroCopy::new(no_zero_copy(&plan))),
            pinned: Arc::new(Pinned::new(not_pinned(&plan))),
            online: online.into(),
            kept,
        };
        let spawn = |thread| SeatHandle::spawn(plan, thread, thread < rings, &shared);
        let seats = (0..rings + device_threads).map(spawn).collect::<Result<_, _>>()?;
        let lighten = plan.settings.sched_idle && !plain && sched::may_change_class();
        let may = May { lighten, pin: !plain };
        let watcher = Watcher::new(&shared.gauges, &shared.readers, may);
        let Shared { rings_serve, zero_copy, pinned, kept, .. } = shared;
        Ok(Self { plan, seats, watcher, rings_serve, zero_copy, pinned, kept })
    }

    /// Which transport it is.
    #[must_use]
    pub fn kind(&self) -> TransportKind {
        self.plan.kind
    }

    /// How many queues serve requests; on io_uring one more reads the device.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.seats.len()
    }

    /// How many requests a queue of the kernel serves at once.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.plan.settings.depth
    }

    /// What the payloads can become together, in bytes.
    #[must_use]
    pub fn payload_max(&self) -> u64 {
        self.plan.payload_max()
    }

    /// How many buffers the pool of each of the kernel's queues is to have; 0 where each entry has a payload of its own.
    #[must_use]
    pub fn pool_buffers(&self) -> usize {
        self.plan.pool.map_or(0, |pool| pool.buffers)
    }

    /// Whether pages are moved by zero copy: settled when the first request comes by a ring.
    #[must_use]
    pub fn zero_copy(&self) -> &Arc<ZeroCopy> {
        &self.zero_copy
    }

    /// Whether the memory of the pools is pinned: settled at the same time.
    #[must_use]
    pub fn pinned(&self) -> &Arc<Pinned> {
        &self.pinned
    }

    /// Has `sink` told of requests that are under way for longer than `limit`, from the start on. Those that wait for locks and for what a
    /// file is ready for are left out, and so are READs of a ring whose answer is linked behind a lower read.
    pub fn watch_stalls(&mut self, limit: Duration, sink: Arc<dyn StallSink>) {
        self.watcher.watch_stalls(StallWatch::new(limit, sink));
    }

    /// Starts serving, once INIT was answered. `make` is called once in each queue's thread.
    ///
    /// On io_uring a registration that the kernel refuses sends all requests to the device, which is served,
    /// too: see [`Running::refused`].
    ///
    /// # Errors
    /// [`StartError`]; the connection is then to be aborted.
    pub fn start<M, S, Fut>(self, make: M) -> Result<Running, StartError>
    where
        M: Fn(&Queue) -> S + Send + Sync + 'static,
        S: Fn(Exchange) -> Fut + 'static,
        Fut: Future<Output = Done> + 'static,
    {
        let make = Arc::new(make);
        let (told, tells) = mpsc::channel();
        if let Some((kept, true)) = &self.kept {
            // From here on answers are committed: what is in the slots is no other server's to answer any more.
            kept.set_full(false);
        }
        let mut rings = 0;
        let mut running = Vec::new();
        for seat in self.seats {
            let make = Arc::clone(&make);
            let told = told.clone();
            rings += usize::from(seat.is_ring);
            let job: Job = Box::new(move |seat| match seat {
                Seat::Device(seat) => {
                    let service = make(&seat.queue);
                    crate::device::serve(*seat, service);
                }
                Seat::Ring(seat) => {
                    let service = make(&seat.queue);
                    crate::ring::serve(seat, service, |outcome| {
                        let _listening = told.send(outcome);
                    });
                }
            });
            seat.job.send(job).map_err(|_| StartError::ThreadEnded)?;
            running.push(seat.thread);
        }
        drop(told);
        match self.watcher.start() {
            Ok(watcher) => running.push(watcher),
            Err(error) => {
                tracing::warn!(%error, "nobody watches the queues: one that is stuck is not replaced")
            }
        }
        let mut refused = None;
        for _ in 0..rings {
            if let Err(error) = tells.recv_timeout(REGISTER_LIMIT).unwrap_or(Err(OsError::TIMEDOUT)) {
                refused = Some(error);
            }
        }
        self.rings_serve.store(rings > 0 && refused.is_none(), Ordering::Relaxed);
        Ok(Running { threads: Mutex::new(running), refused })
    }
}

/// How long the rings may take to register.
const REGISTER_LIMIT: Duration = Duration::from_secs(10);

impl Running {
    /// Why the kernel refused the rings, where it did: requests then come through the device.
    #[must_use]
    pub fn refused(&self) -> Option<OsError> {
        self.refused
    }

    /// Waits until the connection has ended and all queues with it.
    pub fn wait(&self) {
        loop {
            let next = self.threads.lock().pop();
            let Some(thread) = next else { return };
            thread.join().expect("such a panic ends the process");
        }
    }
}

impl SeatHandle {
    fn spawn(plan: Plan, thread: usize, is_ring: bool, shared: &Shared) -> Result<Self, PrepareError> {
        let make = if is_ring { ring_seat } else { device_seat };
        let shared = shared.clone();
        let (job, jobs) = mpsc::channel::<Job>();
        let (told, tells) = mpsc::channel();
        let body = move || {
            let prepared = if plan.settings.plain_threads {
                Ok(())
            } else {
                shuntfs_sys::identity::prepare_thread().map(drop)
            };
            match prepared.map_err(PrepareError::Identity).and_then(|()| make(plan, thread, &shared)) {
                Ok(seat) => {
                    let listening = told.send(Ok(())).is_ok();
                    drop((told, shared));
                    if let (true, Ok(job)) = (listening, jobs.recv()) {
                        or_abort(|| job(seat));
                    }
                }
                Err(error) => drop(told.send(Err(error))),
            }
        };
        let name = format!("shunt-q{thread}");
        let thread = std::thread::Builder::new().name(name).spawn(body);
        let thread = thread.map_err(|error| OsError::from_io_error(&error).unwrap_or(OsError::IO));
        let thread = thread.map_err(lacks("a thread"))?;
        match tells.recv() {
            Ok(Ok(())) => Ok(Self { job, thread, is_ring }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(lacks("a thread")(OsError::IO)),
        }
    }
}

/// Runs what a thread does for as long as there are requests. A panic that gets here is no handler's: nobody would answer what the
/// thread has, and its callers would wait forever. The end of the process ends the connection.
pub(crate) fn or_abort(serve: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve)).is_err() {
        tracing::error!("a queue's thread panicked");
        std::process::abort();
    }
}

fn ring_seat(plan: Plan, thread: usize, shared: &Shared) -> Result<Seat, PrepareError> {
    let order = match &shared.kept {
        Some((kept, _)) => kept.order().to_vec(),
        None => queue_order(&shared.online, plan.kernel_queues),
    };
    let served: Vec<usize> = plan.queues_of(thread).collect();
    let called = served.iter().filter(|place| **place < plan.called).map(|place| order[*place]);
    let used: Vec<usize> = match &shared.kept {
        Some(_) => called.filter(|cpu| shared.online.contains(cpu)).collect(),
        None => called.collect(),
    };
    if let (&[cpu], false) = (&used[..], plan.settings.plain_threads)
        && threads::allowed_cpus().is_ok_and(|cpus| cpus.has(cpu))
    {
        // A round trip that stays on the caller's CPU is many times cheaper than one that wakes another.
        if let Err(error) = threads::pin_to_cpu(cpu) {
            tracing::debug!(cpu, %error, "a queue is not pinned");
        }
    }
    let place = |place: usize| u16::try_from(order[place]).map(|qid| (qid, plan.room(place)));
    let queues = served.iter().map(|at| place(*at)).collect::<Result<_, _>>();
    let queues = queues.map_err(|_| PrepareError::Ring(OsError::INVAL))?;
    let mut ring_plan = RingPlan { queues, pinned: None };
    let slots = ring_plan.slots();
    // Each slot has at most a commit and a read queued, and a completion of each.
    let entries = u32::try_from(slots * 2 + 2).map_err(|_| PrepareError::Ring(OsError::INVAL))?;
    let entries = entries.next_power_of_two();
    let ring = match &shared.kept {
        Some(_) => Ring::without_descriptor(entries),
        None => Ring::of_device(&shared.device, entries),
    };
    let mut ring = ring.map_err(PrepareError::Ring)?;
    let set_up = plan.pool.map(|_| first_step(&mut ring, slots, shared));
    let queue = queue(thread, (slots, plan, ring_plan.buffers()), shared, &shared.device, Some(ring))?;
    let (first, place) = set_up.unzip();
    if let Some(place) = place.flatten() {
        let buffers = used.len() * plan.pool.map_or(0, |pool| pool.buffers);
        ring_plan.pinned = if buffers > 0 { pin(&queue, (place, buffers), shared) } else { None };
    }
    let registry = Arc::clone(&shared.registry);
    let meter = Meter::new(&shared.gauges, thread);
    let zero_copy = Arc::clone(&shared.zero_copy);
    let not_pinned = Arc::clone(&shared.pinned);
    let kept = shared.kept.as_ref().map(|(rings, follows)| KeptSeat {
        rings: Arc::clone(rings),
        first: rings.first_slot(thread),
        follows: *follows,
    });
    Ok(Seat::Ring(RingSeat {
        queue,
        plan: ring_plan,
        first,
        zero_copy,
        pinned: not_pinned,
        registry,
        meter,
        kept,
    }))
}

/// The kernel's queues in the order in which threads take them: first those of CPUs that are online, which have callers. The others must be
/// served, too, and only a CPU that comes online later sends requests there.
pub(crate) fn queue_order(online: &[usize], queues: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..queues).collect();
    order.sort_by_key(|cpu| !online.contains(cpu));
    order
}

/// What the queues of a ring are asked for first, and which place of its table is for the memory of the pools. Zero copy needs a place for
/// each slot, and pinned memory one behind them.
fn first_step(ring: &mut Ring, slots: usize, shared: &Shared) -> (Step, Option<u16>) {
    let slots = if shared.zero_copy.off().is_none() { slots } else { 0 };
    let pins = shared.pinned.off().is_none();
    if slots == 0 && !pins {
        return (Step::Make, None);
    }
    let mut make =
        |places| u16::try_from(places).map_err(|_| OsError::INVAL).and_then(|places| ring.make_table(places));
    let step = if slots > 0 { Step::MakeForZeroCopy } else { Step::Make };
    let Err(error) = make(slots + usize::from(pins)) else {
        return (step, u16::try_from(slots).ok().filter(|_| pins));
    };
    tracing::debug!(%error, slots, pins, "no table of buffers");
    if pins {
        shared.pinned.turn_off(NotPinned::Refused);
        if slots > 0 && make(slots).is_ok() {
            return (step, None);
        }
    }
    if slots > 0 {
        shared.zero_copy.turn_off(NoZeroCopy::NoPool);
    }
    (Step::Make, None)
}

/// Pins the pools of those of a thread's queues that have callers, all together: the place of the ring's table, and how many buffers.
fn pin(queue: &Queue, (place, buffers): (u16, usize), shared: &Shared) -> Option<(u16, u32)> {
    let pinned = u32::try_from(buffers).map_err(|_| OsError::INVAL);
    let error = match pinned.and_then(|buffers| queue.pin_pool(place, buffers).map(|()| buffers)) {
        Ok(buffers) => return Some((place, buffers)),
        Err(error) => error,
    };
    tracing::debug!(%error, buffers, "the memory of a pool is not pinned");
    // What other mounts of the same user have locked counts, too.
    shared.pinned.turn_off(if error == OsError::NOMEM { NotPinned::Limit } else { NotPinned::Refused });
    None
}

fn device_seat(plan: Plan, thread: usize, shared: &Shared) -> Result<Seat, PrepareError> {
    // Beside rings a request or two are here at once; where the kernel refuses the rings, all are, and their memory is spared.
    let depth = plan.own_depth.max(SIDE_DEPTH);
    let mut device = Arc::clone(&shared.device);
    let mut blocking = Arc::clone(&shared.blocking);
    if let Some(clone) = thread.checked_sub(1).and_then(|place| shared.clones.get(place)) {
        device = Arc::clone(clone);
        blocking = Arc::default();
    }
    let ring = if plan.kind == TransportKind::Uring { None } else { lower_ring(depth) };
    let queue = queue(thread, (depth, plan, 0), shared, &device, ring)?;
    let registry = Arc::clone(&shared.registry);
    let aside = Arc::clone(&shared.rings_serve);
    let reader = shared.readers.reader(Meter::new(&shared.gauges, thread));
    let kept = shared.kept.as_ref().map(|(rings, _)| Arc::clone(rings));
    Ok(Seat::Device(Box::new(DeviceSeat { queue, blocking, reader, registry, aside, kept })))
}

/// A ring for the lower reads and writes of a device's thread, where one is available: each slot has one under way, and
/// beside them there are polls of the device, its end and the bell.
fn lower_ring(depth: usize) -> Option<Ring> {
    let entries = u32::try_from(depth + 3).ok()?.next_power_of_two();
    Ring::new(entries).inspect_err(|error| tracing::debug!(%error, "lower calls hold their queue")).ok()
}

/// A queue of so many slots, with so many buffers, in pools and beside them.
fn queue(
    index: usize,
    (slots, plan, buffers): (usize, Plan, usize),
    shared: &Shared,
    device: &Arc<FuseDevice>,
    ring: Option<Ring>,
) -> Result<Queue, PrepareError> {
    let ready = Ready::new(slots).map_err(lacks("a bell"))?;
    let len = slot_len(plan.settings.payload_len);
    let kept = shared.kept.as_ref().filter(|_| ring.is_some());
    let mut slots = match kept {
        Some((kept, _)) => kept.region(index, slots).map(|region| Slots::on(region, slots, len, &ready)),
        None => Slots::reserve_with_pool(slots, len, (buffers, PAGE), &ready),
    }
    .map_err(lacks("payload memory"))?;
    if buffers == 0 && kept.is_none() {
        let warm = match plan.settings.warm {
            Warm::Nothing => 0..0,
            Warm::Start | Warm::Read => WARM,
            Warm::All => 0..len,
        };
        slots.keep_warm(warm).map_err(lacks("payload memory"))?;
        if plan.settings.warm == Warm::Read {
            slots.warm_whole();
        }
    }
    let (device, pool) = (Arc::clone(device), Arc::clone(&shared.pool));
    Ok(Queue::new(QueueParts { index, device, ready, slots, pool, ring }))
}

/// Makes the calling thread, which a queue's thread started, one that works beside it. It inherited the queue's CPU and class, and
/// shares its umask: it gets those of the process's first thread, and a umask of its own. It inherited the lack of capabilities, too,
/// so that it stays restrained; without an identity of its own it makes nothing for anybody.
///
/// Threads of the offload pool have done so. One that a handler starts by itself calls this first: it would stand still wherever
/// its queue does.
pub fn leave_queue() {
    if let Err(error) = shuntfs_sys::identity::prepare_thread() {
        tracing::error!(%error, "a thread cannot act as its callers, so nothing is made by it");
    }
    if let Err(error) = threads::follow_first() {
        tracing::debug!(%error, "a thread keeps the CPU or the class of its queue");
    }
}

fn lacks(what: &'static str) -> impl Fn(OsError) -> PrepareError {
    move |error| PrepareError::Resource { what, error }
}

#[cfg(test)]
mod test {
    use shuntfs_sys::sched::Class;

    use super::*;
    use crate::planning::RING_SLOTS_MAX;

    #[test]
    fn what_a_light_and_pinned_queue_starts_is_neither() {
        let first = threads::allowed_cpus_of(std::process::id()).unwrap();
        let queue = std::thread::spawn(move || {
            threads::pin_to_cpu(threads::current_cpu()).unwrap();
            let may = sched::may_change_class();
            if may {
                sched::set_class(threads::gettid(), Class::Light).unwrap();
            }
            let (told, tells) = mpsc::channel();
            let pool = OffloadPool::new(1, leave_queue);
            let look = || (threads::allowed_cpus().unwrap(), sched::may_change_class());
            drop(pool.run(move || drop(told.send(look()))));
            (may, look(), tells.recv_timeout(Duration::from_secs(10)).unwrap())
        });
        let (may, (pinned, _), beside) = queue.join().unwrap();
        assert_eq!(beside, (first.clone(), may));
        assert!(pinned != first || std::thread::available_parallelism().unwrap().get() == 1, "it was pinned");
    }

    #[test]
    fn each_cpu_that_is_online_has_a_thread_and_the_others_are_spread() {
        let order = queue_order(&[1, 4], 6);
        assert_eq!(order, [1, 4, 0, 2, 3, 5]);
        let settings = Settings { queues: Some(2), ..Settings::default() };
        let plan = Plan::new(TransportKind::Uring, &settings, (6, 2)).unwrap();
        let served = |thread| plan.queues_of(thread).map(|place| order[place]).collect::<Vec<_>>();
        assert_eq!((served(0), served(1)), (vec![1, 0, 3], vec![4, 2, 5]));
        assert_eq!(queue_order(&[0, 1, 2], 3), [0, 1, 2]);
        assert_eq!(queue_order(&[], 3), [0, 1, 2]);
        for (online, possible, depth, threads) in
            [(2, 2, 32, 2), (2, 64, 32, 2), (64, 64, 32, 64), (128, 128, 272, 128), (1, 8192, 32, 5)]
        {
            assert_eq!(ring_threads(online, possible, depth), threads, "{online} of {possible}, {depth}");
            let settings = Settings { queues: Some(threads), depth, ..Settings::default() };
            let plan = Plan::new(TransportKind::Uring, &settings, (possible, online)).unwrap();
            for thread in 0..threads {
                let entries: usize = plan.queues_of(thread).map(|place| plan.room(place).depth).sum();
                assert!(entries <= RING_SLOTS_MAX, "{online} of {possible}, {depth}: {entries}");
            }
        }
    }

    /// A regression: where the kernel refuses the rings, all requests come to the one thread beside them, which served two at once.
    #[test]
    fn the_device_beside_rings_serves_as_many_as_was_asked_for() {
        let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        let settings = Settings { depth: 9, ..Settings::default() };
        let shared = Shared {
            device: Arc::new(FuseDevice::from_fd(null.into()).unwrap()),
            clones: Arc::default(),
            pool: OffloadPool::new(1, || ()),
            registry: Arc::default(),
            readers: Readers::new(1),
            blocking: Arc::default(),
            gauges: Gauges::new(3).unwrap(),
            rings_serve: Arc::default(),
            zero_copy: Arc::new(ZeroCopy::new(None)),
            pinned: Arc::new(Pinned::new(None)),
            online: Arc::default(),
            kept: None,
        };
        let plan = Plan::new(TransportKind::Uring, &settings, (2, 2)).unwrap();
        let Ok(Seat::Device(seat)) = device_seat(plan, 2, &shared) else { panic!("the seat of a device") };
        assert_eq!(seat.queue.slots_count(), 9);
    }
}
