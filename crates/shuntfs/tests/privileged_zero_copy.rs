//! Zero copy against a kernel that has it: Linux 7.3 with FUSE over io_uring. Needs CAP_SYS_ADMIN and /dev/fuse.
//!
//! One test, so that a kernel without zero copy skips one. Each part compares what comes through the mount with what a copy would have given.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::fixture::Fixture;
use common::wishes::{Plan, Wishes, ranges, splice};
use common::{can_mount, options, uring_is_on};
use shuntfs::{
    CacheHint, Delegation, Extent, Extents, Flow, LowerFile, RangeSource, Reason, Session, SessionOptions,
    TransportKind,
};
use shuntfs_sys::caps::{self, Cap};
use shuntfs_sys::mount::{MountRequest, mount_fuse};
use shuntfs_sys::{FuseDevice, open};
use shuntfs_testkit::seeded::Random;
use shuntfs_wire::InitFlags;

const HINTS: [CacheHint; 3] = [CacheHint::Drop, CacheHint::Keep, CacheHint::Direct];
/// Three requests and a part of one.
const LEN: usize = (3 << 20) + 777;

#[test]
fn bytes_move_without_a_copy_as_they_do_with_one() {
    if !can_mount() || !uring_is_on() {
        return;
    }
    let options = options(TransportKind::Uring);
    let fixture = Fixture::new(&[0], &options);
    let offered = fixture.mounted.session().negotiated().init_flags();
    let off = fixture.mounted.session().status().transport.zero_copy_off;
    fixture.mounted.end();
    if !offered.contains(InitFlags::HAS_IO_URING_BUFPOOL) {
        println!("SKIPPED: this kernel offers no zero copy (Linux 7.3 does)");
        assert!(off.is_some_and(|why| why.contains("7.3")));
        return;
    }
    assert_eq!(off, None, "a privileged server on a kernel that offers it has it");
    for (what, part) in [
        ("reads", reads as fn(&SessionOptions)),
        ("ends of files", ends_of_files),
        ("random operations", random_operations),
        ("pieces", pieces),
        ("writes that must be seen", seen_writes),
        ("requests that wait for memory", waits_for_memory),
        ("pinned memory", pinned_memory),
        ("a lower file that hangs", a_lower_file_that_hangs),
        ("the next best", the_next_best),
        ("no privilege", no_privilege),
    ] {
        let start = Instant::now();
        part(&options);
        println!("{what}: {:?}", start.elapsed());
    }
}

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| random.number().to_le_bytes()).take(len).collect()
}

fn moved(fixture: &Fixture, flow: Flow) -> u64 {
    fixture.mounted.session().status().read_flows.get(flow.name()).copied().unwrap_or(0)
}

fn compare(file: &File, bytes: &[u8], offset: usize, len: usize) {
    let mut seen = vec![0xee; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut seen[done..], (offset + done) as u64).expect("reads") {
            0 => break,
            more => done += more,
        }
    }
    let wanted = &bytes[offset.min(bytes.len())..(offset + len).min(bytes.len())];
    assert!(seen[..done] == *wanted, "{len} bytes at {offset}: {done} came, {} are there", wanted.len());
}

