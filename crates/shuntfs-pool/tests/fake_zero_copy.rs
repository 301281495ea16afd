//! Zero copy in a pool, on the fake kernel's rings: what must be seen is seen, and all else moves.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod fake;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::slice;
use std::time::Duration;

use fake::{Fixture, rules};
use shuntfs::{Flow, Opcode, Transport, TransportKind};
use shuntfs_fake::{Caller, File, O_APPEND, O_RDONLY, O_RDWR, O_WRONLY, Process, Rings, Settings};
use shuntfs_pool::policy::Policy;
use shuntfs_pool::{BranchOptions, FlowWish, MergeOptions, Pool, PoolOptions};
use shuntfs_sys::uring::Ring;
use shuntfs_testkit::lower::{LowerKind, LowerSpec};
use shuntfs_testkit::seeded::Random;
use shuntfs_testkit::skipped;

const BOB: u32 = 71_001;
const LEN: usize = 400_000;
const MIB: usize = 1 << 20;

fn on_rings(rings: Rings, zero_copy: bool) -> Settings {
    let mut settings = Settings { rings: Some(rings), limit: Duration::from_secs(20), ..Settings::default() };
    settings.session.transport = Transport::Only(TransportKind::Uring);
    settings.session.queues = None;
    settings.session.zero_copy = zero_copy;
    settings
}

/// How the bytes of a redacted file move that need not be seen, and those of requests that must.
type Flows = (Flow, Flow);
const SERVED: Flows = (Flow::Served, Flow::Served);
const RELAYED: Flows = (Flow::Relay, Flow::Ranges);
const MOVED: Flows = (Flow::ZeroCopy, Flow::Ranges);

/// Every kind of transport, and how redacted files flow by it.
fn transports() -> Vec<(&'static str, Settings, Flows)> {
    if let Err(error) = Ring::new(4) {
        skipped(&format!("io_uring is not to be had here: {error}"));
        return Vec::new();
    }
    vec![
        ("a device", Settings::default(), SERVED),
        ("rings of Linux 6.14", on_rings(Rings::plain(), true), SERVED),
        ("rings with pools", on_rings(Rings::with_pools(), false), RELAYED),
        ("rings with zero copy", on_rings(Rings::with_pools(), true), MOVED),
    ]
}

/// Bytes of which none is zero.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| u8::try_from(1 + random.below(255)).unwrap()).collect()
}

fn blanked(mut bytes: Vec<u8>, hidden: &[Range<usize>]) -> Vec<u8> {
    let len = bytes.len();
    hidden.iter().for_each(|range| bytes[range.start.min(len)..range.end.min(len)].fill(0));
    bytes
}

/// One READ, as it is given.
fn ask(process: &Process, file: &File, offset: usize, len: usize) -> Vec<u8> {
    let mut body = [0; 40];
    body[..8].copy_from_slice(&file.fh().unwrap().to_ne_bytes());
    body[8..16].copy_from_slice(&(offset as u64).to_ne_bytes());
    body[16..20].copy_from_slice(&u32::try_from(len).unwrap().to_ne_bytes());
    process.ask(Opcode::Read, file.node().unwrap().get(), &body).unwrap()
}

/// How many bytes moved by each flow, read and written.
fn moved(fixture: &Fixture) -> [BTreeMap<String, u64>; 2] {
    let status = fixture.fake.session().status();
    [status.read_flows, status.written_flows].map(|flows| flows.into_iter().filter(|(_, n)| *n > 0).collect())
}

/// What one READ gives, and the flow that moved its bytes; nothing where there were none.
fn read(fixture: &Fixture, process: &Process, file: &File, at: (usize, usize)) -> (Vec<u8>, String) {
    let [before, _] = moved(fixture);
    let seen = ask(process, file, at.0, at.1);
    let [after, _] = moved(fixture);
    let mut grown = after.iter().filter(|(flow, bytes)| before.get(*flow) != Some(*bytes));
    let flow = grown.next().map(|(flow, _)| flow.clone()).unwrap_or_default();
    assert_eq!(grown.next(), None, "{at:?} moved by two flows");
    assert!(!flow.is_empty() || seen.is_empty(), "{at:?} moved by no flow");
    (seen, flow)
}

