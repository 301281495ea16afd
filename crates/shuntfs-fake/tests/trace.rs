//! Requests that are examined, and requests that take too long, without a kernel.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod common;

use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::{Bug, Mem};
use shuntfs::{
    Attr, AttrReply, Cx, Entry, Errno, FileType, Filesystem, Flow, Name, NodeId, NodePlace, Opcode, Result,
    StallStatus, Trace, TraceFilter, TraceRecord, Traced, Transport, TransportKind,
};
use shuntfs_fake::{Caller, Fake, O_RDONLY, Rule, Settings};

/// On a device and on cloned ones.
fn on_each(run: impl Fn(&Settings)) {
    for (kind, queues) in [(TransportKind::Device, 1), (TransportKind::Device, 3), (TransportKind::Cloned, 3)]
    {
        let mut settings = Settings::default();
        settings.session.transport = Transport::Only(kind);
        settings.session.queues = Some(queues);
        settings.session.stall_after = Some(LIMIT);
        run(&settings);
    }
}

const LIMIT: Duration = Duration::from_millis(200);
/// More than anything here takes.
const LONG: Duration = Duration::from_secs(20);

/// The records that are there, or come soon; no record may be missing.
fn records(trace: &mut Trace) -> Vec<Arc<TraceRecord>> {
    let mut records = Vec::new();
    while let Some(next) = trace.next_within(Duration::from_millis(100)) {
        match next {
            Traced::Record(record) => records.push(record),
            other => panic!("{other:?}"),
        }
    }
    records
}

fn operations(records: &[Arc<TraceRecord>]) -> Vec<Opcode> {
    records.iter().filter_map(|record| record.operation()).collect()
}

#[test]
fn each_request_is_told_with_its_caller_its_name_and_its_end() {
    on_each(|settings| {
        let fake = Fake::mount_with(Arc::new(Mem::new(Bug::None)), settings).unwrap();
        let me = std::process::id();
        let process = fake.process(Caller { uid: 71_001, gid: 71_002, pid: me });
        let mut trace = fake.session().trace(TraceFilter::default()).unwrap();
        let file = process.create("/file").unwrap();
        assert_eq!(file.write_at(10, b"some bytes"), Ok(10));
        assert_eq!(process.stat("/missing").err(), Some(Errno::NOENT));
        process.rename("/file", "/other").unwrap();
        drop(file);
        let records = records(&mut trace);
        assert!(records.iter().all(|record| record.place.is_none()), "this file system tells no paths");
        let of = |opcode| {
            let found = records.iter().find(|record| record.operation() == Some(opcode));
            found.unwrap_or_else(|| panic!("no {opcode}: {:?}", operations(&records)))
        };
        let created = of(Opcode::Create);
        assert_eq!((created.uid, created.gid, created.pid), (71_001, 71_002, me));
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(created.comm, own.trim_end().as_bytes());
        assert_eq!(created.name.as_deref(), Some(&b"file"[..]));
        assert_eq!((created.errno, created.flow), (None, Some(Flow::Served)));
        let node = created.found.expect("was made");
        let written = of(Opcode::Write);
        assert_eq!(
            (written.node, written.offset, written.len, written.moved),
            (node, Some(10), Some(10), Some(10))
        );
        let is_missing = |record: &&Arc<TraceRecord>| record.name.as_deref() == Some(b"missing");
        let missing = records.iter().find(is_missing).expect("was looked up");
        assert_eq!((missing.operation(), missing.errno), (Some(Opcode::Lookup), Some(Errno::NOENT)));
        let moved = records.iter().find(|record| record.second.is_some()).expect("was moved");
        assert_eq!(moved.second.as_deref(), Some(&b"other"[..]));
        assert!(operations(&records).contains(&Opcode::Release));
        drop(trace);
        fake.end();
    });
}