fn reads(options: &SessionOptions) {
    let bytes = random_bytes(1, LEN);
    let fixture = Fixture::new(&bytes, options);
    let mut random = Random::new(2);
    for cache in HINTS {
        let file = fixture.open(splice(), cache);
        assert_eq!(fixture.last(), (Flow::ZeroCopy, Reason::Wished));
        for (offset, len) in
            [(0, LEN), (0, 1 << 20), (1, 1 << 20), (4095, 2), (LEN - 1, 1), (LEN - 5000, 9999)]
        {
            compare(&file, &bytes, offset, len);
        }
        for _ in 0..200 {
            compare(&file, &bytes, random.below(LEN + 9000), 1 + random.below(300_000));
        }
        drop(file);
        fixture.settle();
    }
    assert!(moved(&fixture, Flow::ZeroCopy) > (3 * LEN) as u64);
    assert_eq!((moved(&fixture, Flow::Relay), moved(&fixture, Flow::Served)), (0, 0), "nothing was copied");
    // Four readers of one file, as readahead and direct I/O come.
    let file = fixture.open(splice(), CacheHint::Direct);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                (0..200).for_each(|_| compare(file, bytes, random.below(LEN), 1 + random.below(200_000)));
            });
        }
    });
    drop(file);
    fixture.settle();
    let seen = fs::read(fixture.mounted.join("file")).expect("reads");
    assert!(seen == bytes, "through the page cache, read ahead");
    fixture.settle();
    fixture.mounted.end();
    let off = SessionOptions { passthrough: false, ..options.clone() };
    let fixture = Fixture::new(&bytes, &off);
    let file = fixture.open(common::wishes::passthrough(), CacheHint::Direct);
    assert_eq!(fixture.last(), (Flow::ZeroCopy, Reason::TurnedOff), "where passthrough is not to be had");
    compare(&file, &bytes, 5, LEN);
    drop(file);
    fixture.settle();
    fixture.mounted.end();
}

/// The lower file becomes shorter, and longer, behind the kernel's back.
fn ends_of_files(options: &SessionOptions) {
    let bytes = random_bytes(3, 100_000);
    let fixture = Fixture::new(&bytes, options);
    let lower = File::options().write(true).open(fixture.lower.path().join("lower")).expect("opens");
    let file = fixture.open(splice(), CacheHint::Direct);
    for len in [100_000, 70_001, 4096, 4095, 1, 0] {
        lower.set_len(len as u64).expect("shrinks");
        compare(&file, &bytes[..len], 0, 100_000);
        compare(&file, &bytes[..len], 4000, 100);
        compare(&file, &bytes[..len], 99_999, 10);
    }
    lower.write_all_at(b"grown", 200_000).expect("grows");
    let mut grown = vec![0; 200_000];
    grown.extend_from_slice(b"grown");
    compare(&file, &grown, 0, 300_000);
    drop(file);
    // What the kernel takes for the file's size is the server's word; the pages behind the lower file's end are zeroes.
    lower.set_len(5000).expect("shrinks");
    let file = fixture.open(splice(), CacheHint::Drop);
    compare(&file, &grown[..5000], 0, 10_000);
    drop(file);
    fixture.settle();
    fixture.mounted.end();
}

/// Reads, writes and truncations at random, as fsx makes them, against a copy in memory.
fn random_operations(options: &SessionOptions) {
    let served = || Delegation::Served;
    for (round, (reads, writes)) in
        [(splice(), splice()), (splice(), served()), (served(), splice())].into_iter().enumerate()
    {
        for cache in HINTS {
            let mut bytes = random_bytes(4, 50_000);
            let fixture = Fixture::new(&bytes, options);
            let file = fixture.open(Delegation::split(reads.clone(), writes.clone()), cache);
            let mut random = Random::new(5 + round as u64);
            for _ in 0..600 {
                let offset = random.below(400_000);
                match random.below(7) {
                    0..=2 => compare(&file, &bytes, offset, 1 + random.below(200_000)),
                    3..=5 => {
                        let data = random.bytes(120_000);
                        file.write_all_at(&data, offset as u64).expect("writes");
                        if !data.is_empty() {
                            bytes.resize(bytes.len().max(offset + data.len()), 0);
                            bytes[offset..offset + data.len()].copy_from_slice(&data);
                        }
                    }
                    _ => {
                        file.set_len(offset as u64).expect("truncates");
                        bytes.resize(offset, 0);
                    }
                }
            }
            compare(&file, &bytes, 0, bytes.len() + 1);
            drop(file);
            fixture.settle();
            let lower = fs::read(fixture.lower.path().join("lower")).expect("reads");
            assert!(lower == bytes, "{cache:?}, round {round}");
            fixture.mounted.end();
        }
    }
}

