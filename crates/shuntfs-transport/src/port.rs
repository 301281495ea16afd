//! What the requests of one thread share: the queue, the descriptor, and the way answers take.
//!
//! # Safety
//! A commit names the slot's memory by address; the slot stays put until its completion (see `slot.rs`).
#![expect(unsafe_code, reason = "answers on a ring are written into memory that the kernel reads")]

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shuntfs_runtime::{Queue, Token};
use shuntfs_sys::OsError;
use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::uring::UringCommand;
use shuntfs_wire::{Errno, OutHeader, UringCmdReq, UringEntInOut};
use zerocopy::{FromBytes, IntoBytes};

use crate::company::Company;
use crate::exchange::{Lower, Outcome};
use crate::interrupts::{Interrupt, Interrupts};
use crate::readers::Reader;
use crate::slot::{PAGE, Slot};
use crate::splice::{SplicePath, SpliceRead, Spliced};

/// `FUSE_IO_URING_CMD_REGISTER`.
pub(crate) const CMD_REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
pub(crate) const CMD_COMMIT_AND_FETCH: u32 = 2;
const ENT_IN_OUT: usize = 256;
const OUT_HEADER_LEN: usize = size_of::<OutHeader>();

/// What the requests of one thread share.
#[derive(Debug)]
pub(crate) struct Port {
    queue: Queue,
    device: Arc<FuseDevice>,
    way: Way,
    interrupts: Vec<Arc<Interrupt>>,
    registry: Arc<Interrupts>,
}

