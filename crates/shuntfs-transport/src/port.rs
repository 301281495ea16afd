//! What the requests of one thread share: the queue, the descriptor, and the way answers take.
//!
//! # Safety
//! FUSE's commands name no memory but the slot that they commit or register, or the pool's, which the kernel uses for slots that it has:
//! `fs/fuse/dev_uring.c`. Where a slot to be registered lies, the kernel reads from the ring's way, which is the port's and lives as long.
#![expect(unsafe_code, reason = "the runtime cannot know what a driver's command names")]

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shuntfs_runtime::{Queue, Slot};
use shuntfs_sys::OsError;
use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::uring::UringCommand;
use shuntfs_wire::uring::{CMD_ADD_BUFPOOL, CMD_ADD_QUEUE, CMD_COMMIT_AND_FETCH, CMD_REGISTER};
use shuntfs_wire::{
    ByteRange, Errno, OutHeader, UringAddBufpool, UringCmdReq, UringEntInOut, UringQueueFlags,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::company::Company;
use crate::exchange::Outcome;
use crate::interrupts::{Interrupt, Interrupts};
use crate::lower::LowerFile;
use crate::pools::{Mode, Step};
use crate::readers::Reader;
use crate::ring_way::RingWay;
use crate::slot::{ENT_IN_OUT, HEADER_AREA, PAGE, payload};
use crate::splice::{SplicePath, SpliceRead, Spliced};

const OUT_HEADER_LEN: usize = size_of::<OutHeader>();

/// What the requests of one thread share.
#[derive(Debug)]
pub(crate) struct Port {
    queue: Queue,
    way: Way,
    interrupts: Arc<[Interrupt]>,
    /// By slot, whether its request waits for what only another request may bring.
    waiting: Vec<Cell<bool>>,
    pub(crate) registry: Arc<Interrupts>,
}

/// A request waits for another one, until this is dropped.
#[derive(Debug)]
pub struct Waiting<'p>(&'p Cell<bool>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[derive(Debug)]
pub(crate) enum Way {
    /// Answers are written to the device.
    Device(Box<DeviceWay>),
    /// Answers are committed on the ring.
    Ring(Box<RingWay>),
}

/// What reading and writing through a device needs beside it.
#[derive(Debug)]
pub(crate) struct DeviceWay {
    pub(crate) reader: Reader,
    pub(crate) company: Company,
    pub(crate) splice: RefCell<SplicePath>,
    /// Whether lower files understand "only what is cached".
    pub(crate) tries_cached: Cell<bool>,
}

impl DeviceWay {
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader,
            company: Company::default(),
            splice: SplicePath::default().into(),
            tries_cached: true.into(),
        }
    }
}

impl Port {
    pub(crate) fn new(queue: Queue, way: Way, registry: Arc<Interrupts>) -> Self {
        let interrupts = registry.of_queue(queue.slots_count());
        let waiting = vec![Cell::new(false); interrupts.len()];
        Self { queue, way, interrupts, waiting, registry }
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn device(&self) -> &Arc<FuseDevice> {
        self.queue.device()
    }

    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    /// The way through the ring.
    ///
    /// # Panics
    /// Where requests come from a device.
    pub(crate) fn ring_way(&self) -> &RingWay {
        let Way::Ring(way) = &self.way else { unreachable!("only what came by a ring asks for it") };
        way
    }

    pub(crate) fn is_ring(&self) -> bool {
        matches!(self.way, Way::Ring(_))
    }

    pub(crate) fn interrupt(&self, slot: u32) -> &Interrupt {
        &self.interrupts[slot as usize]
    }

    /// The request in `slot` goes on; INTERRUPT may now find it.
    pub(crate) fn goes_on(&self, slot: u32, unique: u64) {
        self.registry.register(unique, &self.interrupts[slot as usize]);
    }

    /// The request in `slot` begins to wait, unless fewer than an eighth of the slots that it could have come in would be left.
    pub(crate) fn begin_to_wait(&self, slot: u32) -> Option<Waiting<'_>> {
        let same = match &self.way {
            Way::Ring(way) => {
                let slots = way.slots_beside(slot);
                &self.waiting[slots.start as usize..slots.end as usize]
            }
            Way::Device(_) => &self.waiting[..],
        };
        let waiting = same.iter().filter(|waits| waits.get()).count();
        (8 * (waiting + 1) <= 7 * same.len()).then(|| {
            let waits = &self.waiting[slot as usize];
            waits.set(true);
            Waiting(waits)
        })
    }

