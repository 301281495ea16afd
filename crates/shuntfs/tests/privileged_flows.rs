//! Opens of one file that wish for different things, against the real kernel. Needs CAP_SYS_ADMIN and /dev/fuse.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::fixture::Fixture;
use common::on_each_transport;
use common::wishes::{file_node, passthrough, ranges, splice};
use shuntfs::{CacheHint, Delegation, Flow, Flows, LowerFile, Opcode, RangeMap, RangeSource, Reason};

const HINTS: [CacheHint; 3] = [CacheHint::Drop, CacheHint::Keep, CacheHint::Direct];

fn wishes() -> [Delegation; 3] {
    [Delegation::Served, splice(), passthrough()]
}

#[test]
fn every_pair_of_opens_works() {
    on_each_transport(|options| {
        let fixture = Fixture::new(&[b'.'; 9000], options);
        let (moved, copied) = (fixture.moved(), fixture.copied());
        let mut round = 0_u8;
        for (first, second) in
            wishes().into_iter().flat_map(|one| wishes().map(move |other| (one.clone(), other)))
        {
            for (one, other) in HINTS.into_iter().flat_map(|one| HINTS.map(|other| (one, other))) {
                round = round.wrapping_add(1);
                let what = format!("{first:?} {one:?}, then {second:?} {other:?}");
                let a = fixture.open(first.clone(), one);
                assert_eq!(fixture.last().1, Reason::Wished, "{what}");
                let b = fixture.open(second.clone(), other);
                let (flow, reason) = fixture.last();
                let expected = match (&first, &second, one) {
                    (Delegation::Passthrough(_), Delegation::Passthrough(_), _) => {
                        (Flow::Passthrough, Reason::Wished)
                    }
                    (Delegation::Passthrough(_), Delegation::Splice(_), _) => {
                        (copied, Reason::PassthroughOpens)
                    }
                    (Delegation::Passthrough(_), ..) => (Flow::Served, Reason::PassthroughOpens),
                    (_, Delegation::Passthrough(_), CacheHint::Direct) => (moved, Reason::DirectOpens),
                    (_, Delegation::Passthrough(_), _) => (moved, Reason::CachedOpens),
                    (_, Delegation::Splice(_), _) => (moved, Reason::Wished),
                    _ => (Flow::Served, Reason::Wished),
                };
                assert_eq!((flow, reason), expected, "{what}");
                assert_eq!(fixture.mounted.session().flow_of(file_node()), Some(Flows::both(flow, reason)));
                a.write_all_at(&[round; 100], 4000).unwrap_or_else(|error| panic!("{what}: {error}"));
                let mut seen = [0; 100];
                b.read_exact_at(&mut seen, 4000).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(seen, [round; 100], "{what}");
                drop((a, b));
                fixture.settle();
            }
        }
        let Fixture { mounted, lower, .. } = fixture;
        assert_eq!(fs::read(lower.path().join("lower")).unwrap().len(), 9000);
        mounted.end();
    });
}

#[test]
fn racing_opens_of_all_kinds_never_fail() {
    on_each_transport(|options| {
        let fixture = Fixture::new(&[b'r'; 5000], options);
        for (wish, cache) in [
            (passthrough(), CacheHint::Keep),
            (Delegation::Served, CacheHint::Keep),
            (splice(), CacheHint::Drop),
            (passthrough(), CacheHint::Drop),
            (Delegation::Served, CacheHint::Direct),
        ]
        .into_iter()
        .cycle()
        .take(3000)
        {
            fixture.plan.push(wish, cache);
        }
        std::thread::scope(|scope| {
            for _ in 0..6 {
                let path = fixture.mounted.join("file");
                scope.spawn(move || {
                    for _ in 0..400 {
                        let file = File::options().read(true).write(true).open(&path).expect("no open fails");
                        let mut bytes = [0; 10];
                        file.read_exact_at(&mut bytes, 4096).expect("reads");
                        assert_eq!(bytes, [b'r'; 10]);
                        file.write_all_at(b"r", 4100).expect("writes");
                    }
                });
            }
        });
        let status = fixture.mounted.session().status();
        assert_eq!(status.ops["OPEN"].errors, 0);
        assert_eq!(status.requests(Opcode::Open), 2400);
        fixture.settle();
        fixture.mounted.end();
    });
}

/// The first page from below at another place, a page of zeroes, then the file system's own bytes.
#[derive(Debug)]
struct Patchwork(Arc<LowerFile>);

