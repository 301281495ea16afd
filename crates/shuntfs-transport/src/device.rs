//! The loop of a thread that reads a /dev/fuse descriptor.
//!
//! Two system calls a request while nothing else goes on: a read that blocks, and a write. While requests come in
//! company (`company.rs`) or are under way that did not end at once, the descriptor is made nonblocking. Requests
//! are then read until there are none, what they need from below is queued on the thread's ring meanwhile, and one
//! call submits it and waits for whatever comes first: a request, a completion, or the bell. Without a ring the thread
//! waits for a request or its bell.
//!
//! In company the answers to small READs and WRITEs are gathered and leave in the call that the thread makes anyway. It is
//! not the calls that this saves most: each answer wakes its caller, who often takes this CPU at once, and two switches
//! between threads a request cost more than all the rest. So the caller finds several answers when it runs.

use std::future::Future;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shuntfs_runtime::{Queue, Slot, Token};
use shuntfs_sys::OsError;
use shuntfs_sys::device::FuseDevice;
use shuntfs_wire::{InHeader, InterruptIn, Opcode};
use zerocopy::FromBytes;

use crate::exchange::{Done, Exchange, Outcome, is_direct};
use crate::interrupts::Interrupts;
use crate::kept::KeptRings;
use crate::port::{DeviceWay, Port, Way};
use crate::readers::Reader;
use crate::serving::{IDLE, Serving, abort_without_ring};
use crate::slot::{Parts, device_room};

/// What a thread that reads a device needs.
#[derive(Debug)]
pub(crate) struct DeviceSeat {
    pub(crate) queue: Queue,
    pub(crate) blocking: Arc<Blocking>,
    pub(crate) reader: Reader,
    pub(crate) registry: Arc<Interrupts>,
    /// Whether other threads serve whatever waits for an answer, so that FORGETs may gather here.
    pub(crate) aside: Arc<AtomicBool>,
    /// The rings, where another server can take them over.
    pub(crate) kept: Option<Arc<KeptRings>>,
}

/// How many threads need a descriptor to be nonblocking, which is a property of the open file that they share.
#[derive(Debug, Default)]
pub(crate) struct Blocking {
    unwanted_by: Mutex<usize>,
}

/// How long FORGETs gather beside rings; an INTERRUPT waits as long.
const GATHER: Duration = Duration::from_millis(3);

/// How long nothing is read before it is asked again whether another server still takes over.
const REPLACED: Duration = Duration::from_millis(5);

/// So many requests are read at most before what they need from below is submitted.
const BATCH: u32 = 8;
/// Answers with at most so many bytes are gathered: longer ones take long enough to copy.
const GATHER_MAX: usize = 16 << 10;

enum Next {
    Request(Slot, usize),
    Again,
    Gone,
}

struct Loop<S, Fut> {
    serving: Serving<S, Fut>,
    free: Vec<u32>,
    /// Kept empty, for its memory.
    ended: Vec<(u32, Outcome)>,
    blocking: Arc<Blocking>,
    nonblocking: bool,
    aside: Arc<AtomicBool>,
    kept: Option<Arc<KeptRings>>,
    listening: Listening,
}

/// What a thread that waits on its ring has asked it for.
#[derive(Debug, Default)]
struct Listening {
    /// The ring will tell of the next request: until then there is none.
    to_device: bool,
    to_bell: bool,
    to_end: bool,
    /// The poll for the end was given up, and has not completed.
    not_to_end: bool,
    /// The connection is gone.
    is_over: bool,
    /// Requests read since the ring was last entered.
    read: u32,
    /// Requests read since the thread last waited.
    since_wait: usize,
    /// Answers that the ring has not sent.
    answers: u32,
}

/// Serves requests until the connection is gone.
pub(crate) fn serve<S, Fut>(seat: DeviceSeat, service: S)
where
    S: Fn(Exchange) -> Fut,
    Fut: Future<Output = Done>,
{
    let DeviceSeat { queue, blocking, reader, registry, aside, kept } = seat;
    let free = (0..u32::try_from(queue.slots_count()).expect("slots are counted in u32")).rev().collect();
    let notes = reader.meter.notes(queue.slots_count());
    let port = Port::new(queue, Way::Device(Box::new(DeviceWay::new(reader))), registry);
    let serving = Serving::new(service, port, notes);
    let listening = Listening::default();
    let (ended, nonblocking) = (Vec::new(), false);
    let mut this = Loop { serving, free, ended, blocking, nonblocking, aside, kept, listening };
    let port = std::rc::Rc::clone(&this.serving.port);
    let Way::Device(way) = port.way() else { unreachable!("made above") };
    while way.reader.stand_by() && this.read_until_idle(way) {}
    while this.listening.answers > 0 {
        this.enter_ring(1, None);
    }
    way.reader.readers.end();
    port.registry.end();
    this.block_again();
    this.serving.end();
    way.reader.meter.end();
}

