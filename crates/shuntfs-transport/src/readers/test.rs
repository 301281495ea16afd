use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::mpsc;

use shuntfs_runtime::{OffloadPool, Queue, QueueParts, Ready, Slots};
use shuntfs_sys::Peer;
use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::uring::Ring;
use shuntfs_wire::{Errno, InHeader, Opcode, OutHeader};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::*;
use crate::device::{DeviceSeat, serve};
use crate::slot::slot_len;

fn waited(time: Duration) -> Result<usize> {
    std::thread::sleep(time);
    Ok(0)
}

fn until(is_so: &dyn Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < patience);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn load_calls_a_second_reader_and_idleness_sends_it_away() {
    let readers = Readers::on_cpus(2, 4);
    let (first, second) = (readers.reader(Pacer::new(None, 0)), readers.reader(Pacer::new(None, 1)));
    assert!(first.stand_by());
    for _ in 0..BUSY_STREAK {
        assert_eq!(readers.state.lock().called, 0, "one request that waited is no load");
        assert!(!first.timed(|| Ok(0)).1);
        first.serves(7, Sort::Data);
    }
    assert_eq!(readers.state.lock().called, 1, "a reader is called");
    assert!(second.stand_by());
    let mut left = false;
    for _ in 0..IDLE_STREAK {
        left = second.timed(|| waited(LONG * 2)).1;
    }
    assert!(left && second.leave());
    for _ in 0..IDLE_STREAK * 2 {
        assert!(!(first.timed(|| waited(LONG * 2)).1 && first.leave()), "the last reader stays");
    }
    readers.end();
    assert!(!second.stand_by());
}

/// With one CPU for the only caller and one for the reader, a second reader took the caller's: a disk without contents
/// lost a quarter of its operations by a second queue.
#[test]
fn one_caller_keeps_its_cpu() {
    for (cpus, callers, expected) in [(1, 1, 0), (2, 1, 0), (3, 1, 1), (2, 2, 1), (1, 4, 1)] {
        let readers = Readers::on_cpus(2, cpus);
        let reader = readers.reader(Pacer::new(None, 0));
        assert!(reader.stand_by());
        // Who looks at the file first is somebody else.
        for caller in [5, 6, 5] {
            reader.serves(caller, Sort::Names);
        }
        for request in 0..512 {
            let _read = reader.timed(|| Ok(0));
            reader.serves(7 + request / 32 % callers, Sort::Data);
        }
        assert_eq!(readers.state.lock().called, expected, "{cpus} CPUs, {callers} callers");
    }
}

#[test]
fn requests_that_did_not_wait_end_the_streak() {
    let readers = Readers::new(2);
    let reader = readers.reader(Pacer::new(None, 0));
    assert!(reader.stand_by());
    for _ in 0..BUSY_STREAK * 2 {
        let _read = reader.timed(|| Ok(0));
        reader.serves(7, Sort::Data);
        let _read = reader.timed(|| waited(AT_ONCE * 10));
        reader.serves(7, Sort::Data);
    }
    assert_eq!(readers.state.lock().called, 0);
}

/// A reader that looks at a caller of data, or one that is about to end, may wait for itself.
#[test]
fn only_who_waits_for_a_name_is_looked_at_here() {
    let readers = Readers::new(1);
    let reader = readers.reader(Pacer::new(None, 0));
    let caller = std::process::id();
    let looks = |sort| (0..LOOK_EVERY * 2).filter_map(|_| reader.follows(caller, sort)).collect::<Vec<_>>();
    assert!(looks(Sort::Other).is_empty());
    assert_eq!(reader.bound.get(), None, "a caller that may be about to end was looked at");
    let asked = looks(Sort::Data);
    assert_eq!(asked.len(), 1, "another thread is asked once for a caller, and seldom again");
    assert_eq!(reader.bound.get(), None);
    asked[0].look();
    assert!(reader.follows(caller, Sort::Data).is_none());
    assert!(reader.bound.take().is_some(), "what was found elsewhere is not followed");
    assert!(looks(Sort::Names).is_empty());
    assert!(reader.bound.get().is_some());
    reader.spread();
}