/// The requests that touch a border of each range by one byte, or do not.
fn borders(hidden: &[Range<usize>]) -> Vec<(usize, usize)> {
    let mut all = vec![(0, 1), (0, LEN), (LEN - 1, 1), (LEN - 1, 9000), (LEN, 10)];
    for range in hidden {
        for edge in [range.start, range.end.min(LEN - 2)] {
            for before in [1, 2, 4096, edge] {
                let before = before.min(edge);
                all.extend([(edge - before, before), (edge - before, before + 1)]);
                all.extend([(edge, before), (edge + 1, before), (edge - 1, before)]);
            }
        }
        all.push((range.start, range.end.min(LEN) - range.start));
        all.push((range.start + 1, range.end.min(LEN) - range.start - 2));
    }
    all.retain(|(_, len)| *len > 0);
    all
}

fn touches((offset, len): (usize, usize), hidden: &[Range<usize>]) -> bool {
    hidden.iter().any(|range| offset < range.end && range.start < offset + len)
}

fn assert_flow(flow: &str, at: (usize, usize), (seen, flows): (&[Range<usize>], Flows), what: &str) {
    let wanted = if touches(at, seen) { flows.1 } else { flows.0 };
    assert!(flow.is_empty() || flow == wanted.name(), "{what}: {at:?} by {flow}, and not {wanted}");
}

fn redacted(lower: &Path, redact: &str, settings: &Settings) -> (Fixture, Process) {
    let rules = rules(&format!("[[rule]]\npath = 'file'\nuid = {BOB}\nredact = {redact}\n"));
    let pool = Pool::open_with_rules(&PoolOptions::new(lower), rules).unwrap();
    let fixture = Fixture::new(pool, lower, settings);
    let bob = fixture.fake.process(Caller { uid: BOB, gid: BOB, pid: 1 });
    (fixture, bob)
}