#[test]
fn nothing_is_told_of_what_came_before_and_after() {
    on_each(|settings| {
        let fake = Fake::mount_with(Arc::new(Mem::new(Bug::None)), settings).unwrap();
        fake.mkdir("/before", 0o755).unwrap();
        let mut first = fake.session().trace(TraceFilter::default()).unwrap();
        let filter = TraceFilter { operations: vec![Opcode::Mkdir], ..TraceFilter::default() };
        let mut second = fake.session().trace(filter).unwrap();
        fake.mkdir("/between", 0o755).unwrap();
        let names = |trace: &mut Trace| -> Vec<Vec<u8>> {
            let made = records(trace);
            let made = made.iter().filter(|record| record.operation() == Some(Opcode::Mkdir));
            made.filter_map(|record| record.name.clone()).collect()
        };
        assert_eq!(
            (names(&mut first), names(&mut second)),
            (vec![b"between".to_vec()], vec![b"between".to_vec()])
        );
        drop(first);
        fake.mkdir("/later", 0o755).unwrap();
        assert_eq!(names(&mut second), [b"later".to_vec()]);
        drop(second);
        fake.mkdir("/after", 0o755).unwrap();
        let mut last = fake.session().trace(TraceFilter::default()).unwrap();
        assert!(records(&mut last).is_empty());
        let session_ended = {
            fake.end();
            last.next()
        };
        // What the kernel asked for at the end may still come, and then the end.
        let rest = session_ended.into_iter().chain(last);
        assert!(rest.take(1000).count() < 1000);
    });
}

#[test]
fn who_reads_too_slowly_is_told_how_many_are_missing() {
    on_each(|settings| {
        let fake = Fake::mount_with(Arc::new(Mem::new(Bug::None)), settings).unwrap();
        let filter = TraceFilter { operations: vec![Opcode::Lookup], ..TraceFilter::default() };
        let mut trace = fake.session().trace(filter).unwrap();
        let before = fake.session().status().requests(Opcode::Lookup);
        // More than all rings together hold.
        for round in 0..3300 {
            assert!(fake.stat(&format!("/missing{round}")).is_err());
        }
        let sent = fake.session().status().requests(Opcode::Lookup) - before;
        let (mut told, mut missing) = (0, 0);
        while let Some(next) = trace.next_within(Duration::from_millis(100)) {
            match next {
                Traced::Record(_) => told += 1,
                Traced::Dropped(count) => missing += count,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(told + missing, sent, "{told} and {missing}");
        assert!(missing > 0 && told >= 1024, "{told} and {missing}");
        drop(trace);
        fake.end();
    });
}

/// A folder with names whose lookups wait until they are let go: in the queue, beside it, and for a signal.
#[derive(Debug, Default)]
struct Slow {
    is_open: Arc<(Mutex<bool>, Condvar)>,
    place_panics: bool,
}

impl Slow {
    fn let_go(&self) {
        *self.is_open.0.lock().unwrap() = true;
        self.is_open.1.notify_all();
    }
}

fn wait(is_open: &(Mutex<bool>, Condvar)) {
    let guard = is_open.0.lock().unwrap();
    drop(is_open.1.wait_timeout_while(guard, LONG, |is_open| !*is_open).unwrap());
}

impl Filesystem for Slow {
    type File = ();
    type Dir = ();

    fn place_of(&self, node: NodeId, _: Option<&()>) -> Option<NodePlace> {
        assert!(!self.place_panics, "told to");
        (node == NodeId::ROOT).then(|| NodePlace::new("root \u{1b}[2J").on("/a disk"))
    }

    async fn lookup(&self, cx: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        match name.as_bytes() {
            b"inline" => wait(&self.is_open),
            b"aside" => {
                let is_open = Arc::clone(&self.is_open);
                cx.offload(move || wait(&is_open)).await;
            }
            _ => {}
        }
        Err(Errno::NOENT)
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        Ok(Attr::new(node.get(), FileType::Directory, 0o555).valid_for(Duration::ZERO))
    }
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let patience = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < patience, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn stalls(fake: &Fake) -> (u64, u64) {
    let StallStatus { total, now, .. } = fake.session().status().stalls;
    (total, now)
}

#[test]
fn a_request_that_takes_too_long_is_counted_while_it_does() {
    on_each(|settings| {
        for name in ["/inline", "/aside"] {
            if name == "/inline" && settings.session.queues == Some(1) {
                // Nobody is left to answer, which is the same for the watcher, but not for the end of the test.
                continue;
            }
            let fs = Arc::new(Slow::default());
            let fake = Fake::mount_with(Arc::clone(&fs), settings).unwrap();
            let process = fake.process(fake.caller());
            assert_eq!(stalls(&fake), (0, 0));
            std::thread::scope(|scope| {
                let caller = scope.spawn(|| process.stat(name).err());
                eventually("it is found", || stalls(&fake) == (1, 1));
                std::thread::sleep(2 * LIMIT);
                assert_eq!(stalls(&fake), (1, 1), "{name}: once");
                fs.let_go();
                assert_eq!(caller.join().unwrap(), Some(Errno::NOENT));
                eventually("its end is seen", || stalls(&fake) == (1, 0));
            });
            fake.end();
        }
    });
}

#[test]
fn requests_in_time_are_no_stalls_and_neither_are_any_where_nobody_asks() {
    on_each(|settings| {
        let mut off = settings.clone();
        off.session.stall_after = None;
        let (fs, quick) = (Arc::new(Slow::default()), Arc::new(Slow::default()));
        let (fake, other) =
            (Fake::mount_with(Arc::clone(&fs), &off).unwrap(), Fake::mount_with(quick, settings).unwrap());
        let process = fake.process(fake.caller());
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                begun.wait();
                process.stat("/aside").err()
            });
            begun.wait();
            let until = Instant::now() + 3 * LIMIT;
            while Instant::now() < until {
                assert!(other.stat("/quick").is_err());
                std::thread::sleep(Duration::from_millis(5));
            }
            fs.let_go();
            assert_eq!(caller.join().unwrap(), Some(Errno::NOENT));
        });
        assert_eq!((stalls(&fake), stalls(&other)), ((0, 0), (0, 0)));
        assert_eq!(fake.session().status().stalls.limit_ms, None);
        assert_eq!(other.session().status().stalls.limit_ms, Some(200));
        fake.end();
        other.end();
    });
}