impl RangeMap for Patchwork {
    fn source(&self, offset: u64) -> (RangeSource, u64) {
        match offset {
            0..4096 => (RangeSource::Lower(Arc::clone(&self.0), offset + 1000), 4096 - offset),
            4096..8192 => (RangeSource::Zeroes, 8192 - offset),
            _ => (RangeSource::Served, u64::MAX),
        }
    }
}

#[test]
fn a_composed_file_reads_as_one() {
    on_each_transport(|options| {
        let bytes: Vec<u8> = (0..20_000_u32).map(|index| (index % 253) as u8).collect();
        let fixture = Fixture::new(&bytes, options);
        let lower = File::options().read(true).write(true).open(fixture.lower.path().join("lower")).unwrap();
        let map = || Patchwork(Arc::new(LowerFile::new(lower.try_clone().unwrap().into())));
        let expected = [&bytes[1000..5096], &[0; 4096], &bytes[8192..]].concat();
        for cache in HINTS {
            let file = fixture.open(ranges(map()), cache);
            assert_eq!(fixture.last(), (Flow::Ranges, Reason::Wished));
            let mut seen = vec![0xee; expected.len()];
            file.read_exact_at(&mut seen, 0).unwrap();
            assert!(seen == expected, "{cache:?}");
            let mut few = [0; 100];
            file.read_exact_at(&mut few, 4050).unwrap();
            assert_eq!(few[..], expected[4050..4150]);
            drop(file);
            fixture.settle();
        }
        let file = fixture.open(ranges(map()), CacheHint::Direct);
        file.write_all_at(&[9; 200], 8100).unwrap();
        file.write_all_at(&[8; 10], 0).unwrap();
        drop(file);
        let below = fs::read(fixture.lower.path().join("lower")).unwrap();
        assert_eq!(below[8100..8300], [9; 200]);
        assert_eq!(below[1000..1010], [8; 10]);
        fixture.settle();
        fixture.mounted.end();
    });
}

#[test]
fn a_downgraded_open_works_while_mapped_files_live() {
    on_each_transport(|options| {
        let fixture = Fixture::new(&[b'm'; 8192], options);
        // Whether a mapping of it lives on is not known to anybody, so the node stays in passthrough while its id is kept.
        let first = fixture.open(passthrough(), CacheHint::Keep);
        drop(first);
        for _ in 0..200 {
            if fixture.mounted.session().status().nodes_open == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(fixture.mounted.session().status().backing_ids_kept, 1);
        let second = fixture.open(Delegation::Served, CacheHint::Keep);
        assert_eq!(
            fixture.last(),
            (Flow::Served, Reason::PassthroughOpens),
            "the id is kept, and so is the mode"
        );
        let mut bytes = [0; 10];
        second.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [b'm'; 10]);
        drop(second);
        fixture.settle();
        fixture.mounted.end();
    });
}

/// The open is counted before the file system hears how it was settled; a panic there must take the count back.
#[test]
fn an_open_that_fails_half_way_leaves_no_trace() {
    on_each_transport(|options| {
        let fixture = Fixture::new(b"bytes", options);
        for wish in wishes() {
            fixture.plan.wishes.lock().unwrap().clear();
            fixture.plan.push(wish, CacheHint::Drop);
            fixture.plan.panics.store(true, Ordering::SeqCst);
            let error = File::open(fixture.mounted.join("file")).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(5));
            fixture.plan.panics.store(false, Ordering::SeqCst);
            assert_eq!(fixture.mounted.session().status().nodes_open, 0);
            fixture.settle();
            assert_eq!(fixture.mounted.session().flow_of(file_node()), None);
        }
        drop(fixture.open(Delegation::Served, CacheHint::Keep));
        assert_eq!(fixture.last(), (Flow::Served, Reason::Wished));
        fixture.settle();
        fixture.mounted.end();
    });
}

/// The kernel never hears of the node, so it will not forget it.
#[test]
fn a_creation_that_fails_half_way_gives_its_lookup_back() {
    on_each_transport(|options| {
        for wish in wishes() {
            let fixture = Fixture::new(b"bytes", options);
            fixture.plan.push(wish, CacheHint::Drop);
            fixture.plan.panics.store(true, Ordering::SeqCst);
            let error = File::create_new(fixture.mounted.join("new")).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(5));
            assert_eq!(fixture.plan.forgotten.load(Ordering::SeqCst), 1);
            assert_eq!(fixture.mounted.session().status().nodes_open, 0);
            fixture.plan.panics.store(false, Ordering::SeqCst);
            let mut made = File::create_new(fixture.mounted.join("new")).unwrap();
            made.write_all(b"later").unwrap();
            drop(made);
            fixture.settle();
            fixture.mounted.end();
        }
    });
}
