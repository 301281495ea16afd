//! A slot's memory beside operations and loans, on a queue of this thread.

use std::future::Future;
use std::io::Write;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use shuntfs_sys::OsError;
use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::uring::Ring;

use super::*;
use crate::{OffloadPool, QueueParts};

impl RingFile for std::io::PipeReader {}
impl RingFile for std::io::PipeWriter {}

const LEN: usize = 8192;

/// A queue of two slots; without a ring, or with one where there is one.
fn queue(ring: Option<Ring>) -> Queue {
    let ready = Ready::new(2).expect("a bell");
    let slots = Slots::reserve(2, LEN, &ready).expect("memory");
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").expect("opens");
    let device = Arc::new(FuseDevice::from_fd(null.into()).expect("a stand-in"));
    Queue::new(QueueParts { index: 0, device, ready, slots, pool: OffloadPool::new(4, || ()), ring })
}

fn queue_with_ring() -> Option<Queue> {
    let ring = Ring::new(4);
    if ring.is_err() {
        println!("SKIPPED: io_uring is not to be had here");
    }
    ring.ok().map(|ring| queue(Some(ring)))
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Awaits an operation of the queue's ring.
fn finish<F: Future>(queue: &Queue, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = poll(future.as_mut()) {
            return value;
        }
        queue.turn(true, None).expect("the ring works");
    }
}

fn panics<T>(look: impl FnOnce() -> T) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(look()))).is_err()
}

/// A regression: a queue without further requests kept the file open that it had read last, and so its room on the disk.
#[test]
fn a_file_is_let_go_while_the_queue_waits() {
    let Some(queue) = queue_with_ring() else { return };
    let (file, never) = (Arc::new(()), shuntfs_sys::event::EventFd::new().expect("eventfd"));
    queue.with_ring(|ring| ring.push_poll(never.as_fd(), Token::Device.encode()));
    queue.keep_until_submitted(&file);
    std::thread::scope(|scope| {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let never = &never;
        scope.spawn(move || {
            if is_done.recv_timeout(Duration::from_secs(20)).is_err() {
                never.signal();
            }
        });
        assert_eq!(queue.turn(true, None), Ok(()));
        assert_eq!(
            (queue.next(), Arc::strong_count(&file)),
            (None, 1),
            "nothing came, and nobody has the file"
        );
        drop(done);
    });
}

#[test]
fn a_slot_is_one_persons() {
    let queue = queue(None);
    let mut slot = queue.take_slot(1).expect("free");
    assert!(queue.take_slot(1).is_none() && queue.take_slot(0).is_some());
    slot.bytes_mut(0..4).copy_from_slice(b"mine");
    assert!(panics(|| slot.bytes(LEN - 1..LEN + 1).len()), "not inside");
    assert!(!queue.give_back(), "somebody has it");
    assert!(!queue.is_slot_settled(1));
    drop(slot);
    assert!(queue.is_slot_settled(1));
    assert_eq!(queue.take_slot(1).expect("free").bytes(0..4), b"mine");
    assert!(queue.give_back());
    assert_eq!(queue.take_slot(1).expect("free").bytes(0..4), [0; 4]);
}

#[test]
fn slots_are_warm_from_before_they_are_read_into_until_memory_is_given_back() {
    assert_eq!(queue(None).warm(0), 0, "nobody asked for it");
    let ready = Ready::new(2).expect("a bell");
    let mut slots = Slots::reserve(2, LEN, &ready).expect("memory");
    slots.warm_whole();
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").expect("opens");
    let device = Arc::new(FuseDevice::from_fd(null.into()).expect("a stand-in"));
    let pool = OffloadPool::new(1, || ());
    let queue = Queue::new(QueueParts { index: 0, device, ready, slots, pool, ring: None });
    assert_eq!((queue.warm(1), queue.warm(1), queue.warm(0)), (1, 1, 2));
    queue.take_slot(1).expect("free").bytes_mut(0..4).fill(7);
    assert_eq!(queue.warm(1), 2);
    assert_eq!(queue.take_slot(1).expect("free").bytes(0..4), [7; 4], "what it holds stays");
    assert!(queue.give_back());
    assert_eq!(queue.warm(1), 1, "the next one alone");
}

