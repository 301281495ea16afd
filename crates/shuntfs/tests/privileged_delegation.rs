//! Delegation by direction and by range, against the real kernel. Needs CAP_SYS_ADMIN and /dev/fuse.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use common::fixture::Fixture;
use common::on_each_transport;
use common::wishes::{file_node, passthrough, ranges, splice};
use shuntfs::{
    CacheHint, Delegation, Extent, Extents, Flow, Flows, LowerFile, Opcode, RangeSource, Reason, Settled,
};

const HINTS: [CacheHint; 3] = [CacheHint::Drop, CacheHint::Keep, CacheHint::Direct];

fn open_lower(path: &Path) -> Arc<LowerFile> {
    let file = File::options().read(true).write(true).open(path).expect("opens");
    Arc::new(LowerFile::new(file.into()))
}

#[test]
fn reads_and_writes_flow_apart() {
    on_each_transport(|options| {
        let fixture = Fixture::new(&[b'.'; 9000], options);
        let copied = fixture.copied();
        let wished = |flow| Settled { flow, reason: Reason::Wished };
        let one_way = Settled { flow: copied, reason: Reason::OneDirection };
        for (reads, writes, flows) in [
            (Delegation::Served, splice(), Flows { reads: wished(Flow::Served), writes: wished(copied) }),
            (splice(), Delegation::Served, Flows { reads: wished(copied), writes: wished(Flow::Served) }),
            (Delegation::Served, passthrough(), Flows { reads: wished(Flow::Served), writes: one_way }),
            (passthrough(), Delegation::Served, Flows { reads: one_way, writes: wished(Flow::Served) }),
        ] {
            for cache in HINTS {
                let what = format!("{reads:?} {writes:?} {cache:?}");
                let before = fixture.mounted.session().status();
                let file = fixture.open(Delegation::split(reads.clone(), writes.clone()), cache);
                assert_eq!(fixture.last_flows(), flows, "{what}");
                assert_eq!(fixture.mounted.session().flow_of(file_node()), Some(flows), "{what}");
                file.write_all_at(b"both ways", 4090).expect("writes");
                let mut seen = [0; 9];
                file.read_exact_at(&mut seen, 4090).expect("reads");
                assert_eq!(&seen, b"both ways", "{what}");
                let status = fixture.mounted.session().status();
                let writes = |status: &shuntfs::Status| {
                    status.write_flows.get(flows.writes.flow.name()).copied().unwrap_or(0)
                };
                assert_eq!(writes(&status), writes(&before) + 1, "{what}");
                assert!(status.requests(Opcode::Write) > before.requests(Opcode::Write), "{what}");
                drop(file);
                fixture.settle();
            }
        }
        let served = Delegation::split(Delegation::Served, Delegation::Served);
        drop(fixture.open(served, CacheHint::Drop));
        assert_eq!(fixture.last(), (Flow::Served, Reason::Wished), "no split at all");
        fixture.settle();
        fixture.mounted.end();
    });
}

/// A split on a node in passthrough: READ and WRITE reach us anyway.
#[test]
fn a_split_beside_passthrough_works() {
    on_each_transport(|options| {
        let fixture = Fixture::new(&[b'.'; 9000], options);
        let first = fixture.open(passthrough(), CacheHint::Drop);
        let second = fixture.open(Delegation::split(Delegation::Served, splice()), CacheHint::Drop);
        let beside = |flow| Settled { flow, reason: Reason::PassthroughOpens };
        let flows = Flows { reads: beside(Flow::Served), writes: beside(fixture.copied()) };
        assert_eq!(fixture.last_flows(), flows);
        second.write_all_at(b"second", 0).expect("writes");
        let mut seen = [0; 6];
        first.read_exact_at(&mut seen, 0).expect("reads");
        assert_eq!(&seen, b"second");
        first.write_all_at(b"first!", 0).expect("writes");
        second.read_exact_at(&mut seen, 0).expect("reads");
        assert_eq!(&seen, b"first!");
        drop((first, second));
        fixture.settle();
        fixture.mounted.end();
    });
}

