//! The same bytes by every kind of transport.

use std::fs;

use shuntfs::{CacheHint, Delegation, Extent, Extents, Flow, RangeSource};
use shuntfs_fake::{Fake, Rings};
use shuntfs_testkit::seeded::Random;
use std::sync::Arc;

use crate::common::{Bug, Mem};
use crate::desk::{Desk, LEN, compare, has_rings, lower_file, on_rings, random_bytes, transports};
use crate::wishes::{ranges, splice};

const HINTS: [CacheHint; 3] = [CacheHint::Drop, CacheHint::Keep, CacheHint::Direct];

#[test]
fn reads() {
    if !has_rings() {
        return;
    }
    let bytes = random_bytes(1, LEN);
    for (what, settings, moves) in transports() {
        let desk = Desk::new(&bytes, &settings);
        let mut random = Random::new(2);
        for cache in HINTS {
            let file = desk.open(splice(), cache);
            assert_eq!(desk.flow() == Flow::ZeroCopy, moves, "{what}");
            for (offset, len) in [(0, LEN), (1, 1 << 20), (4095, 2), (LEN - 1, 1), (LEN - 5000, 9999)] {
                compare(&file, &bytes, offset, len);
            }
            for _ in 0..30 {
                compare(&file, &bytes, random.below(LEN + 9000), 1 + random.below(300_000));
            }
        }
        let totals = desk.fake.ring_totals();
        println!("{what}: {totals:?}");
        assert_eq!(totals.requests > 0, settings.rings.is_some(), "{what}");
        assert_eq!(totals.in_pages > 0, moves, "{what}");
        desk.fake.end();
    }
}

/// The lower file becomes shorter, and longer, behind the kernel's back.
#[test]
fn ends_of_files() {
    if !has_rings() {
        return;
    }
    let bytes = random_bytes(3, 100_000);
    for (_, settings, _) in transports() {
        let desk = Desk::new(&bytes, &settings);
        let lower = fs::File::options().write(true).open(desk.lower_path()).expect("opens");
        let file = desk.open(splice(), CacheHint::Direct);
        for len in [100_000, 70_001, 4096, 4095, 1, 0] {
            lower.set_len(len as u64).expect("shrinks");
            compare(&file, &bytes[..len], 0, 100_000);
            compare(&file, &bytes[..len], 4000, 100);
            compare(&file, &bytes[..len], 99_999, 10);
        }
        drop(file);
        desk.fake.end();
    }
}

/// Reads, writes and truncations at random against a copy in memory.
#[test]
fn random_operations() {
    if !has_rings() {
        return;
    }
    let served = || Delegation::Served;
    for (what, settings, moves) in transports() {
        for (round, (reads, writes)) in
            [(splice(), splice()), (splice(), served()), (served(), splice())].into_iter().enumerate()
        {
            let seed = 5 + round as u64;
            let mut bytes = random_bytes(4, 50_000);
            let desk = Desk::new(&bytes, &settings);
            let file = desk.open(Delegation::split(reads, writes), HINTS[round]);
            let mut random = Random::new(seed);
            for _ in 0..80 {
                let offset = random.below(400_000);
                match random.below(7) {
                    0..=2 => compare(&file, &bytes, offset, 1 + random.below(200_000)),
                    3..=5 => {
                        let data = random.bytes(120_000);
                        assert_eq!(
                            file.write_at(offset as u64, &data),
                            Ok(data.len()),
                            "{what}, seed {seed}"
                        );
                        if !data.is_empty() {
                            bytes.resize(bytes.len().max(offset + data.len()), 0);
                            bytes[offset..offset + data.len()].copy_from_slice(&data);
                        }
                    }
                    _ => {
                        desk.fake.truncate("/file", offset as u64).expect("truncates");
                        bytes.resize(offset, 0);
                    }
                }
            }
            compare(&file, &bytes, 0, bytes.len() + 1);
            assert!(desk.lower_bytes() == bytes, "{what}, seed {seed}");
            assert_eq!(desk.fake.ring_totals().in_pages > 0, moves && round == 0, "{what}, round {round}");
            drop(file);
            desk.fake.finish().unwrap_or_else(|broken| panic!("{what}, seed {seed}: {broken}"));
        }
    }
}