impl<S, Fut> Loop<S, Fut>
where
    S: Fn(Exchange) -> Fut,
    Fut: Future<Output = Done>,
{
    /// False where the connection is gone, true where this thread is to stand by.
    fn read_until_idle(&mut self, way: &DeviceWay) -> bool {
        loop {
            let mut ended = std::mem::take(&mut self.ended);
            self.serving.poll_woken(|_, slot, outcome| ended.push((slot, outcome)));
            ended.drain(..).for_each(|(slot, outcome)| self.finish(slot, outcome));
            self.ended = ended;
            match self.next(way) {
                Next::Request(slot, len) => {
                    let index = slot.index();
                    if let Some(outcome) = self.begin(slot, len) {
                        self.finish(index, outcome);
                    }
                    // Who stands by is called to read, which is nothing for who waits for its own requests.
                    if !self.nonblocking && self.serving.pending() == 0 && way.reader.leaves() {
                        return true;
                    }
                }
                Next::Again => {}
                Next::Gone => return false,
            }
        }
    }

    fn next(&mut self, way: &DeviceWay) -> Next {
        if let Some(kept) = &self.kept {
            kept.drain.has_read();
        }
        let Some(slot) = self.free.pop() else {
            way.reader.goes_away();
            self.wait_for_answers(way);
            return if self.listening.is_over { Next::Gone } else { Next::Again };
        };
        if self.listening.to_end && !std::mem::replace(&mut self.listening.not_to_end, true) {
            // It would go off at each request of the others.
            self.serving.queue().cancel(Token::End);
        }
        if self.serving.pending() > 0 || way.company.is_there() {
            self.block_never();
            if self.serving.queue().has_ring() {
                return self.next_of_many(slot, way);
            }
            self.wait_for_request(way);
        } else {
            if self.listening.answers > 0 || self.listening.to_end {
                // Answers are sent by calls that do not wait, which needs the descriptor as it is.
                self.free.push(slot);
                self.enter_ring(0, None);
                return Next::Again;
            }
            self.block_again();
            if self.serving.holds_memory() {
                way.reader.rests(true, || self.give_back_when_idle());
            }
        }
        self.read(slot, way)
    }

    /// Reads the next request where there is one, or waits on the ring.
    fn next_of_many(&mut self, slot: u32, way: &DeviceWay) -> Next {
        if self.listening.to_device {
            self.free.push(slot);
            self.wait_on_ring(way);
            return Next::Again;
        }
        let in_company = self.serving.queue().ops_count() > 0;
        let next = self.read(slot, way);
        match next {
            Next::Request(..) => {
                if in_company {
                    way.company.met();
                }
                way.reader.meter.woke();
                way.reader.has_more(self.listening.since_wait > 0);
                self.listening.since_wait += 1;
                self.listening.read += 1;
                if !way.company.is_there() {
                    // What must be expected is no other request: the ring tells of one cheaper than a read.
                    self.listen_to_device();
                } else if self.listening.read.is_multiple_of(BATCH) {
                    self.enter_ring(0, None);
                }
            }
            Next::Again => self.listen_to_device(),
            Next::Gone => {}
        }
        next
    }

    /// Whether something may be read now: beside rings that another server takes over, it would be lost with this one. A read that waits could not be
    /// told from one that has read, so none waits there.
    fn may_read(&mut self, way: &DeviceWay) -> bool {
        let Some(kept) = self.kept.clone() else { return true };
        self.block_never();
        if self.serving.pending() == 0 {
            let device = self.serving.queue().device().as_fd();
            way.reader.rests(true, || {
                let _woken = shuntfs_sys::event::wait_readable(&[device], None);
            });
        }
        let may = kept.drain.may_read();
        if !may {
            std::thread::sleep(REPLACED);
        }
        may
    }

    fn read(&mut self, slot: u32, way: &DeviceWay) -> Next {
        if !self.may_read(way) {
            self.free.push(slot);
            return Next::Again;
        }
        self.serving.warm(slot);
        let queue = self.serving.queue();
        let mut memory = queue.take_slot(slot).expect("it is free");
        let room = device_room(memory.size());
        let buffer = memory.bytes_mut(room);
        let device = queue.device();
        let outcome = if self.nonblocking {
            device.read(buffer)
        } else {
            way.reader.rests(true, || device.read(buffer))
        };
        match outcome {
            Ok(len) => return Next::Request(memory, len),
            Err(error) => {
                self.free.push(slot);
                match error {
                    // NOENT: the request went while it was being read. IO: it was too large, and was failed.
                    OsError::INTR | OsError::NOENT | OsError::IO => {}
                    // Another thread made the shared descriptor nonblocking.
                    OsError::AGAIN if !self.nonblocking => self.wait_for_request(way),
                    OsError::AGAIN => {}
                    OsError::NODEV | OsError::CONNABORTED | OsError::NOTCONN => return Next::Gone,
                    other => {
                        tracing::error!(error = %other, "reading the device failed");
                        return Next::Gone;
                    }
                }
            }
        }
        Next::Again
    }

    /// Takes a request apart and serves it.
    fn begin(&mut self, slot: Slot, len: usize) -> Option<Outcome> {
        let buffer = slot.bytes(device_room(slot.size()));
        let parsed = buffer.get(..len).and_then(|bytes| InHeader::read_from_prefix(bytes).ok());
        let Some((header, rest)) = parsed else {
            tracing::error!(len, "a request without a header");
            return Some(Outcome::Silent);
        };
        let opcode = Opcode::new(header.opcode);
        self.let_forgets_gather(opcode);
        if opcode == Some(Opcode::Interrupt) {
            if let Ok((interrupt, _)) = InterruptIn::read_from_prefix(rest) {
                self.serving.port.registry.arrived(interrupt.unique);
            }
            return Some(Outcome::Silent);
        }
        if let Way::Device(way) = self.serving.port.way() {
            way.reader.meter.serves(header.pid);
            let is_to_follow = !self.nonblocking && way.reader.is_to_follow();
            if is_to_follow && header.pid != 0 && opcode.is_some_and(asks_for_name) {
                way.reader.follow(header.pid);
            }
            if !self.nonblocking
                && let Some(more) = way.company.look(|| self.serving.port.request_waits())
            {
                way.reader.has_more(more);
                if more && self.serving.queue().has_ring() && is_direct(opcode, rest) {
                    way.company.met();
                }
            }
        }
        match Parts::of_device(len, opcode.map_or(0, Opcode::fixed_len)) {
            Ok(parts) => self.serving.start(slot, header, parts),
            Err(_) => Some(Outcome::Silent),
        }
    }

    /// Beside rings, this thread reads FORGETs and INTERRUPTs, which nobody waits for: a FORGET that came alone is
    /// often the first of many, each of which would wake this thread anew, so it rests and then reads them as one.
    fn let_forgets_gather(&self, opcode: Option<Opcode>) {
        if opcode == Some(Opcode::Forget) && self.aside.load(Ordering::Relaxed) {
            std::thread::sleep(GATHER);
        }
    }

    fn finish(&mut self, slot: u32, outcome: Outcome) {
        let memory = self.serving.queue().take_slot(slot).expect("its request has ended");
        if let Outcome::Reply(len) = outcome
            && len <= GATHER_MAX
            && self.gathers(slot)
        {
            self.serving.port.queue_answer(memory, self.serving.unique(slot), len);
            self.listening.answers += 1;
            return;
        }
        // A connection that is gone shows itself at the next read.
        let _sent = self.serving.port.send(memory, self.serving.unique(slot), outcome);
        self.free.push(slot);
    }

    /// Whether the answer in `slot` may wait for others.
    fn gathers(&self, slot: u32) -> bool {
        let port = &self.serving.port;
        let Way::Device(way) = port.way() else { return false };
        self.nonblocking && port.queue().has_ring() && way.company.is_there() && self.serving.moves_data(slot)
    }

    /// The ring has sent an answer, or could not.
    fn answered(&mut self, slot: u32, result: i32) {
        self.listening.answers -= 1;
        if result < 0 {
            let error = OsError::from_raw_os_error(result.saturating_neg());
            // A connection that is gone shows itself at the next read.
            let _sent = self.serving.port.was_refused(self.serving.unique(slot), error);
        }
        self.free.push(slot);
    }

    /// Waits until a request goes on or the connection ends, and reads no request meanwhile.
    fn wait_for_answers(&mut self, way: &DeviceWay) {
        let queue = self.serving.queue().clone();
        if queue.has_ring() {
            if !std::mem::replace(&mut self.listening.to_end, true) {
                queue.with_ring(|ring| ring.push_poll_end(queue.device().as_fd(), Token::End.encode()));
            }
            self.wait_on_ring(way);
            return;
        }
        let ready = queue.ready();
        if ready.may_sleep() {
            let ended = shuntfs_sys::event::wait_readable_or_end(ready.bell(), queue.device().as_fd());
            self.listening.is_over = ended == Ok(true);
        }
        ready.woke();
        ready.still_bell();
    }

    fn listen_to_device(&mut self) {
        if !std::mem::replace(&mut self.listening.to_device, true) {
            let device = self.serving.queue().device().as_fd();
            let queue = self.serving.queue();
            queue.with_ring(|ring| ring.push_poll(device, Token::Device.encode()));
        }
    }

    /// Submits what is queued and waits for whatever comes first.
    fn wait_on_ring(&mut self, way: &DeviceWay) {
        let queue = self.serving.queue().clone();
        if !std::mem::replace(&mut self.listening.to_bell, true) {
            queue.with_ring(|ring| ring.push_poll(queue.ready().bell(), Token::Bell.encode()));
        }
        let idle = self.serving.pending() == 0;
        let operations = queue.ops_count();
        let sleeps = queue.ready().may_sleep();
        // What is waited for comes after the answers, which complete as they are sent. Where nothing else is bound to
        // come, they are all that there is to wait for.
        let want = if self.listening.to_device { self.listening.answers + 1 } else { 1 };
        let limit = (idle && self.serving.holds_memory()).then_some(IDLE);
        let reads = sleeps && !self.free.is_empty();
        way.reader.rests(reads, || self.enter_ring(if sleeps { want } else { 0 }, limit));
        queue.ready().woke();
        if sleeps {
            let read = std::mem::take(&mut self.listening.since_wait);
            way.company.waited(operations, read);
        }
    }

    fn enter_ring(&mut self, want: u32, limit: Option<Duration>) {
        let queue = self.serving.queue().clone();
        let turned = queue.turn_for(want, limit);
        self.listening.read = 0;
        while let Some((token, result)) = queue.next() {
            match token {
                Token::Entry(slot) => self.answered(slot, result),
                Token::Device => self.listening.to_device = false,
                Token::End => {
                    (self.listening.to_end, self.listening.not_to_end) = (false, false);
                    self.listening.is_over |= result > 0;
                }
                Token::Bell => {
                    self.listening.to_bell = false;
                    queue.ready().still_bell();
                }
                other => tracing::error!(?other, result, "a completion of nobody"),
            }
        }
        match turned {
            Ok(()) => {}
            Err(OsError::TIME) => {
                if self.listening.answers == 0 {
                    self.serving.give_back();
                }
            }
            Err(error) => abort_without_ring(error),
        }
    }

    /// Waits for a request or the bell without a ring.
    fn wait_for_request(&self, way: &DeviceWay) {
        let ready = self.serving.queue().ready();
        if ready.may_sleep() {
            let both = [ready.bell(), self.serving.queue().device().as_fd()];
            way.reader.rests(true, || {
                let _woken = shuntfs_sys::event::wait_readable(&both, None);
            });
        }
        ready.woke();
        ready.still_bell();
    }

    fn give_back_when_idle(&mut self) {
        let device = self.serving.queue().device().as_fd();
        if shuntfs_sys::event::wait_readable(&[device], Some(IDLE)) == Ok(false) {
            self.serving.give_back();
        }
    }

    fn block_never(&mut self) {
        if !std::mem::replace(&mut self.nonblocking, true) {
            self.blocking.change(self.serving.queue().device(), true);
        }
    }

    fn block_again(&mut self) {
        if self.kept.is_none() && std::mem::replace(&mut self.nonblocking, false) {
            self.blocking.change(self.serving.queue().device(), false);
        }
    }
}