    /// Whether the request in a slot waits for another one.
    pub(crate) fn waits(&self, slot: u32) -> bool {
        self.waiting[slot as usize].get()
    }

    /// Whether a lower call that may wait is to go through the ring, so that it does not hold the thread.
    pub(crate) fn takes_ring(&self, lower: &LowerFile) -> bool {
        let Way::Device(way) = &self.way else { return true };
        if !self.queue.has_ring() {
            return false;
        }
        if lower.can_block() || way.company.is_slow() {
            // The thread stays ready for others: changing over for each operation would cost four calls.
            way.company.met();
            return true;
        }
        way.company.is_there()
    }

    /// Whether another request waits to be read.
    pub(crate) fn request_waits(&self) -> bool {
        let now = Some(Duration::ZERO);
        shuntfs_sys::event::wait_readable(&[self.device().as_fd()], now) == Ok(true)
    }

    /// Reads what is cached of a lower file, where all of it is.
    pub(crate) fn read_cached(&self, lower: &LowerFile, into: &mut [u8], offset: u64) -> bool {
        let Way::Device(way) = &self.way else { return false };
        if !way.tries_cached.get() {
            return false;
        }
        match shuntfs_sys::data::read_at_cached(lower, into, offset) {
            Ok(count) => count == into.len(),
            Err(error) => {
                way.tries_cached.set(error != OsError::OPNOTSUPP);
                false
            }
        }
    }

    /// Reads a lower file by plain calls. Where the bytes are not cached, another reader takes over first, unless
    /// `alone` says that nobody needs one.
    pub(crate) fn read_plain(
        &self,
        lower: &LowerFile,
        into: &mut [u8],
        offset: u64,
        alone: bool,
    ) -> shuntfs_sys::Result<usize> {
        if let Way::Device(way) = &self.way
            && !alone
            && way.tries_cached.get()
            && way.reader.has_others()
        {
            match shuntfs_sys::data::read_at_cached(lower, into, offset) {
                Err(OsError::AGAIN) => way.reader.goes_away(),
                Err(OsError::OPNOTSUPP) => way.tries_cached.set(false),
                // What comes after is not cached, or the file ends here: only a read that may wait can tell. A
                // short answer would be the file's end for the kernel, which then cuts the file for its callers.
                Ok(count) if count < into.len() => {
                    way.reader.goes_away();
                    let rest =
                        || shuntfs_sys::data::read_at(lower, &mut into[count..], offset + count as u64);
                    return Ok(count + self.timed(rest)?);
                }
                other => return other,
            }
        }
        self.timed(|| shuntfs_sys::data::read_at(lower, into, offset))
    }

    /// Writes a lower file by a plain call. Where it may wait for long, another reader takes over first, and answers that were
    /// gathered leave.
    pub(crate) fn write_plain(
        &self,
        lower: &LowerFile,
        data: &[u8],
        offset: u64,
    ) -> shuntfs_sys::Result<usize> {
        if let Way::Device(way) = &self.way {
            if lower.can_block() {
                way.reader.goes_away();
            }
            if way.company.was_slow() && self.queue.has_queued() {
                // An error here is seen again by the loop's next turn.
                let _submitted = self.queue.turn(false, None);
            }
        }
        self.timed(|| shuntfs_sys::data::write_at(lower, data, offset))
    }