/// Nobody has to wait for an answer, or gets another one, because a path cannot be told. It was asked for outside of what catches panics: on the
/// watcher the process was aborted, and on a queue an operation that was done was answered EIO.
#[test]
fn a_place_that_panics_spoils_no_operation() {
    on_each(|settings| {
        let fs = Arc::new(Slow { place_panics: true, ..Slow::default() });
        let fake = Fake::mount_with(Arc::clone(&fs), settings).unwrap();
        let mut trace = fake.session().trace(TraceFilter::default()).unwrap();
        let process = fake.process(fake.caller());
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| process.stat("/aside").err());
            eventually("it is found", || stalls(&fake) == (1, 1));
            fs.let_go();
            assert_eq!(caller.join().unwrap(), Some(Errno::NOENT));
            eventually("its end is seen", || stalls(&fake) == (1, 0));
        });
        assert!(fake.stat("/").is_ok());
        assert_eq!(fake.stat("/quick").err(), Some(Errno::NOENT));
        let records = records(&mut trace);
        assert!(operations(&records).contains(&Opcode::Getattr), "{:?}", operations(&records));
        for record in &records {
            let errno = (record.operation() == Some(Opcode::Lookup)).then_some(Errno::NOENT);
            assert_eq!((&record.place, record.errno), (&None, errno), "{record:?}");
        }
        let status = fake.session().status();
        assert!(status.panics > records.len() as u64, "each was counted, and the stall's: {}", status.panics);
        drop(trace);
        let filter = TraceFilter { matches: Some(Arc::new(|_| panic!("told to"))), ..TraceFilter::default() };
        let mut trace = fake.session().trace(filter).unwrap();
        assert_eq!(fake.stat("/quick").err(), Some(Errno::NOENT));
        assert!(trace.next_within(Duration::from_millis(10)).is_none());
        drop(trace);
        let broken = fake.finish().expect_err("panics are told");
        assert!(broken.0.iter().all(|breach| breach.rule == Rule::Panics), "{broken}");
    });
}

/// What is known of a node is told with it, and what callers chose is bytes.
#[test]
fn the_place_of_a_node_is_told() {
    let fs = Arc::new(Slow::default());
    let fake = Fake::mount_with(fs, &Settings::default()).unwrap();
    let mut trace = fake.session().trace(TraceFilter { errors: true, ..TraceFilter::default() }).unwrap();
    assert!(fake.open("/odd\u{1b}", O_RDONLY).is_err());
    let records = records(&mut trace);
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(record.path().as_deref(), Some("root \u{1b}[2J/odd\u{1b}".as_bytes()));
    assert_eq!(record.place.as_ref().and_then(|place| place.branch.as_deref()), Some(&b"/a disk"[..]));
    drop(trace);
    fake.end();
}
