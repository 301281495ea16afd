//! Machines that may have more CPUs than are online: the kernel wants a queue for each, and memory goes to those that have callers.

use shuntfs::{CacheHint, Delegation, Flow};
use shuntfs_fake::{Rings, Settings};

use crate::desk::{Desk, LEN, compare, has_rings, on_rings, random_bytes};
use crate::wishes::splice;

const CAP: u64 = 256 << 20;

/// What came of a mount that was read by each of its flows.
struct Seen {
    threads: usize,
    depth: usize,
    buffers: usize,
    in_pages: u64,
    in_pool: u64,
    in_pinned: u64,
}

fn seen(settings: &Settings) -> Seen {
    let what = format!("{:?}", settings.rings.as_ref().map(|rings| rings.cpus));
    let bytes = random_bytes(20, LEN);
    let desk = Desk::new(&bytes, settings);
    let transport = desk.fake.session().status().transport;
    assert_eq!(transport.kind, "uring", "{what}");
    assert!(transport.payload_max <= settings.session.payload_cap, "{what}: {transport:?}");
    for wish in [splice(), Delegation::Served] {
        let moves = transport.zero_copy_off.is_none() && matches!(wish, Delegation::Splice(_));
        let file = desk.open(wish, CacheHint::Direct);
        assert_eq!(desk.flow() == Flow::ZeroCopy, moves, "{what}: {transport:?}");
        compare(&file, &bytes, 0, LEN);
        assert_eq!(file.write_at(5000, &bytes[5000..90_000]), Ok(85_000), "{what}");
    }
    assert!(desk.lower_bytes() == bytes, "{what}");
    let totals = desk.fake.ring_totals();
    desk.fake.finish().unwrap_or_else(|broken| panic!("{what}: {broken}"));
    Seen {
        threads: transport.queues,
        depth: transport.depth,
        buffers: transport.pool_buffers,
        in_pages: totals.in_pages,
        in_pool: totals.in_pool,
        in_pinned: totals.in_pinned,
    }
}

/// A regression: all possible CPUs shared the cap. From 128 of them on there were no pools, and from 255 on no rings.
#[test]
fn cpus_that_are_not_online_take_no_memory_from_those_that_are() {
    if !has_rings() {
        return;
    }
    for (possible, online) in [(128, 4), (256, 8), (1024, 2)] {
        for rings in [Rings::with_pools(), Rings::plain()] {
            let has_pools = rings.pools;
            let mut settings = on_rings(rings.of_cpus(possible, online));
            (settings.session.payload_cap, settings.session.depth) = (CAP, 32);
            settings.session.payload_len = 1 << 20;
            let seen = seen(&settings);
            let what = format!("{online} of {possible}, pools {has_pools}");
            // One more reads the device.
            assert_eq!(seen.threads, online + 1, "{what}");
            let share = (256 - 2) / online;
            if has_pools {
                let buffers = 32.min(share - (share / 4).min(8));
                assert_eq!((seen.depth, seen.buffers), (32, buffers), "{what}");
                assert!(seen.in_pages > 0 && seen.in_pool > 0, "{what}");
            } else {
                assert_eq!((seen.depth, seen.buffers, seen.in_pages), (32.min(share), 0, 0), "{what}");
            }
        }
    }
}

/// Where all of many are online, the cap has to be larger, as it is by default there; one thread then serves the queues of several.
#[test]
fn a_thread_serves_the_queues_of_many_cpus() {
    if !has_rings() {
        return;
    }
    let mut settings = on_rings(Rings::with_pools().of_cpus(256, 256));
    (settings.session.payload_cap, settings.session.queues) = (1 << 30, Some(4));
    (settings.session.payload_len, settings.session.depth) = (1 << 20, 32);
    let seen = seen(&settings);
    assert_eq!((seen.threads, seen.depth, seen.buffers), (5, 32, 2));
    assert!(seen.in_pages > 0 && seen.in_pool > 0);
}

/// Memory is pinned for CPUs that are online alone.
#[test]
fn the_pools_of_cpus_that_are_not_online_are_not_pinned() {
    if !has_rings() {
        return;
    }
    let mut settings = on_rings(Rings::with_pools().of_cpus(200, 2));
    (settings.session.payload_len, settings.session.depth) = (65_536, 8);
    settings.session.pin_payloads = true;
    // Those of all of them would take 14 MiB.
    let (needed, all) = (2 * 8 * 65_536, 216 * 65_536);
    if shuntfs_sys::limits::memlock().is_none_or(|limit| limit < needed || limit >= all) {
        println!("SKIPPED: needs a limit of locked memory between {needed} and {all} bytes (ulimit -l)");
        return;
    }
    assert!(seen(&settings).in_pinned > 0);
}
