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

/// Memory that is not pinned costs the pinning alone.
#[test]
fn memory_that_cannot_be_pinned_is_used_as_it_is() {
    if !has_rings() {
        return;
    }
    let bytes = random_bytes(4, LEN);
    let (memory, denied, wrong) = (OsError::NOMEM, OsError::PERM, OsError::INVAL);
    let mut cases = vec![(Rings::with_pools(), None)];
    for which in [ALWAYS, LATER] {
        for error in [memory, denied, wrong] {
            let one = |step| Rings::with_pools().refusing(step, which.clone(), error);
            let limit = if error == memory { "limit of locked memory" } else { "refused it" };
            cases.push((one(RingStep::Pin), Some(limit)));
            cases.push((one(RingStep::PinnedPool), Some("refused it")));
        }
    }
    // The table is made without a place for pinned memory, and zero copy has it.
    cases.push((Rings::with_pools().refusing(RingStep::Table, 0..1, memory), Some("refused it")));
    for (rings, why) in cases {
        for zero_copy in [true, false] {
            let what = format!("{:?}, zero copy {zero_copy}", rings.refusals);
            let mut settings = on_rings(rings.clone());
            // Two threads where there are two CPUs; all of it is below the limit of 8 MiB that is usual.
            (settings.session.payload_len, settings.session.depth) = (65_536, 8);
            (settings.session.zero_copy, settings.session.pin_payloads) = (zero_copy, true);
            let pools = 8 * 65_536 * shuntfs_sys::threads::online_cpus().len() as u64;
            if shuntfs_sys::limits::memlock().is_some_and(|limit| limit < pools) {
                println!("SKIPPED: less than {pools} bytes may be locked here");
                return;
            }
            let desk = Desk::new(&bytes, &settings);
            let transport = desk.fake.session().status().transport;
            let off = transport.pinned_off.unwrap_or_default();
            assert_eq!(transport.kind, "uring", "{what}");
            assert_eq!(transport.zero_copy_off.is_none(), zero_copy, "{what}");
            // With one thread, what is refused from the second ring on is refused nobody.
            let is_later = rings.refusals.iter().any(|refusal| refusal.which == LATER);
            match why {
                Some(why) if !is_later || shuntfs_sys::threads::online_cpus().len() > 1 => {
                    assert!(off.contains(why), "{what}: {off:?}");
                }
                _ => assert_eq!(off, "", "{what}"),
            }
            for wish in [splice(), Delegation::Served] {
                let file = desk.open(wish, CacheHint::Direct);
                compare(&file, &bytes, 0, LEN);
            }
            let totals = desk.fake.ring_totals();
            assert_eq!(totals.in_pinned > 0, off.is_empty() || is_later, "{what}: {totals:?}");
            desk.fake.finish().unwrap_or_else(|broken| panic!("{what}: {broken}"));
        }
    }
}

/// Without the setting, and with a limit that is too low, with the reason.
#[test]
fn memory_is_not_pinned_where_it_must_not_be() {
    if !has_rings() {
        return;
    }
    let bytes = random_bytes(5, 10);
    for (is_asked, rings, why) in [
        // Below every usual limit: what is not asked for costs nothing there either.
        (false, Rings::with_pools(), "not asked for"),
        (true, Rings::with_pools(), "limit of locked memory"),
        (true, Rings::plain(), "no pool"),
    ] {
        let mut settings = on_rings(rings);
        if is_asked {
            settings.session.pin_payloads = true;
        } else {
            (settings.session.payload_len, settings.session.depth) = (65_536, 8);
        }
        let cap = shuntfs_sys::limits::memlock();
        if why.contains("limit") && cap.is_none_or(|limit| limit > 32 << 20) {
            println!("SKIPPED: any memory may be locked here");
            continue;
        }
        let desk = Desk::new(&bytes, &settings);
        let off = desk.fake.session().status().transport.pinned_off.unwrap_or_default();
        assert!(off.contains(why), "{why}: {off}");
        assert_eq!(desk.fake.ring_totals().in_pinned, 0);
        desk.fake.end();
    }
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