/// A regression that would be silent: the kernel goes on with the pages that it has pinned, so no others may come to lie there.
#[test]
fn pinned_buffers_are_never_given_back() {
    let Ok(mut ring) = Ring::new(8) else {
        println!("SKIPPED: io_uring is not to be had here");
        return;
    };
    ring.make_table(3).expect("a table");
    let ready = Ready::new(2).expect("a bell");
    let slots = Slots::reserve_with_pool(2, LEN, (3, 4096), &ready).expect("memory");
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").expect("opens");
    let device = Arc::new(shuntfs_sys::device::FuseDevice::from_fd(null.into()).expect("a stand-in"));
    let pool = crate::OffloadPool::new(1, || ());
    let queue = Queue::new(crate::QueueParts { index: 0, device, ready, slots, pool, ring: Some(ring) });
    assert_eq!(queue.pin_pool(3, 2), Err(shuntfs_sys::OsError::INVAL), "beyond the table");
    if let Err(error) = queue.pin_pool(2, 2) {
        println!("SKIPPED: no memory can be pinned here: {error}");
        return;
    }
    let write = |buffer: u32, byte: u8| {
        let mut slot = queue.take_slot(0).expect("free");
        slot.join_pool();
        // SAFETY: no driver has it.
        assert!(unsafe { slot.take_buffer(buffer) });
        slot.bytes_mut(4096..LEN).fill(byte);
        queue.slots().free_buffer(0);
    };
    let read = |buffer: u32| {
        let mut slot = queue.take_slot(0).expect("free");
        // SAFETY: as above.
        assert!(unsafe { slot.take_buffer(buffer) });
        let bytes = slot.bytes(4096..LEN).to_vec();
        queue.slots().free_buffer(0);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    };
    (0..3).for_each(|buffer| write(buffer, 7));
    queue.take_slot(1).expect("free").bytes_mut(0..4).fill(7);
    assert!(queue.give_back());
    queue.gather(0);
    assert_eq!([read(0), read(1), read(2)], [7, 7, 0], "the third is not pinned");
    assert_eq!(queue.take_slot(1).expect("free").bytes(0..4), [0; 4]);
}

#[test]
fn operations_read_and_write_parts() {
    let Some(queue) = queue_with_ring() else { return };
    let program = Arc::new(std::fs::File::open("/proc/self/exe").expect("own program"));
    let mut slot = queue.take_slot(0).expect("free");
    assert_eq!(finish(&queue, slot.read_file(&program, 4096..4100, 0)), Ok(4));
    assert_eq!(slot.bytes(4096..4100), b"\x7fELF");
    let (mut out, into) = std::io::pipe().expect("a pipe");
    let into = Arc::new(into);
    {
        let slot = queue.take_slot(1).expect("free");
        assert_eq!(finish(&queue, slot.write_file(&into, 0..3, u64::MAX)), Ok(3));
    }
    let mut written = [9; 3];
    std::io::Read::read_exact(&mut out, &mut written).expect("reads");
    assert_eq!(written, [0; 3]);
    let (bytes, count) = finish(&queue, queue.read_owned(&program, vec![0; 4], 0)).expect("reads");
    assert_eq!((&*bytes, count), (&b"\x7fELF"[..], 4));
    let missing = Arc::new(std::fs::File::open("/").expect("opens"));
    assert_eq!(finish(&queue, slot.read_file(&missing, 0..4, 0)), Err(OsError::ISDIR));
    assert_eq!(queue.ops_count(), 0);
}

/// A file may be closed between the submission and the kernel's look at it, for all that whoever began the operation knows.
#[test]
fn a_file_stays_open_until_the_kernel_has_seen_it() {
    let Some(queue) = queue_with_ring() else { return };
    let mut slot = queue.take_slot(0).expect("free");
    let program = Arc::new(std::fs::File::open("/proc/self/exe").expect("own program"));
    let weak = Arc::downgrade(&program);
    {
        let mut reading = Box::pin(slot.read_file(&program, 0..4, 0));
        assert!(poll(reading.as_mut()).is_pending());
        std::mem::forget(reading);
    }
    drop(program);
    assert!(weak.upgrade().is_some(), "the ring has it");
    queue.turn(true, None).expect("the ring works");
    assert!(weak.upgrade().is_none(), "the kernel has it");
    assert_eq!(slot.bytes(0..4), b"\x7fELF");
}