#[derive(Debug)]
pub(crate) enum Way {
    /// Answers are written to the device.
    Device(Box<DeviceWay>),
    /// Answers are committed on the ring; by slot, the kernel's queue.
    Ring(Vec<u16>),
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
    pub(crate) fn new(
        queue: Queue,
        device: Arc<FuseDevice>,
        way: Way,
        slots: usize,
        registry: Arc<Interrupts>,
    ) -> Self {
        let interrupts = (0..slots).map(|slot| Interrupt::new(queue.ready().waker(slot))).collect();
        Self { queue, device, way, interrupts, registry }
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    pub(crate) fn device(&self) -> &Arc<FuseDevice> {
        &self.device
    }

    pub(crate) fn way(&self) -> &Way {
        &self.way
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

    /// The request in `slot`, which went on, has ended.
    pub(crate) fn ended(&self, slot: u32, unique: u64) {
        self.registry.ended(unique);
        self.interrupts[slot as usize].clear();
    }

    /// The connection is gone; whatever waits hears of it.
    pub(crate) fn connection_ended(&self) {
        self.registry.end();
    }

    pub(crate) fn interrupt_arrived(&self, unique: u64) {
        self.registry.arrived(unique);
    }

    /// Whether a lower call that may wait is to go through the ring, so that it does not hold the thread. A
    /// direct one always may wait; another one only where it was seen that it would.
    pub(crate) fn takes_ring(&self, lower: Lower<'_>, direct: bool) -> bool {
        let Way::Device(way) = &self.way else { return true };
        if !self.queue.has_ring() {
            return false;
        }
        if lower.can_block || way.company.is_slow() {
            // The thread stays ready for others: changing over for each operation would cost four calls.
            way.company.met();
            return true;
        }
        if direct { way.company.look(|| self.request_waits()) } else { way.company.is_there() }
    }

    /// Requests were found waiting: looks whether they come in company, where the thread has a ring for that.
    pub(crate) fn may_have_company(&self) {
        if let (Way::Device(way), true) = (&self.way, self.queue.has_ring()) {
            way.company.found(|| self.request_waits());
        }
    }

    /// Whether another request waits to be read.
    fn request_waits(&self) -> bool {
        let now = Some(Duration::ZERO);
        shuntfs_sys::event::wait_readable(&[self.device.as_fd()], now) == Ok(true)
    }

    /// Reads what is cached of a lower file, where all of it is.
    pub(crate) fn read_cached(&self, fd: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> bool {
        let Way::Device(way) = &self.way else { return false };
        if !way.tries_cached.get() {
            return false;
        }
        match shuntfs_sys::data::read_at_cached(fd, into, offset) {
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
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        offset: u64,
        alone: bool,
    ) -> shuntfs_sys::Result<usize> {
        if let Way::Device(way) = &self.way
            && !alone
            && way.tries_cached.get()
            && way.reader.has_others()
        {
            match shuntfs_sys::data::read_at_cached(fd, into, offset) {
                Err(OsError::AGAIN) => way.reader.about_to_block(),
                Err(OsError::OPNOTSUPP) => way.tries_cached.set(false),
                // What comes after is not cached, or the file ends here: only a read that may wait can tell. A
                // short answer would be the file's end for the kernel, which then cuts the file for its callers.
                Ok(count) if count < into.len() => {
                    way.reader.about_to_block();
                    let rest = || shuntfs_sys::data::read_at(fd, &mut into[count..], offset + count as u64);
                    return Ok(count + self.timed(rest)?);
                }
                other => return other,
            }
        }
        self.timed(|| shuntfs_sys::data::read_at(fd, into, offset))
    }

    /// Writes a lower file by a plain call. Where it may wait for long, another reader takes over first.
    pub(crate) fn write_plain(
        &self,
        lower: Lower<'_>,
        data: &[u8],
        offset: u64,
    ) -> shuntfs_sys::Result<usize> {
        if lower.can_block
            && let Way::Device(way) = &self.way
        {
            way.reader.about_to_block();
        }
        self.timed(|| shuntfs_sys::data::write_at(lower.fd, data, offset))
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
                Err(OsError::AGAIN) => way.reader.about_to_block(),
                _ => {}
            }
        }
        if takes_ring && !way.tries_cached.get() {
            return Spliced::No;
        }
        path.read(&self.device, read, payload)
    }

    /// Sends an answer. False where the connection is gone.
    pub(crate) fn send(&self, slot: Slot, index: u32, unique: u64, outcome: Outcome) -> bool {
        let answer = match outcome {
            Outcome::Reply(len) => Ok(len),
            Outcome::Error(errno) => Err(errno),
            Outcome::Sent | Outcome::Spliced | Outcome::Linked(_) => return true,
            Outcome::Silent if self.is_ring() => Err(Errno::IO),
            Outcome::Silent => return true,
        };
        if self.is_ring() {
            self.prepare_answer(slot, unique, answer);
            self.push_commit(slot, index);
            return true;
        }
        self.write_answer(slot, unique, answer)
    }

    fn write_answer(&self, slot: Slot, unique: u64, answer: Result<usize, Errno>) -> bool {
        let len = answer.unwrap_or(0);
        let header = out_header(unique, answer);
        // SAFETY: the exchange that owned the slot is gone: its answer is being sent.
        let payload = unsafe { slot.bytes(PAGE..PAGE + len) };
        match self.device.write(&[IoSlice::new(header.as_bytes()), IoSlice::new(payload)]) {
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
                self.device.write(&[IoSlice::new(header.as_bytes())]).is_ok()
            }
        }
    }

    /// Queues an answer of `len` bytes on the ring of a device's thread, as a write of the device. The slot is free when
    /// that has completed, and not before.
    pub(crate) fn queue_answer(&self, slot: Slot, index: u32, unique: u64, len: usize) {
        // The header goes where the request's arguments lay, right before the payload: one piece to write.
        // SAFETY: the exchange that owned the slot is gone: its answer is being sent.
        let answer = unsafe { slot.bytes_mut(PAGE - OUT_HEADER_LEN..PAGE + len) };
        answer[..OUT_HEADER_LEN].copy_from_slice(out_header(unique, Ok(len)).as_bytes());
        let from = (answer.as_ptr(), u32::try_from(answer.len()).expect("payloads are below 4 GiB"));
        let token = Token::Entry(index).encode();
        // SAFETY: the slots outlive the ring, and the loop touches this one only after its completion.
        self.queue.with_ring(|ring| unsafe { ring.push_write(self.device.as_fd(), from, 0, token) });
    }

    /// Writes an answer's header into a ring slot.
    pub(crate) fn prepare_answer(&self, slot: Slot, unique: u64, answer: Result<usize, Errno>) {
        let header = out_header(unique, answer);
        // SAFETY: the exchange that owned the slot is gone, or is the caller.
        let head = unsafe { slot.bytes_mut(0..OUT_HEADER_LEN) };
        head.copy_from_slice(header.as_bytes());
        // SAFETY: as above; another part of the head page.
        let entry = unsafe { slot.bytes_mut(ENT_IN_OUT..ENT_IN_OUT + size_of::<UringEntInOut>()) };
        let commit_id = commit_id(entry);
        let payload_sz = u32::try_from(answer.unwrap_or(0)).expect("payloads are below 4 GiB");
        let answer = UringEntInOut { commit_id, payload_sz, ..UringEntInOut::default() };
        entry.copy_from_slice(answer.as_bytes());
    }

    /// Queues a commit of the answer in a ring slot; it fetches the next request.
    pub(crate) fn push_commit(&self, slot: Slot, index: u32) {
        // SAFETY: the exchange that owned the slot is gone, or is the caller; only read.
        let entry = unsafe { slot.bytes(ENT_IN_OUT..ENT_IN_OUT + size_of::<UringEntInOut>()) };
        self.push_command(CMD_COMMIT_AND_FETCH, commit_id(entry), index, (0, 0));
    }

    /// Queues the registration of a ring slot, whose two `iovec`s lie at `iovecs`.
    pub(crate) fn push_register(&self, index: u32, iovecs: u64) {
        self.push_command(CMD_REGISTER, 0, index, (iovecs, 2));
    }

    fn push_command(&self, op: u32, commit_id: u64, index: u32, iovecs: (u64, u32)) {
        let Way::Ring(queues) = &self.way else { unreachable!("only ring slots are committed") };
        let request = UringCmdReq { flags: 0, commit_id, qid: queues[index as usize], padding: [0; 6] };
        let mut bytes = [0; 32];
        bytes[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
        let command = UringCommand { op, bytes, iovecs: iovecs.0, iovecs_count: iovecs.1 };
        let token = Token::Entry(index).encode();
        // SAFETY: the slots outlive the ring, and the loop touches this one only after its completion.
        self.queue.with_ring(|ring| unsafe { ring.push_command(self.device.as_fd(), &command, token) });
    }
}

fn commit_id(entry: &[u8]) -> u64 {
    UringEntInOut::read_from_bytes(entry).expect("32 bytes").commit_id
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

    use shuntfs_runtime::{OffloadPool, Ready};

    use super::*;
    use crate::readers::Readers;

    fn port() -> Port {
        let ready = Ready::new(1).expect("a bell");
        let queue = Queue::new(0, ready, OffloadPool::new(1, || ()), None);
        let null = std::fs::File::options().read(true).write(true).open("/dev/null").expect("opens");
        let device = Arc::new(FuseDevice::from_fd(null.into()).expect("a stand-in"));
        // More than one, or nobody could take over and the cached read would not be tried.
        let reader = Readers::new(2).reader(crate::pace::Pacer::new(None, 0));
        Port::new(queue, device, Way::Device(Box::new(DeviceWay::new(reader))), 1, Arc::default())
    }

    /// A regression: a read of what is cached in part gave the part, which the kernel took for the file's end, and cut
    /// the file for its callers.
    #[test]
    fn a_file_that_is_cached_in_part_is_read_whole() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|index| (index % 251) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&bytes).and_then(|()| file.as_file().sync_all()).expect("written");
        let port = port();
        let mut was_in_part = false;
        for round in 0..20 {
            shuntfs_sys::data::forget_cached(file.as_file()).expect("fadvise");
            file.as_file().read_exact_at(&mut [0; 4096], 0).expect("caches the start");
            let mut room = vec![0; bytes.len()];
            let cached = shuntfs_sys::data::read_at_cached(file.as_file(), &mut room, 0);
            was_in_part |= cached.is_ok_and(|count| (1..bytes.len()).contains(&count));
            room.fill(0xee);
            let count = port.read_plain(file.as_file().as_fd(), &mut room, 0, false).expect("reads");
            assert_eq!(count, bytes.len(), "round {round}");
            assert!(room == bytes);
        }
        if !was_in_part {
            println!("SKIPPED: files are cached whole or not at all here");
        }
        let mut room = vec![0; 5000];
        let end = bytes.len() as u64;
        assert_eq!(port.read_plain(file.as_file().as_fd(), &mut room, end - 4000, false), Ok(4000));
        assert_eq!(port.read_plain(file.as_file().as_fd(), &mut room, end, false), Ok(0));
    }
}