/// One request of several pieces: of two lower files, of zeroes, and of what the file system serves.
fn pieces(options: &SessionOptions) {
    let bytes = random_bytes(6, LEN);
    let fixture = Fixture::new(&bytes, options);
    let other = fixture.lower.path().join("other");
    let others = random_bytes(7, LEN);
    fs::write(&other, &others).expect("another");
    let open_lower = |path: &Path| {
        let file = File::options().read(true).write(true).open(path).expect("opens");
        Arc::new(LowerFile::new(file.into()))
    };
    let (lower, other) = (open_lower(&fixture.lower.path().join("lower")), open_lower(&other));
    let mut extents = Vec::new();
    let mut wanted = vec![0; LEN];
    let (mut at, mut random) = (0, Random::new(8));
    while at < LEN {
        let longest = if random.below(4) == 0 { 900_000 } else { 9000 };
        let len = (1 + random.below(longest)).min(LEN - at);
        let source = match random.below(4) {
            0 => RangeSource::Lower(Arc::clone(&lower), at as u64),
            1 => RangeSource::Lower(Arc::clone(&other), (LEN - at - len) as u64),
            2 => RangeSource::Zeroes,
            _ => RangeSource::Served,
        };
        match &source {
            RangeSource::Lower(file, from) if Arc::ptr_eq(file, &other) => {
                let from = usize::try_from(*from).expect("small");
                wanted[at..at + len].copy_from_slice(&others[from..from + len]);
            }
            RangeSource::Zeroes => {}
            _ => wanted[at..at + len].copy_from_slice(&bytes[at..at + len]),
        }
        extents.push(Extent { offset: at as u64, len: len as u64, source });
        at += len;
    }
    println!("{} pieces", extents.len());
    for cache in HINTS {
        let map = Extents::new(extents.clone()).expect("a map");
        let file = fixture.open(ranges(map), cache);
        assert_eq!(fixture.last(), (Flow::Ranges, Reason::Wished));
        compare(&file, &wanted, 0, LEN);
        for _ in 0..100 {
            compare(&file, &wanted, random.below(LEN), 1 + random.below(200_000));
        }
        drop(file);
        fixture.settle();
    }
    assert!(moved(&fixture, Flow::ZeroCopy) > 0, "requests that lie in one piece");
    // Writes: what lies in one piece of a lower file is moved, the rest is fetched and put where it belongs.
    let map = Extents::new(extents.clone()).expect("a map");
    let file = fixture.open(ranges(map), CacheHint::Direct);
    let (mut lower_bytes, mut other_bytes) = (bytes, others);
    for _ in 0..300 {
        let data = random.bytes(40_000);
        let offset = random.below(LEN - data.len());
        file.write_all_at(&data, offset as u64).expect("writes");
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
    fixture.settle();
    assert!(fs::read(fixture.lower.path().join("lower")).expect("reads") == lower_bytes);
    assert!(fs::read(fixture.lower.path().join("other")).expect("reads") == other_bytes);
    fixture.mounted.end();
}

/// Reads without a look, writes with one: the kernel would put both into pages, so an open that may write has no zero copy, and one that may
/// not has.
fn seen_writes(options: &SessionOptions) {
    let fixture = Fixture::new(&[b'.'; 9000], options);
    for cache in HINTS {
        let file = fixture.open(Delegation::split(splice(), Delegation::Served), cache);
        let flows = fixture.last_flows();
        assert_eq!((flows.reads.flow, flows.writes.flow), (Flow::Relay, Flow::Served));
        let data = random_bytes(9, LEN);
        file.write_all_at(&data, 77).expect("writes");
        assert!(fs::read(fixture.lower.path().join("lower")).expect("reads")[77..] == data);
        file.set_len(9000).expect("truncates");
        drop(file);
        let file = File::open(fixture.mounted.join("file")).expect("opens");
        assert_eq!(fixture.last_flows().reads.flow, Flow::ZeroCopy);
        compare(&file, &fs::read(fixture.lower.path().join("lower")).expect("reads"), 0, 10_000);
        drop(file);
        fixture.settle();
    }
    let written = fixture.mounted.session().status().written_flows;
    assert_eq!(written["served"], (3 * LEN) as u64);
    fixture.mounted.end();
}

/// More requests that need memory than there is: they wait for one another, and each gets its own bytes.
fn waits_for_memory(options: &SessionOptions) {
    let bytes = random_bytes(10, LEN);
    // Eight entries of 64 KiB, and memory for two payloads a queue: one in the pool, one beside it.
    let cpus = shuntfs_sys::threads::online_cpus().len() as u64;
    let options = SessionOptions {
        depth: 8,
        payload_len: 65_536,
        payload_cap: (2 * cpus + 2) * 65_536,
        ..options.clone()
    };
    let fixture = Fixture::new(&bytes, &options);
    let transport = fixture.mounted.session().status().transport;
    assert_eq!((transport.depth, transport.pool_buffers), (8, 1), "{transport:?}");
    assert!(transport.payload_max <= options.payload_cap);
    let halves =
        [(RangeSource::Served, 30_000), (RangeSource::Zeroes, 10), (RangeSource::Served, Extent::REST)];
    let mut wanted = bytes.clone();
    wanted[30_000..30_010].fill(0);
    let file = fixture.open(ranges(Extents::concat(halves).expect("a map")), CacheHint::Direct);
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (file, wanted, mounted) = (&file, &wanted, &fixture.mounted);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for round in 0..60 {
                    compare(file, wanted, random.below(LEN), 1 + random.below(65_536));
                    if round % 4 == 0 {
                        // These have a payload of the pool, which is the only one.
                        assert!(fs::metadata(mounted.join("no such name that is long")).is_err());
                    }
                }
            });
        }
    });
    drop(file);
    fixture.settle();
    fixture.mounted.end();
}