fn lower_with(bytes: &[u8]) -> tempfile::TempDir {
    let lower = fake::folder();
    fs::set_permissions(lower.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(lower.path().join("file"), bytes).unwrap();
    lower
}

#[test]
fn a_request_that_touches_a_hidden_range_is_seen() {
    let hidden = [10_000..10_100, 65_536..69_632, 300_000..usize::MAX];
    let text = "{ ranges = [[10000, 10100], [65536, 69632], [300000]] }";
    for (what, settings, flows) in transports() {
        let whole = bytes(1, LEN);
        let lower = lower_with(&whole);
        let (fixture, bob) = redacted(lower.path(), text, &settings);
        let file = bob.open("/file", O_RDONLY).unwrap();
        let shown = blanked(whole.clone(), &hidden);
        let (mut in_pages, before) = (0, fixture.fake.ring_totals().in_pages);
        for at in borders(&hidden) {
            let (seen, flow) = read(&fixture, &bob, &file, at);
            assert!(seen == shown[at.0.min(LEN)..(at.0 + at.1).min(LEN)], "{what}: {at:?}");
            assert_flow(&flow, at, (&hidden, flows), what);
            in_pages += u64::from(flows == MOVED);
        }
        assert_eq!(fixture.fake.ring_totals().in_pages - before, in_pages, "{what}");

        // Who sees all of it has a file of its own.
        let all = fixture.fake.open("/file", O_RDONLY).unwrap();
        assert!(ask(&fixture.fake, &all, 9_990, 200) == whole[9_990..10_190], "{what}");
        drop(all);

        // Whoever changes it below moves nothing out of the ranges.
        let below = fs::File::options().write(true).open(lower.path().join("file")).unwrap();
        let mut now = whole;
        for len in [350_000, 300_001, 300_000, 10_101, 10_100, 10_050, 10_001, 10_000, 9_000, 0, 500_000] {
            below.set_len(len as u64).unwrap();
            now.resize(len, 0);
            let more = bytes(len as u64, len.min(20_000));
            below.write_all_at(&more, 5000.min(len as u64)).unwrap();
            let end = now.len().max(5000.min(len) + more.len());
            now.resize(end, 0);
            now[5000.min(len)..][..more.len()].copy_from_slice(&more);
            let shown = blanked(now.clone(), &hidden);
            for at in [(0, 10_000), (0, 10_001), (9_999, 102), (10_100, 90_000), (0, MIB), (299_990, 20)] {
                let (seen, flow) = read(&fixture, &bob, &file, at);
                assert!(seen == shown[at.0.min(end)..(at.0 + at.1).min(end)], "{what}: {at:?} of {end}");
                // What would be hidden behind the end may not be come to.
                if touches(at, &hidden) == touches((at.0, end.saturating_sub(at.0).min(at.1)), &hidden) {
                    assert_flow(&flow, at, (&hidden, flows), what);
                }
            }
        }
        drop(file);
        fixture.end(what);
    }
}

/// Rules that hide more hold from the next open on.
#[test]
fn a_range_that_grows_is_hidden_from_the_next_open() {
    for (what, settings, flows) in transports() {
        let whole = bytes(8, LEN);
        let lower = lower_with(&whole);
        let text =
            |ranges| format!("[[rule]]\npath = 'file'\nuid = {BOB}\nredact = {{ ranges = {ranges} }}\n");
        let pool =
            Pool::open_with_rules(&PoolOptions::new(lower.path()), rules(&text("[[50, 60]]"))).unwrap();
        let control = pool.rule_control().unwrap();
        let fixture = Fixture::new(pool, lower.path(), &settings);
        let bob = fixture.fake.process(Caller { uid: BOB, gid: BOB, pid: 1 });
        let before = bob.open("/file", O_RDONLY).unwrap();
        assert_eq!(read(&fixture, &bob, &before, (40, 10)), (whole[40..50].to_vec(), flows.0.name().into()));
        control.replace(rules(&text("[[45, 70], [4096]]"))).unwrap();
        let file = bob.open("/file", O_RDONLY).unwrap();
        let hidden = [45..70, 4096..usize::MAX];
        let shown = blanked(whole, &hidden);
        for at in [(40, 5), (40, 6), (69, 1), (70, 4026), (70, 4027), (4096, 1), (0, LEN)] {
            let (seen, flow) = read(&fixture, &bob, &file, at);
            assert!(seen == shown[at.0..at.0 + at.1], "{what}: {at:?}");
            assert_flow(&flow, at, (&hidden, flows), what);
        }
        drop((before, file, control));
        fixture.end(what);
    }
}

/// Random requests and pages that the kernel keeps, as a file that is read by a program.
#[test]
fn a_redacted_file_is_read_through_the_page_cache() {
    let hidden = [100..200, 70_001..70_002, 131_072..135_168];
    let text = "{ ranges = [[100, 200], [70001, 70002], [131072, 135168]] }";
    for (what, settings, flows) in transports() {
        let whole = bytes(2, LEN);
        let lower = lower_with(&whole);
        let (fixture, bob) = redacted(lower.path(), text, &settings);
        let shown = blanked(whole, &hidden);
        let mut random = Random::new(3);
        for _ in 0..40 {
            let file = bob.open("/file", O_RDONLY).unwrap();
            let (offset, len) = (random.below(LEN + 1000), 1 + random.below(90_000));
            let seen = file.read_at(offset as u64, len).unwrap();
            assert!(seen == shown[offset.min(LEN)..(offset + len).min(LEN)], "{what}: {len} at {offset}");
        }
        let [reads, _] = moved(&fixture);
        let expected = BTreeSet::from([flows.0.name(), flows.1.name()]);
        assert_eq!(reads.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected, "{what}: {reads:?}");
        fixture.end(what);
    }
}

/// The first bytes are a copy that was looked at, and what comes behind it is the lower file.
#[test]
fn what_lies_behind_a_copy_moves() {
    const FIRST: usize = 4096;
    for (what, settings, flows) in transports() {
        let mut whole = bytes(4, LEN);
        for place in [10, 4090, 4093, 9000] {
            whole[place..place + 8].copy_from_slice(b"key=0123");
        }
        let lower = lower_with(&whole);
        let text = "{ regex = 'key=[0-9]+', within = 4096 }";
        let (fixture, bob) = redacted(lower.path(), text, &settings);
        let file = bob.open("/file", O_RDONLY).unwrap();
        // What matches at the end of the copy is hidden there, and what follows was not looked at.
        let shown = blanked(whole.clone(), slice::from_ref(&(10..18)));
        let first = ask(&bob, &file, 0, FIRST);
        let is_hidden = |at: usize| first[at] == 0;
        assert!((10..18).all(is_hidden) && !is_hidden(9) && !is_hidden(18), "{what}");
        for at in [(FIRST, 1), (FIRST - 1, 2), (FIRST - 1, 1), (FIRST, LEN), (0, LEN), (8990, 40)] {
            let (seen, flow) = read(&fixture, &bob, &file, at);
            let behind = at.0.max(FIRST);
            assert!(seen[behind - at.0..] == shown[behind..(at.0 + at.1).min(LEN)], "{what}: {at:?}");
            assert_flow(&flow, at, (slice::from_ref(&(0..FIRST)), flows), what);
        }
        // The copy is of the open's moment, whatever is written now.
        let below = fs::File::options().write(true).open(lower.path().join("file")).unwrap();
        below.write_all_at(&[b'x'; 5000], 0).unwrap();
        let (seen, flow) = read(&fixture, &bob, &file, (0, 5000));
        assert!(seen[..FIRST] == first && seen[FIRST..] == [b'x'; 5000 - FIRST], "{what}");
        assert_flow(&flow, (0, 5000), (slice::from_ref(&(0..FIRST)), flows), what);
        drop(file);
        fixture.end(what);
    }
}

/// What is a copy, or hidden whole, is served.
#[test]
fn what_is_a_copy_never_moves() {
    for (what, settings, _) in transports() {
        for text in ["'whole'", "'exif-gps'", "{ regex = 'key', within = 1000000 }"] {
            let whole = bytes(5, 50_000);
            let lower = lower_with(&whole);
            let (fixture, bob) = redacted(lower.path(), text, &settings);
            let file = bob.open("/file", O_RDONLY).unwrap();
            // What is no photo has no place that could be found.
            let shown = if text.starts_with('{') { whole } else { vec![0; 50_000] };
            for at in [(0, 50_000), (4096, 4096), (49_999, 100)] {
                let (seen, flow) = read(&fixture, &bob, &file, at);
                assert!(seen == shown[at.0..(at.0 + at.1).min(50_000)], "{what}, {text}: {at:?}");
                assert_eq!(flow, "served", "{what}, {text}");
            }
            assert_eq!(fixture.fake.ring_totals().in_pages, 0, "{what}, {text}");
            drop(file);
            fixture.end(what);
        }
    }
}

fn merged(branches: Vec<BranchOptions>) -> PoolOptions {
    let mut merge = MergeOptions::new(branches);
    merge.min_free = 0;
    merge.create = Policy::of("ff").unwrap();
    PoolOptions { merge: Some(merge), flow: FlowWish::Relay, ..PoolOptions::new("merge") }
}

/// What is written to a file of a merge may have to go to another branch, which no one has to see for it.
#[test]
fn writes_to_a_merge_move() {
    for (what, settings, flows) in transports() {
        let moves = flows == MOVED;
        let top = fake::folder();
        let branches = ["a", "b"].map(|name| {
            fs::create_dir(top.path().join(name)).unwrap();
            BranchOptions::new(top.path().join(name))
        });
        let fixture = Fixture::new(Pool::open(&merged(branches.into())).unwrap(), top.path(), &settings);
        let file = fixture.fake.create("/file").unwrap();
        let (mut wanted, mut random, mut sum) = (Vec::new(), Random::new(6), 0);
        for _ in 0..40 {
            let (data, offset) = (bytes(random.number(), 1 + random.below(300_000)), random.below(500_000));
            assert_eq!(file.write_at(offset as u64, &data), Ok(data.len()), "{what}");
            wanted.resize(wanted.len().max(offset + data.len()), 0);
            wanted[offset..offset + data.len()].copy_from_slice(&data);
            sum += data.len() as u64;
        }
        assert!(file.read_to_end().unwrap() == wanted, "{what}");
        assert!(fs::read(top.path().join("a/file")).unwrap() == wanted, "{what}");
        let [reads, writes] = moved(&fixture);
        let by_zero_copy = Flow::ZeroCopy.name();
        let expected = if moves { Some(&sum) } else { None };
        assert_eq!(writes.get(by_zero_copy), expected, "{what}: {writes:?}");
        assert_eq!(reads.contains_key(by_zero_copy), moves, "{what}: {reads:?}");
        drop(file);
        fixture.end(what);
    }
}

/// What is appended is checked, and what leaves suid is written by a thread with the right for it: both are copied.
#[test]
fn writes_that_must_be_seen_are_seen() {
    for (what, settings, flows) in transports() {
        let moves = flows == MOVED;
        let lower = lower_with(b"some");
        fs::write(lower.path().join("log"), "a").unwrap();
        let text = "[[rule]]\npath = 'log'\nappend_only = true\n";
        let options = PoolOptions { flow: FlowWish::Relay, ..PoolOptions::new(lower.path()) };
        let pool = Pool::open_with_rules(&options, rules(text)).unwrap();
        let fixture = Fixture::new(pool, lower.path(), &settings);
        let log = fixture.fake.open("/log", O_WRONLY | O_APPEND).unwrap();
        assert_eq!(log.write_at(0, b"ppended"), Ok(7), "{what}");
        drop(log);
        assert_eq!(fs::read(lower.path().join("log")).unwrap(), b"appended", "{what}");
        assert_eq!(fixture.fake.ring_totals().in_pages, 0, "{what}");
        // The bit comes while the file is open by zero copy.
        let file = fixture.fake.open("/file", O_RDWR).unwrap();
        assert_eq!(file.write_at(4, b" bytes"), Ok(6));
        fixture.fake.chmod("/file", 0o4755).unwrap();
        assert_eq!(file.write_at(10, b" more"), Ok(5), "{what}");
        assert_eq!(fs::read(lower.path().join("file")).unwrap(), b"some bytes more", "{what}");
        assert_eq!(fixture.fake.ring_totals().in_pages > 0, moves, "{what}");
        drop(file);
        fixture.end(what);
    }
}

/// A branch becomes full while a file is written by zero copy: it is moved, and the same pages are written on the other branch.
#[test]
fn a_file_that_outgrows_its_branch_is_written_on_another_by_zero_copy() {
    for (what, settings, flows) in transports() {
        let moves = flows == MOVED;
        let disk = |mib: u64| LowerSpec::new(LowerKind::Tmpfs).size(mib << 20).make().unwrap();
        let (Some(small), Some(large)) = (disk(4), disk(32)) else { return };
        let branches = [&small, &large].map(|disk| BranchOptions::new(disk.path()));
        let fixture = Fixture::new(Pool::open(&merged(branches.into())).unwrap(), small.path(), &settings);
        let file = fixture.fake.create("/file").unwrap();
        let wanted = bytes(7, 10 * MIB);
        // None of these ends where a page or the disk does.
        for (place, data) in wanted.chunks(300_001).enumerate() {
            assert_eq!(file.write_at((place * 300_001) as u64, data), Ok(data.len()), "{what}");
        }
        assert_eq!(fixture.observer.facts().files_moved, 1, "{what}");
        assert!(!small.path().join("file").exists(), "{what}");
        assert!(fs::read(large.path().join("file")).unwrap() == wanted, "{what}");
        assert!(file.read_to_end().unwrap() == wanted, "{what}");
        let [reads, writes] = moved(&fixture);
        let by_zero_copy = |flows: &BTreeMap<String, u64>| flows.get(Flow::ZeroCopy.name()).copied();
        assert_eq!(by_zero_copy(&writes), moves.then_some(10 << 20), "{what}: {writes:?}");
        assert_eq!(by_zero_copy(&reads).is_some(), moves, "{what}: {reads:?}");
        drop(file);
        fixture.end(what);
    }
}