#[test]
fn the_names_of_one_caller_are_no_load_and_those_of_two_are() {
    let readers = Readers::new(2);
    let reader = readers.reader(Pacer::new(None, 0));
    assert!(reader.stand_by());
    for _ in 0..BUSY_STREAK * 2 {
        let _read = reader.timed(|| Ok(0));
        reader.serves(7, Sort::Names);
    }
    assert_eq!(readers.state.lock().called, 0);
    for caller in 0..BUSY_STREAK {
        let _read = reader.timed(|| Ok(0));
        reader.serves(7 + caller % 2, Sort::Names);
    }
    assert_eq!(readers.state.lock().called, 1);
}

/// A regression: a WRITE of 128 KiB was never found waiting, however many there were, and one that took long to copy was taken
/// for idleness, which sent the busiest reader away.
#[test]
fn what_a_read_copied_is_no_waiting() {
    let readers = Readers::new(2);
    let (first, second) = (readers.reader(Pacer::new(None, 0)), readers.reader(Pacer::new(None, 1)));
    readers.call_one();
    assert!(first.stand_by() && second.stand_by());
    let us = Duration::from_micros;
    for (took, len, at_once, is_idle) in [
        (us(1), 80, true, false),
        (us(4), 80, false, false),
        (us(16), 128 << 10, true, false),
        (us(60), 128 << 10, false, false),
        (us(400), 80, false, true),
        (us(400), 1 << 20, false, false),
        (us(2000), 1 << 20, false, true),
    ] {
        first.idle.set(0);
        first.judge_wait(took, len);
        assert_eq!((first.at_once.get(), first.idle.get() == 1), (at_once, is_idle), "{took:?}, {len}");
    }
}

/// A regression: while one reader needed the descriptor nonblocking, every wait of the others began with a read that gave
/// EAGAIN and ended with one that found a request, and both counted as load.
#[test]
fn a_wait_that_begins_with_eagain_is_one() {
    let readers = Readers::new(2);
    let (first, second) = (readers.reader(Pacer::new(None, 0)), readers.reader(Pacer::new(None, 1)));
    readers.call_one();
    assert!(first.stand_by() && second.stand_by());
    let mut left = false;
    for _ in 0..IDLE_STREAK {
        assert!(!left);
        let idle = second.idle.get();
        assert_eq!(second.timed(|| Err(OsError::AGAIN)), (Err(OsError::AGAIN), false));
        assert_eq!((second.at_once.get(), second.idle.get()), (false, idle), "it is no verdict");
        thread::sleep(LONG * 2);
        left = second.timed(|| Ok(0)).1;
        assert!(!second.at_once.get(), "it was waited for");
    }
    assert!(left && second.leave());
}

#[test]
fn a_reader_that_is_stuck_is_replaced_until_it_comes_back() {
    let readers = Readers::new(2);
    let (first, second) = (readers.reader(Pacer::new(None, 0)), readers.reader(Pacer::new(None, 1)));
    assert!(first.stand_by());
    let look = || {
        let mut state = readers.state.lock();
        (state.look(true), state.called)
    };
    first.waits();
    assert_eq!([look(), look(), look()], [(true, 0), (false, 0), (false, 0)], "it waits for a request");
    first.woke();
    assert_eq!([look(), look()], [(true, 0), (false, 1)], "it serves the same one as a look before");
    assert!(second.stand_by());
    let leaves = |reader: &Reader| (0..IDLE_STREAK * 2).any(|_| reader.judge_wait(LONG, 0)) && reader.leave();
    assert!(!leaves(&second), "the only one that reads");
    first.waits();
    assert!(leaves(&second));
    first.is_full();
    assert!(second.stand_by() && !leaves(&second), "nor does it leave where the other is full");
}

