use std::sync::mpsc;
use std::thread;

use parking_lot::Mutex;
use shuntfs_sys::threads;
use shuntfs_wire::Opcode;
use zerocopy::FromZeros;

use super::*;
use crate::meter::{LOOK, Meter};
use crate::readers::{Reader, Readers};
use crate::watch::{May, Watcher};

const LIMIT: Duration = Duration::from_millis(80);
/// More than a watcher that sleeps between takes to see a request that is as old as the limit.
const LONG: Duration = Duration::from_secs(10);

/// What was told, as lines: whether it began or ended, its number, the thread.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<(bool, u64, Option<u32>)>>);

impl StallSink for Told {
    fn began(&self, stall: &Stall) {
        assert!(stall.age >= LIMIT, "{stall:?}");
        self.0.lock().push((true, stall.unique, stall.thread));
    }

    fn ended(&self, stall: &Stall) {
        self.0.lock().push((false, stall.unique, stall.thread));
    }
}

impl Told {
    fn wait_for(&self, count: usize) -> Vec<(bool, u64, Option<u32>)> {
        let patience = Instant::now() + LONG;
        loop {
            let told = self.0.lock().clone();
            if told.len() >= count || Instant::now() >= patience {
                return told;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn header(unique: u64, opcode: Opcode) -> InHeader {
    let mut header = InHeader::new_zeroed();
    (header.unique, header.opcode, header.nodeid, header.pid) = (unique, opcode as u32, 7, 1);
    header
}

/// A watcher that runs, the reader of this thread, which waits for requests, and what is told.
struct Stage {
    told: Arc<Told>,
    reader: Reader,
    notes: Arc<Notes>,
    tid: u32,
    thread: thread::JoinHandle<()>,
}

impl Stage {
    fn new(is_on: bool) -> Self {
        Self::with(is_on.then_some(LIMIT))
    }

    /// With such a limit, if with any.
    fn with(limit: Option<Duration>) -> Self {
        let gauges = Gauges::new(1).expect("a timer");
        let readers = Readers::new(1);
        let reader = readers.reader(Meter::new(&gauges, 0));
        let notes = reader.meter.notes(4);
        let mut watcher = Watcher::new(&gauges, &readers, May { lighten: false, pin: false });
        let told = Arc::new(Told::default());
        if let Some(limit) = limit {
            watcher.watch_stalls(StallWatch::new(limit, Arc::clone(&told) as Arc<dyn StallSink>));
        }
        assert!(reader.stand_by());
        reader.meter.waits();
        let (tell, tells) = mpsc::channel();
        let thread = thread::spawn(move || {
            tell.send(threads::gettid()).unwrap();
            watcher.run();
        });
        let tid = tells.recv().unwrap();
        while threads::is_runnable(tid) == Some(true) {
            thread::sleep(Duration::from_millis(1));
        }
        Self { told, reader, notes, tid, thread }
    }

    fn end(self) {
        drop(self.reader);
        self.thread.join().unwrap();
    }

    /// How often the watcher has gone to sleep.
    fn sleeps(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", self.tid)).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }
}

#[test]
fn a_request_that_holds_its_thread_is_told_once_and_again_when_it_ends() {
    let stage = Stage::new(true);
    stage.reader.meter.woke();
    stage.notes.begins(2, &header(77, Opcode::Lookup));
    let told = stage.told.wait_for(1);
    assert_eq!(told, [(true, 77, Some(threads::gettid()))]);
    thread::sleep(2 * LIMIT);
    assert_eq!(stage.told.0.lock().len(), 1, "it is told once");
    stage.notes.ends(2, Opcode::Lookup as u32, false);
    stage.reader.meter.waits();
    // It had been told, so the watcher comes back for it; nothing else is under way.
    assert_eq!(stage.told.wait_for(2)[1], (false, 77, Some(threads::gettid())));
    stage.end();
}

/// It lets its thread go, which then waits for requests.
#[test]
fn a_request_that_goes_on_is_told_and_one_that_waits_for_a_lock_is_not() {
    for (opcode, is_told) in [(Opcode::Read, true), (Opcode::Setlkw, false), (Opcode::Poll, false)] {
        let stage = Stage::new(true);
        stage.reader.meter.woke();
        stage.notes.begins(0, &header(5, opcode));
        stage.notes.goes_on(0, opcode as u32);
        stage.reader.meter.waits();
        if is_told {
            assert_eq!(stage.told.wait_for(1), [(true, 5, None)]);
        } else {
            let before = stage.sleeps();
            thread::sleep(3 * LIMIT);
            assert_eq!(stage.told.0.lock().len(), 0, "{opcode}");
            assert_eq!(stage.sleeps(), before, "{opcode}: the watcher has nothing to wake up for");
        }
        stage.end();
    }
}

/// Requests that come and go, each of which sets the timer and takes it back, must not put it off.
#[test]
fn a_request_is_told_beside_a_trickle_of_others() {
    let stage = Stage::new(true);
    stage.reader.meter.woke();
    stage.notes.begins(0, &header(5, Opcode::Read));
    stage.notes.goes_on(0, Opcode::Read as u32);
    stage.reader.meter.waits();
    let patience = Instant::now() + LONG;
    for unique in 6.. {
        stage.reader.meter.woke();
        stage.notes.begins(1, &header(unique, Opcode::Getattr));
        stage.reader.meter.serves(7);
        stage.notes.ends(1, Opcode::Getattr as u32, false);
        stage.reader.meter.waits();
        if !stage.told.0.lock().is_empty() || Instant::now() > patience {
            break;
        }
        thread::sleep(LIMIT / 16);
    }
    assert_eq!(stage.told.0.lock().first(), Some(&(true, 5, None)));
    stage.end();
}

/// As it was before there were stalls: an idle mount, and one that is asked now and then, does not wake the watcher.
#[test]
fn a_trickle_does_not_wake_the_watcher_for_stalls() {
    for is_ring in [false, true] {
        let stage = Stage::new(true);
        let before = stage.sleeps();
        for unique in 1..=40 {
            if is_ring {
                stage.reader.meter.ring_woke()
            } else {
                stage.reader.meter.woke()
            }
            stage.notes.begins(0, &header(unique, Opcode::Getattr));
            stage.reader.meter.serves(7);
            stage.notes.ends(0, Opcode::Getattr as u32, false);
            if is_ring {
                stage.reader.meter.ring_waits()
            } else {
                stage.reader.meter.waits()
            }
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(2 * LIMIT);
        assert_eq!(stage.sleeps(), before, "ring: {is_ring}");
        assert!(stage.told.0.lock().is_empty());
        stage.end();
    }
}

/// To set the timer and stop it again costs each of them two system calls, and a look now and then costs less.
#[test]
fn a_trickle_of_a_ring_wakes_the_watcher_once_a_step_where_steps_are_long() {
    let step = Duration::from_millis(200);
    let stage = Stage::with(Some(step * LOOKS));
    let (before, since) = (stage.sleeps(), Instant::now());
    for unique in 1..=10 {
        stage.reader.meter.ring_woke();
        stage.notes.begins(0, &header(unique, Opcode::Getattr));
        stage.reader.meter.serves(7);
        stage.notes.ends(0, Opcode::Getattr as u32, false);
        stage.reader.meter.ring_waits();
        thread::sleep(Duration::from_millis(100));
    }
    thread::sleep(2 * step);
    let (looks, most) = (stage.sleeps() - before, since.elapsed().as_millis() / step.as_millis());
    assert!(looks > 0 && u128::from(looks) <= most, "{looks} looks, and at most {most}");
    let idle = stage.sleeps();
    thread::sleep(3 * step);
    assert_eq!(stage.sleeps(), idle, "an idle ring wakes nobody");
    assert!(stage.told.0.lock().is_empty());
    // And where one is held then, it is told.
    stage.reader.meter.ring_woke();
    stage.notes.begins(3, &header(99, Opcode::Read));
    assert_eq!(stage.told.wait_for(1), [(true, 99, Some(threads::gettid()))]);
    stage.notes.ends(3, Opcode::Read as u32, false);
    stage.reader.meter.ring_waits();
    assert_eq!(stage.told.wait_for(2).len(), 2);
    stage.end();
}

/// Direct READs of a ring do not wake the watcher, however many there are: they would set the timer and stop it each time.
#[test]
fn many_requests_of_a_ring_leave_the_timer_and_wake_the_watcher_once_in_a_while() {
    let stage = Stage::new(true);
    let before = stage.sleeps();
    let since = Instant::now();
    while since.elapsed() < 3 * LIMIT {
        stage.reader.meter.ring_woke();
        stage.reader.meter.ring_waits();
    }
    let looks = stage.sleeps() - before;
    assert!((2..=24).contains(&looks), "{looks} looks, which are a quarter of the limit apart");
    // And where it is held then, it is told.
    stage.reader.meter.ring_woke();
    stage.notes.begins(3, &header(9, Opcode::Read));
    assert_eq!(stage.told.wait_for(1).len(), 1);
    stage.notes.ends(3, Opcode::Read as u32, false);
    stage.reader.meter.ring_waits();
    assert_eq!(stage.told.wait_for(2).len(), 2);
    thread::sleep(2 * LIMIT);
    let idle = stage.sleeps();
    thread::sleep(2 * LIMIT);
    assert_eq!(stage.sleeps(), idle, "an idle ring wakes nobody");
    stage.end();
}

#[test]
fn a_ring_whose_thread_is_held_is_told() {
    let stage = Stage::new(true);
    stage.reader.meter.ring_woke();
    stage.notes.begins(3, &header(9, Opcode::Open));
    assert_eq!(stage.told.wait_for(1), [(true, 9, Some(threads::gettid()))]);
    stage.notes.ends(3, Opcode::Open as u32, false);
    stage.reader.meter.ring_waits();
    assert_eq!(stage.told.wait_for(2).len(), 2);
    stage.end();
}

/// A sink that blocks when it is told that a request began.
#[derive(Debug)]
struct Blocking {
    is_told: mpsc::SyncSender<()>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl StallSink for Blocking {
    fn began(&self, _: &Stall) {
        self.is_told.send(()).unwrap();
        let _goes_on_anyway = self.goes_on.lock().recv_timeout(LONG);
    }

    fn ended(&self, _: &Stall) {}
}

/// The log may be on the mount itself: what the watcher waits for then is a request that another queue has to serve. It hung, for the watcher
/// held the lock of the notes, which a queue takes before it waits for requests.
#[test]
fn a_sink_that_blocks_holds_up_no_queue() {
    let gauges = Gauges::new(3).expect("a timer");
    let ((is_told, told), (go_on, goes_on)) = (mpsc::sync_channel(1), mpsc::channel());
    let sink = Arc::new(Blocking { is_told, goes_on: Mutex::new(goes_on) });
    let mut watch = StallWatch::new(LIMIT, sink);
    gauges.watch_stalls(watch.step);
    let stuck = Meter::new(&gauges, 0);
    stuck.notes(1).begins(0, &header(5, Opcode::Read));
    thread::scope(|scope| {
        let watched = &gauges;
        scope.spawn(move || {
            watch.look(watched);
            thread::sleep(LIMIT);
            watch.look(watched);
        });
        told.recv_timeout(LONG).expect("it is told");
        let (is_done, done) = mpsc::channel();
        scope.spawn(move || {
            for (index, is_ring) in [(1, true), (2, false)] {
                let meter = Meter::new(watched, index);
                let notes = meter.notes(1);
                if is_ring {
                    meter.ring_woke()
                } else {
                    meter.woke()
                }
                notes.begins(0, &header(6, Opcode::Getattr));
                meter.serves(7);
                notes.ends(0, Opcode::Getattr as u32, false);
                if is_ring {
                    meter.ring_waits()
                } else {
                    meter.waits()
                }
                is_done.send(()).unwrap();
            }
        });
        let is_served = || done.recv_timeout(LONG / 4).is_ok();
        let is_served = (is_served(), is_served());
        go_on.send(()).unwrap();
        assert_eq!(is_served, (true, true), "on a ring, and on a device");
    });
}

#[test]
fn nobody_is_told_where_nobody_asks() {
    let stage = Stage::new(false);
    stage.reader.meter.woke();
    stage.notes.begins(0, &header(9, Opcode::Open));
    thread::sleep(2 * LIMIT + LOOK);
    assert!(stage.told.0.lock().is_empty());
    stage.notes.ends(0, Opcode::Open as u32, false);
    stage.reader.meter.waits();
    stage.end();
}