/// Nothing comes out of the pipe while the operation waits: neither dropping nor leaking it waits, and nobody gets at the memory before
/// it has ended.
#[test]
fn what_is_dropped_or_leaked_keeps_its_slot_until_it_has_ended() {
    let Some(queue) = queue_with_ring() else { return };
    let (out, mut into) = std::io::pipe().expect("a pipe");
    let out = Arc::new(out);
    for (leaks, submits) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut slot = queue.take_slot(0).expect("free");
        let mut reading = Box::pin(slot.read_file(&out, 0..4, u64::MAX));
        assert!(poll(reading.as_mut()).is_pending());
        if submits {
            let limit = Some(Duration::from_millis(5));
            // What is left of an attempt to end the one before may come first.
            while queue.turn(true, limit).is_ok() {}
        }
        if leaks {
            std::mem::forget(reading);
        } else {
            drop(reading);
        }
        assert_eq!(queue.ops_count(), 1, "nobody waited");
        assert!(panics(|| slot.bytes(0..4).len()) && panics(|| slot.bytes_mut(0..4).len()));
        assert!(panics(|| slot.lend(0..4)), "it is written");
        assert_eq!(finish(&queue, slot.read_file(&out, 0..4, 0)), Err(OsError::BUSY));
        assert_eq!(finish(&queue, slot.write_file(&out, 0..4, 0)), Err(OsError::BUSY));
        drop(slot);
        assert!(queue.take_slot(0).is_none() && !queue.give_back());
        assert!(!queue.is_slot_settled(0), "it is asked to end");
        assert_eq!(queue.ready().take_from(0), None);
        while queue.ops_count() > 0 {
            queue.turn(true, None).expect("the ring works");
        }
        assert_eq!(queue.ready().take_from(0), Some(0), "the slot is told");
        assert!(queue.is_slot_settled(0));
    }
    into.write_all(b"left").expect("the pipe takes it");
    let mut slot = queue.take_slot(0).expect("free");
    assert_eq!(finish(&queue, slot.read_file(&out, 0..4, u64::MAX)), Ok(4), "nobody else read it");
}

/// What a thread looks at is left alone until it has looked, whatever becomes of the slot.
#[test]
fn a_loan_holds_the_slot() {
    let queue = queue(None);
    let mut slot = queue.take_slot(0).expect("free");
    slot.bytes_mut(0..4).copy_from_slice(b"lent");
    let (one, other) = (slot.lend(0..2), slot.lend(2..4));
    assert!(panics(|| slot.bytes_mut(0..1).len()));
    assert_eq!(slot.bytes(0..4), b"lent", "it may be read");
    drop(slot);
    assert!(!queue.is_slot_settled(0) && !queue.give_back());
    let seen = std::thread::spawn(move || one.bytes().to_vec()).join().expect("no panic");
    assert_eq!((&*seen, queue.ready().take_from(0)), (&b"le"[..], None));
    // The queue may even be gone before the loan.
    let ready = Arc::clone(queue.ready());
    drop(queue);
    let seen = std::thread::spawn(move || other.bytes().to_vec()).join().expect("no panic");
    assert_eq!((&*seen, ready.take_from(0)), (&b"nt"[..], Some(0)));
}

#[test]
fn all_operations_end_with_the_queue() {
    let Some(queue) = queue_with_ring() else { return };
    let (out, _into) = std::io::pipe().expect("a pipe");
    let out = Arc::new(out);
    let mut owned = Box::pin(queue.read_owned(&out, vec![0; 9], u64::MAX));
    assert!(poll(owned.as_mut()).is_pending());
    let mut slot = queue.take_slot(1).expect("free");
    let mut reading = Box::pin(slot.read_file(&out, 0..4, u64::MAX));
    assert!(poll(reading.as_mut()).is_pending());
    drop(reading);
    drop(slot);
    assert_eq!(queue.ops_count(), 2);
    queue.end_ops().expect("the ring works");
    assert_eq!(queue.ops_count(), 0);
    assert_eq!(finish(&queue, owned), Err(OsError::CANCELED));
    assert!(queue.is_slot_settled(1));
}