/// Pools that are small enough to be pinned: the kernel and the server see the same bytes, also after memory was given back.
fn pinned_memory(options: &SessionOptions) {
    let options = SessionOptions { depth: 8, payload_len: 65_536, ..options.clone() };
    let pools = 8 * 65_536 * shuntfs_sys::threads::online_cpus().len() as u64;
    let bytes = random_bytes(13, LEN);
    for (pin_payloads, zero_copy) in [(true, true), (true, false), (false, true)] {
        let options = SessionOptions { pin_payloads, zero_copy, ..options.clone() };
        let fixture = Fixture::new(&bytes, &options);
        let off = fixture.mounted.session().status().transport.pinned_off;
        if shuntfs_sys::limits::memlock().is_none_or(|limit| limit >= pools) {
            assert_eq!(off.is_none(), pin_payloads, "{off:?}");
        }
        let file = fixture.open(Delegation::Served, CacheHint::Direct);
        let mut bytes = bytes.clone();
        for round in 0..3_u8 {
            compare(&file, &bytes, 0, bytes.len());
            bytes[5000..300_000].fill(round);
            file.write_all_at(&bytes[5000..300_000], 5000).expect("writes");
            compare(&file, &bytes, 4000, 400_000);
            // Idle memory is given back after a second.
            std::thread::sleep(Duration::from_millis(1500));
        }
        drop(file);
        fixture.settle();
        assert!(fs::read(fixture.lower.path().join("lower")).expect("reads") == bytes);
        fixture.mounted.end();
    }
}

/// A pipe stands for a lower file that hangs: the caller waits, the mount goes on, and the end of the connection frees everybody.
fn a_lower_file_that_hangs(options: &SessionOptions) {
    let fixture = Fixture::new(&[b'h'; 4096], options);
    let (out, mut into) = std::io::pipe().expect("a pipe");
    let lower = Arc::new(LowerFile::new(out.into()));
    let hangs = || {
        ranges(Extents::concat([(RangeSource::Lower(Arc::clone(&lower), 1), Extent::REST)]).expect("a map"))
    };
    let file = fixture.open(hangs(), CacheHint::Direct);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut seen = [0; 4];
            file.read_at(&mut seen, 0).map(|count| seen[..count].to_vec())
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!reading.is_finished());
        assert!(fs::metadata(fixture.mounted.join("file")).is_ok(), "others are served");
        into.write_all(b"late").expect("the pipe takes it");
        let seen = reading.join().expect("no panic").expect("reads");
        assert_eq!(seen, b"late");
        let reading = scope.spawn(|| file.read_at(&mut [0; 4], 0));
        std::thread::sleep(Duration::from_millis(100));
        fixture.mounted.session().abort().expect("aborts");
        assert!(reading.join().expect("no panic").is_err(), "the connection is gone");
        fixture.mounted.session().wait();
    });
}