/// One request of several pieces: of two lower files, of zeroes, and of what the file system serves.
#[test]
fn pieces() {
    if !has_rings() {
        return;
    }
    let (bytes, others) = (random_bytes(6, LEN), random_bytes(7, LEN));
    for (what, settings, moves) in transports() {
        let desk = Desk::new(&bytes, &settings);
        let other = desk.lower.path().join("other");
        fs::write(&other, &others).expect("another");
        let (lower, other) = (lower_file(&desk.lower_path()), lower_file(&other));
        let (mut extents, mut wanted) = (Vec::new(), vec![0; LEN]);
        let (mut at, mut random) = (0, Random::new(8));
        while at < LEN {
            let longest = if random.below(4) == 0 { 700_000 } else { 9000 };
            let len = (1 + random.below(longest)).min(LEN - at);
            let (source, from) = match random.below(4) {
                0 => (RangeSource::Lower(Arc::clone(&lower), at as u64), Some(&bytes[at..at + len])),
                1 => {
                    let from = LEN - at - len;
                    (RangeSource::Lower(Arc::clone(&other), from as u64), Some(&others[from..from + len]))
                }
                2 => (RangeSource::Zeroes, None),
                _ => (RangeSource::Served, Some(&bytes[at..at + len])),
            };
            if let Some(from) = from {
                wanted[at..at + len].copy_from_slice(from);
            }
            extents.push(Extent { offset: at as u64, len: len as u64, source });
            at += len;
        }
        for cache in HINTS {
            let file = desk.open(ranges(Extents::new(extents.clone()).expect("a map")), cache);
            assert_eq!(desk.flow(), Flow::Ranges);
            compare(&file, &wanted, 0, LEN);
            for _ in 0..20 {
                compare(&file, &wanted, random.below(LEN), 1 + random.below(200_000));
            }
        }
        // Writes: what lies in one piece of a lower file is moved, the rest is fetched and put where it belongs.
        let file = desk.open(ranges(Extents::new(extents.clone()).expect("a map")), CacheHint::Direct);
        let (mut lower_bytes, mut other_bytes) = (bytes.clone(), others.clone());
        for _ in 0..60 {
            let data = random.bytes(40_000);
            let offset = random.below(LEN - data.len());
            assert_eq!(file.write_at(offset as u64, &data), Ok(data.len()), "{what}");
            for (index, byte) in data.iter().enumerate() {
                let at = offset + index;
                let extent = &extents[extents.partition_point(|extent| extent.offset <= at as u64) - 1];
                match &extent.source {
                    RangeSource::Lower(to, from) if Arc::ptr_eq(to, &other) => {
                        let from = usize::try_from(*from + at as u64 - extent.offset).expect("small");
                        other_bytes[from] = *byte;
                    }
                    _ => lower_bytes[at] = *byte,
                }
            }
        }
        drop(file);
        assert!(desk.lower_bytes() == lower_bytes, "{what}");
        assert!(fs::read(desk.lower.path().join("other")).expect("reads") == other_bytes, "{what}");
        assert_eq!(desk.fake.ring_totals().in_pages > 0, moves, "{what}");
        desk.fake.finish().unwrap_or_else(|broken| panic!("{what}: {broken}"));
    }
}

/// Callers at once, more than there are buffers: they wait for one another, and each gets its own bytes.
#[test]
fn more_callers_than_buffers() {
    if !has_rings() {
        return;
    }
    let bytes = random_bytes(9, LEN);
    for (what, settings, _) in transports() {
        let desk = Desk::new(&bytes, &settings);
        let halves =
            [(RangeSource::Served, 30_000), (RangeSource::Zeroes, 10), (RangeSource::Served, Extent::REST)];
        let mut wanted = bytes.clone();
        wanted[30_000..30_010].fill(0);
        let file = desk.open(ranges(Extents::concat(halves).expect("a map")), CacheHint::Direct);
        std::thread::scope(|scope| {
            for seed in 0..12 {
                let (file, wanted, fake) = (&file, &wanted, &desk.fake);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..15 {
                        compare(file, wanted, random.below(LEN), 1 + random.below(65_536));
                        assert!(fake.stat("/no such name that is long").is_err());
                    }
                });
            }
        });
        drop(file);
        println!("{what}: {:?}", desk.fake.ring_totals());
        desk.fake.end();
    }
}

#[test]
fn a_file_system_in_memory_is_wandered_through() {
    if !has_rings() {
        return;
    }
    for (rings, seed) in [(Rings::plain(), 0), (Rings::with_pools(), 1), (Rings::with_pools(), 2)] {
        let fake = Fake::mount_with(Arc::new(Mem::new(Bug::None)), &on_rings(rings)).unwrap();
        let succeeded = fake.wander(seed, 300).unwrap();
        assert!(succeeded > 40, "seed {seed}: only {succeeded} calls succeeded");
        fake.finish().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn what_no_kernel_sends_is_answered() {
    if !has_rings() {
        return;
    }
    for (rings, seed) in [(Rings::plain(), 0), (Rings::with_pools(), 1), (Rings::with_pools(), 2)] {
        let fake = Fake::mount_with(Arc::new(Mem::new(Bug::None)), &on_rings(rings)).unwrap();
        fake.mkdir("/a", 0o755).unwrap();
        drop(fake.create("/a/file").unwrap());
        fake.babble(seed, 500).unwrap();
        assert!(fake.stat("/").is_ok(), "it goes on");
        fake.finish().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}