/// A pooled slot has its head, and a buffer while it serves; a buffer is one slot's.
#[test]
fn a_pooled_slot_has_the_buffer_that_it_took() {
    const HEAD: usize = 4096;
    let ready = Ready::new(2).expect("a bell");
    let slots = Slots::reserve_with_pool(2, LEN, (2, HEAD), &ready).expect("memory");
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").expect("opens");
    let device = Arc::new(FuseDevice::from_fd(null.into()).expect("a stand-in"));
    let parts = QueueParts { index: 0, device, ready, slots, pool: OffloadPool::new(1, || ()), ring: None };
    let queue = Queue::new(parts);
    let (start, len) = queue.pool_place(0..2);
    assert_eq!(len, 2 * (LEN - HEAD));
    assert!(panics(|| queue.pool_place(0..3)));
    let (mut one, mut other) = (queue.take_slot(0).expect("free"), queue.take_slot(1).expect("free"));
    // SAFETY: no slot of this queue is ever given to the kernel.
    let take = |slot: &mut Slot, buffer| unsafe { slot.take_buffer(buffer) };
    one.bytes_mut(HEAD..HEAD + 4).copy_from_slice(b"mine");
    assert!(!take(&mut one, 0), "it has its own memory");
    one.join_pool();
    other.join_pool();
    assert!(!one.has_payload() && panics(|| one.bytes(HEAD..HEAD + 1).len()));
    assert!(panics(|| one.bytes(HEAD - 1..HEAD + 1).len()));
    assert!(one.bytes(HEAD..HEAD).is_empty() && one.bytes(0..HEAD).len() == HEAD);
    assert!(!take(&mut one, 2), "there is none");
    assert!(take(&mut one, 1) && !take(&mut one, 0), "one at a time");
    assert!(!take(&mut other, 1), "it is taken");
    assert!(take(&mut other, 0));
    assert_eq!(one.address(HEAD..LEN), start + (LEN - HEAD) as u64);
    assert_eq!(other.address(HEAD..LEN), start);
    one.bytes_mut(HEAD..LEN).fill(1);
    other.bytes_mut(HEAD..LEN).fill(2);
    assert!(one.bytes(HEAD..LEN).iter().all(|byte| *byte == 1), "they do not overlap");
    assert!(panics(|| one.bytes(HEAD - 1..HEAD + 1).len()), "it is not all of one piece");
}

/// Without a driver that put pages there, nothing moves, and the slot is free again.
#[test]
fn pages_that_are_not_there_are_refused() {
    let Some(queue) = queue_with_ring() else { return };
    let program = Arc::new(std::fs::File::open("/proc/self/exe").expect("own program"));
    let mut slot = queue.take_slot(0).expect("free");
    assert_eq!(finish(&queue, slot.read_to_pages(&program, 0..4, 0)), Err(OsError::FAULT), "no table");
    queue.with_ring(|ring| ring.make_table(2)).expect("a table");
    assert_eq!(finish(&queue, slot.read_to_pages(&program, 0..4, 0)), Err(OsError::FAULT), "an empty place");
    let file = Arc::new(shuntfs_sys::memory::file_in_memory(c"test").expect("a file"));
    assert_eq!(finish(&queue, slot.write_from_pages(&file, 0..4, 0)), Err(OsError::FAULT));
    assert_eq!(file.metadata().expect("stat").len(), 0);
    let mut reading = Box::pin(slot.read_to_pages(&program, 0..4, 0));
    assert!(poll(reading.as_mut()).is_pending());
    drop(reading);
    assert_eq!(finish(&queue, slot.read_to_pages(&program, 0..4, 0)), Err(OsError::BUSY), "one is under way");
    queue.end_ops().expect("the ring works");
    assert!(slot.is_free());
}