    /// Makes a lower call that may wait, and takes note of how long it did.
    fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let Way::Device(way) = &self.way else { return call() };
        if !self.queue.has_ring() {
            return call();
        }
        let start = Instant::now();
        let outcome = call();
        way.company.took(start.elapsed());
        outcome
    }

    /// Answers a READ through a pipe where that pays and works. `payload` is the request's memory.
    pub(crate) fn splice_read(&self, read: &SpliceRead<'_>, payload: &mut [u8]) -> Spliced {
        let Way::Device(way) = &self.way else { return Spliced::No };
        let mut path = way.splice.borrow_mut();
        if !path.pays(read.len) {
            return Spliced::No;
        }
        let takes_ring = self.queue.has_ring() && (read.can_block || way.company.is_slow());
        if way.tries_cached.get() && (takes_ring || way.reader.has_others()) {
            // Splicing waits for what is not cached. Readahead goes forward, so the last byte tells.
            let last = read.offset.saturating_add(u64::from(read.len) - 1);
            match shuntfs_sys::data::read_at_cached(read.fd, &mut [0], last) {
                Err(OsError::OPNOTSUPP) => way.tries_cached.set(false),
                Err(_) if takes_ring => return Spliced::No,
                Err(OsError::AGAIN) => way.reader.goes_away(),
                _ => {}
            }
        }
        if takes_ring && !way.tries_cached.get() {
            return Spliced::No;
        }
        path.read(self.device(), read, payload)
    }

    /// Sends an answer. False where the connection is gone.
    pub(crate) fn send(&self, slot: Slot, unique: u64, outcome: Outcome) -> bool {
        let Some(answer) = self.answer_of(outcome) else { return true };
        if self.is_ring() {
            self.commit(slot, unique, answer);
            return true;
        }
        self.write_answer(&slot, unique, answer)
    }

    /// What must be sent, where that has not been done.
    fn answer_of(&self, outcome: Outcome) -> Option<Result<usize, Errno>> {
        match outcome {
            Outcome::Reply(len) => Some(Ok(len)),
            Outcome::Error(errno) => Some(Err(errno)),
            Outcome::Silent if self.is_ring() => Some(Err(Errno::IO)),
            Outcome::Spliced | Outcome::Linked(_) | Outcome::Silent => None,
        }
    }

    /// Writes an answer into a ring slot, to be committed later ([`Port::commit_again`]), perhaps by another server.
    pub(crate) fn prepare(&self, mut slot: Slot, unique: u64, outcome: Outcome) {
        if let Some(answer) = self.answer_of(outcome) {
            let _later = self.commit_command(&mut slot, unique, answer);
        }
    }

    /// Queues the commit of what is in a ring slot as an answer.
    pub(crate) fn commit_again(&self, slot: Slot) {
        let command = self.command_of(&slot);
        // SAFETY: see the module's text.
        unsafe { slot.command(&command) };
    }

    fn write_answer(&self, slot: &Slot, unique: u64, answer: Result<usize, Errno>) -> bool {
        let header = out_header(unique, answer);
        let payload = slot.bytes(payload(0, answer.unwrap_or(0)));
        match self.device().write(&[IoSlice::new(header.as_bytes()), IoSlice::new(payload)]) {
            Ok(_) => true,
            Err(error) => self.was_refused(unique, error),
        }
    }

    /// The kernel did not take an answer. False where the connection is gone.
    pub(crate) fn was_refused(&self, unique: u64, error: OsError) -> bool {
        match error {
            // The caller is gone: nobody waits for the answer.
            OsError::NOENT | OsError::CONNABORTED => true,
            OsError::NODEV | OsError::NOTCONN => false,
            error => {
                tracing::error!(%error, unique, "the kernel refuses an answer");
                let header = out_header(unique, Err(Errno::IO));
                self.device().write(&[IoSlice::new(header.as_bytes())]).is_ok()
            }
        }
    }

    /// Queues an answer of `len` bytes on the ring of a device's thread, as a write of the device. The slot is free when
    /// that has completed, and not before.
    pub(crate) fn queue_answer(&self, mut slot: Slot, unique: u64, len: usize) {
        // The header goes where the request's arguments lay, right before the payload: one piece to write.
        let head = PAGE - OUT_HEADER_LEN..PAGE;
        slot.bytes_mut(head.clone()).copy_from_slice(out_header(unique, Ok(len)).as_bytes());
        slot.send(head.start..PAGE + len);
    }

    /// Queues a commit of an answer in a ring slot; it fetches the next request.
    fn commit(&self, mut slot: Slot, unique: u64, answer: Result<usize, Errno>) {
        let command = self.commit_command(&mut slot, unique, answer);
        // SAFETY: see the module's text.
        unsafe { slot.command(&command) };
        self.ring_way().committed();
    }

    /// As [`Port::commit_after_read`], where the answer is read into the request's pages.
    pub(crate) fn commit_after_pages(
        &self,
        mut slot: Slot,
        unique: u64,
        lower: &Arc<LowerFile>,
        at: ByteRange,
    ) {
        let command = self.commit_command(&mut slot, unique, Ok(at.len as usize));
        // SAFETY: see the module's text.
        unsafe { slot.command_after_pages(lower, (0..at.len, at.offset), &command) };
    }

    /// The same for an answer that is read from a lower file first, whole; where that falls short, nothing is committed.
    pub(crate) fn commit_after_read(
        &self,
        mut slot: Slot,
        unique: u64,
        lower: &Arc<LowerFile>,
        at: ByteRange,
    ) {
        let len = at.len as usize;
        let command = self.commit_command(&mut slot, unique, Ok(len));
        // SAFETY: see the module's text.
        unsafe { slot.command_after_read(lower, (payload(0, len), at.offset), &command) };
    }

    /// Writes an answer's header into a ring slot.
    fn commit_command(&self, slot: &mut Slot, unique: u64, answer: Result<usize, Errno>) -> UringCommand {
        slot.bytes_mut(0..OUT_HEADER_LEN).copy_from_slice(out_header(unique, answer).as_bytes());
        let entry = slot.bytes_mut(ENT_IN_OUT..ENT_IN_OUT + size_of::<UringEntInOut>());
        let commit_id = UringEntInOut::read_from_bytes(entry).expect("32 bytes").commit_id;
        let payload_sz = u32::try_from(answer.unwrap_or(0)).expect("payloads are below 4 GiB");
        let answer = UringEntInOut { commit_id, payload_sz, ..UringEntInOut::default() };
        entry.copy_from_slice(answer.as_bytes());
        self.command_of(slot)
    }

    /// The commit of the answer in a ring slot.
    fn command_of(&self, slot: &Slot) -> UringCommand {
        let entry = slot.bytes(ENT_IN_OUT..ENT_IN_OUT + size_of::<UringEntInOut>());
        let commit_id = UringEntInOut::read_from_bytes(entry).expect("32 bytes").commit_id;
        let request = UringCmdReq { commit_id, qid: self.qid(slot.index()), ..UringCmdReq::default() };
        let pinned = self.ring_way().pinned_for(slot.index());
        UringCommand { pinned, ..command(CMD_COMMIT_AND_FETCH, request.as_bytes()) }
    }

    /// Queues the registration of a ring slot.
    pub(crate) fn register(&self, mut slot: Slot) {
        let mode = self.ring_way().mode_of(slot.index());
        let all = PAGE..slot.size();
        let mut iovecs = [slot.address(0..HEADER_AREA), HEADER_AREA as u64, 0, 0];
        if mode == Mode::Own {
            (iovecs[2], iovecs[3]) = (slot.address(all.clone()), all.len() as u64);
        } else {
            slot.join_pool();
        }
        let zero_copy_index = if mode == Mode::ZeroCopy { slot.place_in_table() } else { 0 };
        let places = self.ring_way().put_down(slot.index(), iovecs);
        let qid = self.qid(slot.index());
        let request = UringCmdReq { qid, zero_copy_index, ..UringCmdReq::default() };
        let command = command(CMD_REGISTER, request.as_bytes());
        let pinned = self.ring_way().pinned_for(slot.index());
        let command = UringCommand { iovecs: places, iovecs_count: 2, pinned, ..command };
        // SAFETY: see the module's text.
        unsafe { slot.command(&command) };
    }

    /// Queues what a queue of the kernel is asked for before it has entries; one of its slots carries it.
    pub(crate) fn set_up(&self, slot: Slot, queue: u32, step: Step) {
        let qid = self.qid(slot.index());
        let command = match step {
            Step::MakeForZeroCopy => {
                command(CMD_ADD_QUEUE, UringCmdReq::add_queue(qid, UringQueueFlags::ZERO_COPY).as_bytes())
            }
            Step::Make => {
                command(CMD_ADD_QUEUE, UringCmdReq::add_queue(qid, UringQueueFlags::empty()).as_bytes())
            }
            Step::AddPool { pinned, .. } => {
                let (address, len) = self.queue.pool_place(self.ring_way().pool_of(queue));
                let len = u32::try_from(len).expect("pools are below 4 GiB");
                let request = UringAddBufpool { qid, address, len, ..UringAddBufpool::default() };
                let pinned = self.ring_way().pinned(queue).filter(|_| pinned);
                UringCommand { pinned, ..command(CMD_ADD_BUFPOOL, request.as_bytes()) }
            }
        };
        // SAFETY: see the module's text.
        unsafe { slot.command(&command) };
    }

    fn qid(&self, slot: u32) -> u16 {
        self.ring_way().qid(slot)
    }
}