/// A pool without zero copy, and payloads of the entries' own, on a kernel that has it all.
fn the_next_best(options: &SessionOptions) {
    let bytes = random_bytes(11, LEN);
    let off = SessionOptions { zero_copy: false, ..options.clone() };
    // Room for one payload a queue: too little for a pool and what must be beside it.
    let cpus = shuntfs_sys::threads::online_cpus().len() as u64;
    let tight = SessionOptions { payload_cap: (cpus + 2) << 20, ..options.clone() };
    for (options, pool_buffers, why) in [(&off, 4, "it is turned off"), (&tight, 0, "no pool")] {
        let fixture = Fixture::new(&bytes, options);
        let transport = fixture.mounted.session().status().transport;
        assert_eq!(transport.pool_buffers, pool_buffers, "{transport:?}");
        assert!(transport.zero_copy_off.as_ref().is_some_and(|off| off.contains(why)), "{transport:?}");
        copies(&fixture, &bytes);
        fixture.mounted.end();
    }
}

/// What a mount without zero copy does, whatever kept it from it.
fn copies(fixture: &Fixture, bytes: &[u8]) {
    for (wish, flow) in [(splice(), Flow::Relay), (Delegation::Served, Flow::Served)] {
        let file = fixture.open(wish, CacheHint::Direct);
        assert_eq!(fixture.last(), (flow, Reason::Wished));
        compare(&file, bytes, 0, bytes.len());
        file.write_all_at(&bytes[5000..90_000], 5000).expect("writes");
        compare(&file, bytes, 4000, 100_000);
        assert!(moved(fixture, flow) > bytes.len() as u64);
        drop(file);
        fixture.settle();
    }
    assert_eq!(moved(fixture, Flow::ZeroCopy), 0);
}

/// A server that has lost `CAP_SYS_ADMIN` before its queues are made: a pool and no zero copy, with the reason.
fn no_privilege(options: &SessionOptions) {
    let bytes = random_bytes(12, LEN);
    let lower = tempfile::tempdir().expect("a folder");
    fs::write(lower.path().join("lower"), &bytes).expect("a lower file");
    let dir = tempfile::tempdir().expect("a folder to mount on");
    let device = FuseDevice::open().expect("a device");
    let target = open::open_target(dir.path()).expect("opens");
    let request = MountRequest::new("test".as_ref(), target.as_fd(), &device);
    mount_fuse(&request).expect("mounts");
    let plan = Arc::new(Plan::default());
    let wishes = Wishes { lower: lower.path().join("lower"), plan: Arc::clone(&plan) };
    let options = options.clone();
    let session = std::thread::spawn(move || {
        // Of this thread, and of those that it starts.
        caps::keep_only(&[Cap::DacOverride, Cap::Fowner]).expect("fewer capabilities");
        Session::serve(Arc::new(wishes), device, &options).expect("serves")
    });
    let session = session.join().expect("no panic");
    let transport = session.status().transport;
    let why = transport.zero_copy_off.clone().unwrap_or_default();
    assert!(transport.kind == "uring" && why.contains("CAP_SYS_ADMIN"), "{transport:?}");
    plan.push(splice(), CacheHint::Direct);
    let file = File::open(dir.path().join("file")).expect("opens");
    compare(&file, &bytes, 0, LEN);
    drop(file);
    let flows = *plan.settled.lock().expect("whole").last().expect("an open");
    assert_eq!(flows.reads.flow, Flow::Relay);
    shuntfs_sys::mount::unmount(dir.path(), true).expect("unmounts");
    session.wait();
}