#[test]
fn a_map_of_one_whole_file_is_lifted() {
    on_each_transport(|options| {
        let fixture = Fixture::new(&[b'l'; 9000], options);
        let path = fixture.lower.path().join("lower");
        let whole = |file: &Arc<LowerFile>| {
            let extent = (RangeSource::Lower(Arc::clone(file), 0), Extent::REST);
            ranges(Extents::concat([extent]).expect("a map"))
        };
        let first = fixture.open(whole(&open_lower(&path)), CacheHint::Keep);
        assert_eq!(fixture.last(), (Flow::Passthrough, Reason::Wished));
        let second = fixture.open(whole(&open_lower(&path)), CacheHint::Drop);
        assert_eq!(fixture.last(), (Flow::Passthrough, Reason::Wished), "the same file, opened anew");
        first.write_all_at(b"lifted", 8998).expect("writes beyond the end");
        let mut seen = [0; 6];
        second.read_exact_at(&mut seen, 8998).expect("reads");
        assert_eq!(&seen, b"lifted");
        assert_eq!(fs::metadata(&path).expect("is there").len(), 9004);
        // Another lower file for the same node: its bytes must not be the first one's.
        let other = fixture.lower.path().join("other");
        fs::write(&other, [b'o'; 9000]).expect("another");
        let third = fixture.open(whole(&open_lower(&other)), CacheHint::Drop);
        assert_eq!(fixture.last(), (Flow::Ranges, Reason::PassthroughOpens));
        third.read_exact_at(&mut seen, 0).expect("reads");
        assert_eq!(&seen, b"oooooo");
        // A descriptor that may not write gives no passthrough to an open that may.
        drop((first, second, third));
        fixture.settle();
        let read_only = Arc::new(LowerFile::new(File::open(&path).expect("opens").into()));
        let fourth = fixture.open(whole(&read_only), CacheHint::Direct);
        assert_eq!(fixture.last(), (Flow::Ranges, Reason::Wished));
        assert!(fourth.write_all_at(b"no", 0).is_err());
        let status = fixture.mounted.session().status();
        assert_eq!((status.flows["passthrough"], status.flows["ranges"]), (2, 2));
        assert_eq!(status.requests(Opcode::Read), 1, "of the third");
        drop(fourth);
        fixture.settle();
        fixture.mounted.end();
    });
}

#[test]
fn a_lifted_map_without_passthrough_is_moved_whole() {
    on_each_transport(|options| {
        let options = shuntfs::SessionOptions { passthrough: false, ..options.clone() };
        let fixture = Fixture::new(&[b'm'; 9000], &options);
        let lower = open_lower(&fixture.lower.path().join("lower"));
        let map = Extents::concat([(RangeSource::Lower(lower, 0), Extent::REST)]).expect("a map");
        let file = fixture.open(ranges(map), CacheHint::Direct);
        assert_eq!(fixture.last(), (fixture.moved(), Reason::TurnedOff));
        file.write_all_at(b"moved", 9000).expect("writes");
        let mut seen = [0; 7];
        file.read_exact_at(&mut seen, 8998).expect("reads");
        assert_eq!(&seen, b"mmmoved");
        drop(file);
        fixture.settle();
        fixture.mounted.end();
    });
}