impl Blocking {
    fn change(&self, device: &FuseDevice, unwanted: bool) {
        let mut count = self.unwanted_by.lock();
        let before = *count;
        *count = if unwanted { before + 1 } else { before - 1 };
        if (before == 0) != (*count == 0)
            && let Err(error) = device.set_nonblocking(unwanted)
        {
            tracing::error!(%error, "the device's mode cannot be changed");
        }
    }
}

/// Whether the kernel sends this in the middle of a system call of a caller who waits for the answer, and is not about to end.
fn asks_for_name(opcode: Opcode) -> bool {
    use Opcode::{
        Access, Create, Getattr, Getxattr, Link, Listxattr, Lookup, Mkdir, Mknod, Open, Opendir, Readdir,
        Readdirplus, Readlink, Rename, Rename2, Rmdir, Setattr, Statfs, Symlink, Unlink,
    };
    let names = [
        Lookup,
        Getattr,
        Setattr,
        Readlink,
        Mknod,
        Mkdir,
        Symlink,
        Unlink,
        Rmdir,
        Rename,
        Rename2,
        Link,
        Open,
        Create,
        Opendir,
        Readdir,
        Readdirplus,
        Getxattr,
        Listxattr,
        Access,
        Statfs,
    ];
    names.contains(&opcode)
}