fn command(op: u32, request: &[u8]) -> UringCommand {
    let mut bytes = [0; 40];
    bytes[..request.len()].copy_from_slice(request);
    UringCommand { op, bytes, iovecs: 0, iovecs_count: 0, pinned: None }
}

fn out_header(unique: u64, answer: Result<usize, Errno>) -> OutHeader {
    let (len, error) = match answer {
        Ok(len) => (len, 0),
        Err(errno) => (0, -i32::from(errno.get())),
    };
    let len = u32::try_from(OUT_HEADER_LEN + len).expect("payloads are below 4 GiB");
    OutHeader { len, error, unique }
}

#[cfg(test)]
mod test {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    use shuntfs_runtime::{OffloadPool, QueueParts, Ready, Slots, Token};
    use shuntfs_sys::uring::Ring;

    use super::*;
    use crate::company::{SLOW, SLOW_FOR};
    use crate::readers::Readers;

    fn port(ring: Option<Ring>) -> Port {
        let ready = Ready::new(1).expect("a bell");
        let null = std::fs::File::options().read(true).write(true).open("/dev/null").expect("opens");
        let device = Arc::new(FuseDevice::from_fd(null.into()).expect("a stand-in"));
        let slots = Slots::reserve(1, 2 * PAGE, &ready).expect("memory");
        let pool = OffloadPool::new(1, || ());
        let queue = Queue::new(QueueParts { index: 0, device, ready, slots, pool, ring });
        // More than one, or nobody could take over and the cached read would not be tried.
        let gauges = crate::meter::Gauges::new(1).expect("a timer");
        let reader = Readers::new(2).reader(crate::meter::Meter::new(&gauges, 0));
        Port::new(queue, Way::Device(Box::new(DeviceWay::new(reader))), Arc::default())
    }