/// Many small runs of two lower files, zeroes and served bytes, read and written across their borders.
#[test]
fn runs_are_put_together_and_taken_apart() {
    on_each_transport(|options| {
        let bytes: Vec<u8> = (0..400_000_u32).map(|index| (index % 251) as u8).collect();
        let fixture = Fixture::new(&bytes, options);
        let other_path = fixture.lower.path().join("other");
        let other: Vec<u8> = bytes.iter().map(|byte| 255 - byte).collect();
        fs::write(&other_path, &other).expect("another");
        let (one, two) = (open_lower(&fixture.lower.path().join("lower")), open_lower(&other_path));
        let mut expected = Vec::new();
        let mut parts = Vec::new();
        for index in 0..40_usize {
            let (from, len) = (index * 9001, 1 + index * 613 % 9000);
            match index % 5 {
                // Served bytes are the lower file's at the offset of the composed one.
                0 => {
                    parts.push((RangeSource::Served, len as u64));
                    let at = expected.len();
                    expected.extend_from_slice(&bytes[at..at + len]);
                }
                1 => {
                    parts.push((RangeSource::Zeroes, len as u64));
                    expected.resize(expected.len() + len, 0);
                }
                // Two that go on from one another are one.
                2 => {
                    let half = len / 2 + 1;
                    parts.push((RangeSource::Lower(Arc::clone(&one), from as u64), half as u64));
                    parts.push((RangeSource::Lower(Arc::clone(&one), (from + half) as u64), len as u64));
                    expected.extend_from_slice(&bytes[from..from + half + len]);
                }
                3 => {
                    let far =
                        Arc::new(LowerFile::new(File::open(&other_path).unwrap().into()).that_can_block());
                    parts.push((RangeSource::Lower(far, from as u64), len as u64));
                    expected.extend_from_slice(&other[from..from + len]);
                }
                _ => {
                    parts.push((RangeSource::Lower(Arc::clone(&two), from as u64), len as u64));
                    expected.extend_from_slice(&other[from..from + len]);
                }
            }
        }
        let map = || ranges(Extents::concat(parts.clone()).expect("a map"));
        for cache in HINTS {
            let file = fixture.open(map(), cache);
            assert_eq!(fixture.last(), (Flow::Ranges, Reason::Wished));
            let mut seen = vec![0xee; expected.len()];
            file.read_exact_at(&mut seen, 0).expect("reads");
            assert!(seen == expected, "{cache:?}");
            for round in 0..60_usize {
                let at = round * 2741 % (expected.len() - 30_000);
                let len = 1 + round * 499;
                seen[..len].fill(0xee);
                file.read_exact_at(&mut seen[..len], at as u64).expect("reads");
                assert!(seen[..len] == expected[at..at + len], "{len} at {at}, {cache:?}");
            }
            drop(file);
            fixture.settle();
        }
        let file = fixture.open(map(), CacheHint::Direct);
        let mut seen = vec![0; 100];
        let size = expected.len() as u64;
        assert_eq!(file.read_at(&mut seen, size - 40).expect("reads"), 40, "the end is the map's");
        assert_eq!(file.read_at(&mut seen, size).expect("reads"), 0);
        drop(file);
        fixture.settle();
        fixture.mounted.end();
    });
}

#[test]
fn writes_by_range_reach_each_lower_file() {
    on_each_transport(|options| {
        let fixture = Fixture::new(&[b'1'; 30_000], options);
        let second_path = fixture.lower.path().join("second");
        fs::write(&second_path, [b'2'; 30_000]).expect("another");
        let first = open_lower(&fixture.lower.path().join("lower"));
        let second = File::options().read(true).write(true).open(&second_path).expect("opens");
        let second = Arc::new(LowerFile::new(second.into()).that_can_block());
        let map = Extents::concat([
            (RangeSource::Lower(Arc::clone(&first), 20_000), 5000),
            (RangeSource::Lower(Arc::clone(&second), 0), 5000),
            (RangeSource::Lower(Arc::clone(&second), 10_000), 5000),
            (RangeSource::Lower(first, 0), 5000),
        ]);
        let file = fixture.open(ranges(map.expect("a map")), CacheHint::Direct);
        let data: Vec<u8> = (0..20_000_u32).map(|index| b'a' + (index % 26) as u8).collect();
        file.write_all_at(&data, 0).expect("writes across all");
        let mut seen = vec![0; 20_000];
        file.read_exact_at(&mut seen, 0).expect("reads");
        assert!(seen == data);
        let one = fs::read(fixture.lower.path().join("lower")).expect("reads");
        let two = fs::read(&second_path).expect("reads");
        assert!(one[20_000..25_000] == data[..5000] && one[..5000] == data[15_000..]);
        assert!(two[..5000] == data[5000..10_000] && two[10_000..15_000] == data[10_000..15_000]);
        assert!(one[5000..20_000].iter().all(|byte| *byte == b'1'), "nothing else is touched");
        assert!(two[5000..10_000].iter().chain(&two[15_000..]).all(|byte| *byte == b'2'));
        drop(file);
        fixture.settle();
        fixture.mounted.end();
    });
}
