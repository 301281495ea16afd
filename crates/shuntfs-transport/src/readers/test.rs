use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use shuntfs_runtime::{OffloadPool, Queue, QueueParts, Ready, Slots};
use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::uring::Ring;
use shuntfs_sys::{OsError, Peer, Result};
use shuntfs_wire::{Errno, InHeader, Opcode, OutHeader};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::*;
use crate::device::{DeviceSeat, serve};
use crate::slot::slot_len;

fn until(is_so: &dyn Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < patience);
        thread::sleep(Duration::from_millis(1));
    }
}

fn two() -> (Arc<Gauges>, Arc<Readers>, [Reader; 2]) {
    let (gauges, readers) = (Gauges::new(2).expect("a timer"), Readers::new(2));
    let both = [0, 1].map(|index| readers.reader(Meter::new(&gauges, index)));
    (gauges, readers, both)
}

#[test]
fn one_reader_reads_until_it_is_about_to_block_or_full() {
    let (_, readers, [first, second]) = two();
    assert!(first.stand_by());
    assert_eq!(readers.state.lock().at_work(), 1);
    first.goes_away();
    first.goes_away();
    assert_eq!(readers.state.lock().at_work(), 2, "there are no more");
    assert!(second.stand_by());
    let is_told = || second.meter.gauge().is_to_leave.store(true, Ordering::Relaxed);
    is_told();
    assert!(!second.leaves(), "the other one blocks below");
    first.rests(true, || ());
    is_told();
    assert!(second.leaves());
    assert!(!second.leaves(), "it was told once");
    readers.end();
    assert!(!second.stand_by());
}

#[test]
fn a_reader_that_is_stuck_is_away_until_it_comes_back() {
    let (gauges, readers, [first, second]) = two();
    assert!(first.stand_by());
    readers.state.lock().part_with(&gauges, |index| index == 1);
    assert!(!readers.state.lock().is_deserted(), "the other one is stuck, and does not read");
    readers.state.lock().part_with(&gauges, |index| index == 0);
    assert!(readers.state.lock().is_deserted());
    readers.call(&mut readers.state.lock());
    assert!(!readers.state.lock().is_deserted(), "one is called");
    assert!(second.stand_by());
    first.rests(false, || ());
    assert_eq!(readers.state.lock().reading().collect::<Vec<_>>(), [1]);
    first.rests(true, || ());
    assert_eq!(readers.state.lock().reading().collect::<Vec<_>>(), [0, 1]);
}

/// Tells which requests were answered.
#[derive(Debug)]
struct Answers(mpsc::Sender<u64>);

impl Peer for Answers {
    fn write(&self, message: &[IoSlice<'_>]) -> Result<usize> {
        let header = OutHeader::read_from_bytes(&message[0]).expect("a header");
        self.0.send(header.unique).expect("somebody listens");
        Ok(message.iter().map(|piece| piece.len()).sum())
    }

    fn backing_open(&self, _: BorrowedFd<'_>) -> Result<u32> {
        Err(OsError::NOSYS)
    }

    fn backing_close(&self, _: u32) -> Result<()> {
        Err(OsError::NOSYS)
    }
}

fn request(opcode: Opcode, unique: u64, arguments: &[u8]) -> Vec<u8> {
    let mut header = InHeader::new_zeroed();
    (header.opcode, header.unique) = (opcode as u32, unique);
    header.len = u32::try_from(size_of::<InHeader>() + arguments.len()).unwrap();
    [header.as_bytes(), arguments].concat()
}

/// A thread that serves `device`, and answers the request `waits` when that is interrupted.
fn serves(reader: Reader, device: FuseDevice, has_ring: bool, waits: u64) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let ready = Ready::new(4).unwrap();
        let slots = Slots::reserve(4, slot_len(8192), &ready).unwrap();
        let ring = has_ring.then(|| Ring::new(8).unwrap());
        let (device, pool) = (Arc::new(device), OffloadPool::new(1, || ()));
        let queue = Queue::new(QueueParts { index: 0, device, ready, slots, pool, ring });
        let (blocking, registry, aside) = (Arc::default(), Arc::default(), Arc::default());
        let seat = DeviceSeat { queue, blocking, reader, registry, aside, kept: None };
        serve(seat, |exchange| async move {
            if exchange.header().unique == waits {
                exchange.signal().arrived().await;
            }
            exchange.error(Errno::IO)
        });
    })
}

/// A regression: whoever was to leave waited for its last request, which may take forever, and neither read nor stood by. The
/// others took it for one that they could call.
#[test]
fn who_has_a_request_under_way_does_not_leave() {
    const WAITS: u64 = 4;
    for has_ring in [false, true] {
        if has_ring && Ring::new(8).is_err() {
            println!("SKIPPED: io_uring is not available here");
            continue;
        }
        let (told, answers) = mpsc::channel();
        let (device, kernel) = FuseDevice::of_peer(Arc::new(Answers(told))).unwrap();
        let (gauges, readers, [stuck, reader]) = two();
        // It reads, as far as the others know.
        assert!(stuck.stand_by());
        stuck.goes_away();
        stuck.rests(true, || ());
        let reads = || readers.state.lock().reading().any(|index| index == 1);
        let thread = serves(reader, device, has_ring, WAITS);
        until(&reads);
        let answer = |unique| assert_eq!(answers.recv_timeout(Duration::from_secs(10)), Ok(unique));
        let send = |unique| kernel.send(&request(Opcode::Statfs, unique, &[])).unwrap();
        let is_told = || gauges.all[1].is_to_leave.load(Ordering::Relaxed);
        send(WAITS);
        gauges.all[1].is_to_leave.store(true, Ordering::Relaxed);
        send(WAITS + 1);
        answer(WAITS + 1);
        thread::sleep(Duration::from_millis(20));
        assert!(reads() && is_told(), "one is under way");
        kernel.send(&request(Opcode::Interrupt, 0, &WAITS.to_ne_bytes())).unwrap();
        answer(WAITS);
        let left = (WAITS + 2..).take(200).find(|&unique| {
            if reads() {
                send(unique);
                answer(unique);
                thread::sleep(Duration::from_millis(1));
            }
            !reads()
        });
        assert!(left.is_some(), "it stands by when it has nothing under way");
        kernel.end();
        readers.end();
        thread.join().unwrap();
    }
}

/// A regression: where all slots waited for something, nobody saw that the connection was gone, and they waited forever.
#[test]
fn the_end_is_seen_while_every_slot_is_taken() {
    for has_ring in [false, true] {
        if has_ring && Ring::new(8).is_err() {
            println!("SKIPPED: io_uring is not available here");
            continue;
        }
        let (told, answers) = mpsc::channel();
        let (device, kernel) = FuseDevice::of_peer(Arc::new(Answers(told))).unwrap();
        let (_, readers, [reader, _other]) = two();
        let thread = serves(reader, device, has_ring, 7);
        (0..4).for_each(|_| kernel.send(&request(Opcode::Statfs, 7, &[])).unwrap());
        until(&|| readers.state.lock().at_work() == 2);
        kernel.end();
        until(&|| thread.is_finished());
        thread.join().unwrap();
        drop(answers);
    }
}