/// A regression: whoever watches was told of a request, or woken for a reader that another became, and took for stuck who had
/// served one request since then, or who had not even begun.
#[test]
fn who_just_began_is_not_stuck() {
    let readers = Readers::new(2);
    let (first, second) = (readers.reader(Pacer::new(None, 0)), readers.reader(Pacer::new(None, 1)));
    assert!(first.stand_by());
    first.woke();
    let look = |has_waited| {
        let mut state = readers.state.lock();
        (state.look(has_waited), state.called)
    };
    assert_eq!([look(false), look(false)], [(true, 0), (false, 0)], "two looks, and no time between them");
    assert_eq!(look(true), (false, 1));
    assert!(second.stand_by());
    assert!(first.leave(), "it served that one after all, and waits for its call");
    second.about_to_block();
    assert!(first.stand_by());
    look(true);
    assert_eq!(look(true), (false, 0));
    let is_away = |reader: &Reader| readers.state.lock().members[reader.index].role == Role::Away;
    assert!(!is_away(&first), "it was called and has not begun");
    second.woke();
    second.is_full();
    first.woke();
    first.is_full();
    assert!(is_away(&first) && is_away(&second), "that it was away before is no matter");
}

#[test]
fn who_watches_sleeps_while_there_are_no_requests_and_wakes_with_one() {
    let readers = Readers::new(2);
    let (first, second) = (readers.reader(Pacer::new(None, 0)), readers.reader(Pacer::new(None, 1)));
    assert!(first.stand_by());
    first.waits();
    let stands_by = std::thread::spawn(move || second.stand_by());
    for _ in 0..2 {
        until(&|| readers.is_asleep.load(Ordering::Relaxed));
        // By now it sleeps for good.
        std::thread::sleep(LOOK * 3);
        first.woke();
        assert!(!readers.is_asleep.load(Ordering::Relaxed), "it was told");
        first.waits();
    }
    first.woke();
    until(&|| stands_by.is_finished());
    assert!(stands_by.join().unwrap(), "it reads in the place of the other");
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
        let seat = DeviceSeat { queue, blocking, reader, registry, aside };
        serve(seat, |exchange| async move {
            if exchange.header().unique == waits {
                exchange.signal().arrived().await;
            }
            exchange.error(Errno::IO)
        });
    })
}

/// A regression: whoever was to leave waited for its last request, which may take for ever, and neither read nor stood by. The
/// others took it for one that they could call.
#[test]
fn who_has_a_request_under_way_does_not_leave() {
    for has_ring in [false, true] {
        if has_ring && Ring::new(8).is_err() {
            println!("SKIPPED: io_uring is not to be had here");
            continue;
        }
        let (told, answers) = mpsc::channel();
        let (device, kernel) = FuseDevice::of_peer(Arc::new(Answers(told))).unwrap();
        let readers = Readers::new(2);
        // It reads, as far as the others know.
        let stuck = readers.reader(Pacer::new(None, 0));
        assert!(stuck.stand_by());
        stuck.about_to_block();
        let reader = readers.reader(Pacer::new(None, 1));
        let (index, gauge) = (reader.index, Arc::clone(&reader.gauge));
        let role = || readers.state.lock().members[index].role;
        let waits = u64::from(IDLE_STREAK);
        let thread = serves(reader, device, has_ring, waits);
        until(&|| role() == Role::Reads);
        let answer = |unique| assert_eq!(answers.recv_timeout(Duration::from_secs(10)), Ok(unique));
        let send = |unique| {
            // It waits for long: this is no load.
            thread::sleep(LONG * 10);
            kernel.send(&request(Opcode::Statfs, unique, &[])).unwrap();
        };
        (1..=waits).for_each(send);
        (1..waits).for_each(answer);
        send(waits + 1);
        answer(waits + 1);
        assert_eq!(role(), Role::Reads);
        kernel.send(&request(Opcode::Interrupt, 0, &waits.to_ne_bytes())).unwrap();
        answer(waits);
        let left = (waits + 2..).take(100).find(|&unique| {
            until(&|| role() == Role::StandsBy || gauge.turn.load(Ordering::Relaxed).is_multiple_of(2));
            if role() == Role::Reads {
                send(unique);
                answer(unique);
            }
            role() == Role::StandsBy
        });
        assert!(left.is_some(), "it stands by when it has nothing under way");
        kernel.end();
        readers.end();
        thread.join().unwrap();
    }
}
