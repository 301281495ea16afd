//! What the kernel refuses costs what it must, has its reason, and nobody hangs.

use std::ops::Range;
use std::time::{Duration, Instant};

use shuntfs::{CacheHint, Delegation, Errno, Flow};
use shuntfs_fake::{Lie, RingStep, Rings};
use shuntfs_sys::OsError;

use crate::desk::{Desk, compare, has_rings, on_rings, random_bytes};
use crate::wishes::splice;

const ALWAYS: Range<usize> = 0..usize::MAX;
/// From the second queue or entry on: privilege is lost, or memory has run out.
const LATER: Range<usize> = 1..usize::MAX;
const LEN: usize = 200_000;

/// Mounts, uses and ends; the transport, why there is no zero copy, and how long the pools are.
fn outcome(rings: Rings) -> (String, Option<String>, usize) {
    let what = format!("{:?}", rings.refusals);
    let start = Instant::now();
    let mut bytes = random_bytes(1, LEN);
    let desk = Desk::new(&bytes, &on_rings(rings));
    let transport = desk.fake.session().status().transport;
    for wish in [splice(), Delegation::Served] {
        let moves = transport.zero_copy_off.is_none() && matches!(wish, Delegation::Splice(_));
        let file = desk.open(wish, CacheHint::Direct);
        assert_eq!(desk.flow() == Flow::ZeroCopy, moves, "{what}");
        compare(&file, &bytes, 0, LEN);
        bytes[5000..90_000].rotate_left(7);
        assert_eq!(file.write_at(5000, &bytes[5000..90_000]), Ok(85_000), "{what}");
        compare(&file, &bytes, 4000, 100_000);
    }
    assert!(desk.lower_bytes() == bytes, "{what}");
    let by_ring = desk.fake.ring_totals().requests > 0;
    assert_eq!(by_ring, transport.kind == "uring", "{what}");
    desk.fake.finish().unwrap_or_else(|broken| panic!("{what}: {broken}"));
    assert!(start.elapsed() < Duration::from_secs(15), "{what}: {:?}", start.elapsed());
    (transport.kind, transport.zero_copy_off, transport.pool_buffers)
}

#[test]
fn each_step_takes_the_next_best() {
    use RingStep::{Entry, Pool, Queue, QueueForZeroCopy, Table};
    if !has_rings() {
        return;
    }
    let (denied, memory, wrong) = (OsError::PERM, OsError::NOMEM, OsError::INVAL);
    let mut cases = Vec::new();
    for which in [ALWAYS, LATER] {
        for error in [denied, memory, wrong] {
            let one = |step| Rings::with_pools().refusing(step, which.clone(), error);
            cases.push((one(Table), "uring", "no pool of payload buffers"));
            let why = if error == denied { "CAP_SYS_ADMIN" } else { "refused it" };
            cases.push((one(QueueForZeroCopy), "uring", why));
            // A queue that was made for zero copy takes no entry without a pool.
            cases.push((one(Pool), "device", "do not come by io_uring"));
            cases.push((one(Entry), "device", "do not come by io_uring"));
            for step in [Pool, Queue] {
                let two = one(step).refusing(QueueForZeroCopy, ALWAYS, denied);
                cases.push((two, "uring", "CAP_SYS_ADMIN"));
            }
        }
    }
    for (rings, kind, why) in cases {
        let (got, off, _) = outcome(rings.clone());
        let off = off.unwrap_or_default();
        assert!(got == kind && off.contains(why), "{:?}: {got}, {off:?}", rings.refusals);
    }
}

/// A queue and an entry may be asked for before the kernel is done with INIT.
#[test]
fn what_comes_too_early_is_asked_for_again() {
    if !has_rings() {
        return;
    }
    for step in [RingStep::QueueForZeroCopy, RingStep::Pool, RingStep::Entry] {
        let rings = Rings::with_pools().refusing(step, 0..3, OsError::AGAIN);
        let (kind, off, buffers) = outcome(rings);
        assert_eq!((&*kind, off), ("uring", None), "{step:?}");
        assert!(buffers > 0);
    }
}

#[test]
fn without_a_refusal_there_is_all() {
    if !has_rings() {
        return;
    }
    assert_eq!(outcome(Rings::with_pools()).1, None);
    let (kind, off, buffers) = outcome(Rings::plain());
    assert_eq!((&*kind, buffers), ("uring", 0));
    assert!(off.is_some_and(|why| why.contains("7.3")));
}

/// More entries than a table has places: pools, and no zero copy.
#[test]
fn a_table_that_would_be_too_long() {
    if !has_rings() {
        return;
    }
    let bytes = random_bytes(2, LEN);
    let mut settings = on_rings(Rings::with_pools());
    settings.session.depth = 1024;
    settings.session.queues = Some(1);
    settings.session.payload_len = 8192;
    let table = 1024 * shuntfs_sys::threads::possible_cpus() as usize;
    let desk = Desk::new(&bytes, &settings);
    let transport = desk.fake.session().status().transport;
    assert_eq!(transport.zero_copy_off.is_some(), table > 1 << 14, "{transport:?}");
    let file = desk.open(splice(), CacheHint::Direct);
    compare(&file, &bytes, 0, LEN);
    drop(file);
    desk.fake.end();
}

/// A request whose payload is longer than its buffer, or lies where none is: that request gets EIO, and the mount goes on.
#[test]
fn a_payload_that_cannot_be_is_an_error() {
    if !has_rings() {
        return;
    }
    let bytes = random_bytes(3, LEN);
    let mut settings = on_rings(Rings::with_pools());
    settings.session.payload_len = 65_536;
    for zero_copy in [true, false] {
        settings.session.zero_copy = zero_copy;
        let desk = Desk::new(&bytes, &settings);
        let file = desk.open(Delegation::Served, CacheHint::Direct);
        for lie in [
            Lie::PayloadLen(65_537),
            Lie::PayloadLen(u32::MAX),
            Lie::Offset(1),
            Lie::Offset(65_535),
            Lie::Offset(u32::MAX / 65_536 * 65_536),
            Lie::Offset(u32::MAX),
        ] {
            desk.fake.lie(lie);
            assert_eq!(file.write_at(0, b"lost"), Err(Errno::IO), "{lie:?}");
            compare(&file, &bytes, 0, 10);
        }
        assert!(desk.lower_bytes() == bytes);
        drop(file);
        desk.fake.end();
    }
}