    /// A regression: answers that were gathered were held back while the next buffered write waited for other dirty pages.
    #[test]
    fn gathered_answers_do_not_wait_for_a_slow_write() {
        let Ok(ring) = Ring::new(8) else {
            println!("SKIPPED: io_uring is not to be had here");
            return;
        };
        let port = port(Some(ring));
        let Way::Device(way) = port.way() else { unreachable!("made above") };
        let lower = LowerFile::new(tempfile::tempfile().expect("a file").into());
        for (calls, is_held) in [(0, false), (SLOW_FOR, true), (1, true)] {
            for _ in 0..calls {
                way.company.took(Duration::ZERO);
            }
            port.queue_answer(port.queue().take_slot(0).expect("free"), 1, 8);
            assert_eq!(port.write_plain(&lower, b"bytes", 0), Ok(5));
            assert_eq!(port.queue().has_queued(), is_held, "after {calls} quick calls");
            port.queue().turn(true, None).expect("turns");
            assert_eq!(port.queue().next(), Some((Token::Entry(0), 24)));
        }
        way.company.took(SLOW);
        port.queue_answer(port.queue().take_slot(0).expect("free"), 1, 8);
        assert_eq!(port.write_plain(&lower, b"bytes", 0), Ok(5));
        assert!(!port.queue().has_queued(), "the last call was slow");
    }

    /// A regression: a read of what is cached in part gave the part, which the kernel took for the file's end, and cut
    /// the file for its callers.
    #[test]
    fn a_file_that_is_cached_in_part_is_read_whole() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|index| (index % 251) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&bytes).and_then(|()| file.as_file().sync_all()).expect("written");
        let port = port(None);
        let lower = LowerFile::new(file.as_file().try_clone().expect("dup").into());
        let mut was_in_part = false;
        for round in 0..20 {
            shuntfs_sys::data::forget_cached(file.as_file()).expect("fadvise");
            file.as_file().read_exact_at(&mut [0; 4096], 0).expect("caches the start");
            let mut room = vec![0; bytes.len()];
            let cached = shuntfs_sys::data::read_at_cached(file.as_file(), &mut room, 0);
            was_in_part |= cached.is_ok_and(|count| (1..bytes.len()).contains(&count));
            room.fill(0xee);
            let count = port.read_plain(&lower, &mut room, 0, false).expect("reads");
            assert_eq!(count, bytes.len(), "round {round}");
            assert!(room == bytes);
        }
        if !was_in_part {
            println!("SKIPPED: files are cached whole or not at all here");
        }
        let mut room = vec![0; 5000];
        let end = bytes.len() as u64;
        assert_eq!(port.read_plain(&lower, &mut room, end - 4000, false), Ok(4000));
        assert_eq!(port.read_plain(&lower, &mut room, end, false), Ok(0));
    }
}
