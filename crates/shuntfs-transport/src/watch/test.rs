use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::meter::{LOOK, Meter};
use crate::readers::Reader;

const SHORT: f64 = 4.0;

fn watcher(readers: usize) -> (Watcher, Vec<Reader>) {
    let gauges = Gauges::new(readers).expect("a timer");
    let all = Readers::new(readers);
    let may = May { lighten: false, pin: false };
    let members = (0..readers).map(|index| all.reader(Meter::new(&gauges, index))).collect();
    let watcher = Watcher::new(&gauges, &all, may);
    (watcher, members)
}

/// What a thread does between two looks: it serves so many requests, of so many callers in turns.
fn serve(reader: &Reader, requests: u32, callers: u32, has_more: bool) {
    for request in 0..requests {
        reader.meter.waits();
        reader.meter.woke();
        reader.meter.serves(1_000_000 + request % callers);
    }
    reader.has_more(has_more);
}

fn may_change() -> bool {
    let may = sched::may_change_class();
    if !may {
        println!("SKIPPED: CAP_SYS_NICE is missing");
    }
    may
}

/// The names of one caller are no load, however soon they come: it waits for each answer. With one CPU for the only caller of data and one for
/// the reader, a second reader took the caller's: a disk without contents lost a quarter of its operations by a second queue.
#[test]
fn load_calls_a_second_reader_where_there_is_room_for_it() {
    for (cpus, callers, has_more, is_called) in [
        (2, 1, false, false),
        (8, 1, false, false),
        (2, 1, true, false),
        (3, 1, true, true),
        (1, 2, true, true),
        (2, 4, true, true),
        (8, 2, false, false),
    ] {
        let (mut watcher, readers) = watcher(2);
        watcher.cpus = cpus;
        assert!(readers[0].stand_by());
        for look in 0..CALL {
            assert_eq!(watcher.readers.try_lock().expect("free").at_work(), 1, "after {look} looks");
            serve(&readers[0], 64, callers, has_more);
            watcher.look(SHORT);
        }
        assert_eq!(
            watcher.readers.try_lock().expect("free").at_work() == 2,
            is_called,
            "{cpus} CPUs, {callers} callers, more: {has_more}"
        );
    }
}

#[test]
fn a_reader_with_nothing_to_do_is_told_to_leave_and_the_last_one_is_not() {
    let (mut watcher, readers) = watcher(2);
    assert!(readers[0].stand_by());
    readers[0].goes_away();
    assert!(readers[1].stand_by());
    readers[0].rests(true, || ());
    for _ in 0..LEAVE {
        serve(&readers[0], 64, 1, false);
        assert!(!readers[1].leaves());
        watcher.look(SHORT);
    }
    assert!(!readers[0].leaves() && readers[1].leaves());
    for _ in 0..LEAVE * 2 {
        watcher.look(SHORT);
    }
    assert!(!readers[0].leaves());
}

/// A regression: who was called because another one blocks below had stood by for long, was told to leave for that, and nobody read.
#[test]
fn who_is_called_in_the_place_of_another_stays() {
    let (mut watcher, readers) = watcher(2);
    assert!(readers[0].stand_by());
    for _ in 0..2 * LEAVE {
        serve(&readers[0], 64, 1, false);
        watcher.look(SHORT);
    }
    readers[0].goes_away();
    assert!(readers[1].stand_by());
    for _ in 0..2 * LEAVE {
        watcher.look(SHORT);
        assert!(!readers[1].leaves());
    }
}

#[test]
fn a_reader_that_serves_one_request_for_long_is_replaced() {
    let (mut watcher, readers) = watcher(2);
    assert!(readers[0].stand_by());
    readers[0].meter.waits();
    for _ in 0..2 * STUCK {
        watcher.look(SHORT);
    }
    assert_eq!(watcher.readers.try_lock().expect("free").at_work(), 1, "it waits for a request");
    readers[0].meter.woke();
    for look in 0..=STUCK {
        assert_eq!(watcher.readers.try_lock().expect("free").at_work(), 1, "after {look} looks");
        let is_watched = watcher.look(SHORT);
        assert!(is_watched || look == STUCK, "it is forgotten after {look} looks");
    }
    assert_eq!(watcher.readers.try_lock().expect("free").at_work(), 2);
    assert!(readers[1].stand_by());
    readers[0].rests(true, || ());
    assert_eq!(watcher.readers.try_lock().expect("free").reading().count(), 2);
}

#[test]
fn a_lone_reader_runs_where_its_caller_does_until_there_are_more() {
    let (mut watcher, readers) = watcher(2);
    let home = threads::allowed_cpus().expect("affinity");
    watcher.may.pin = true;
    // The reader's thread, whose CPU is chosen, is another one.
    let (told, tells) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        told.send(threads::gettid()).unwrap();
        let _over = ended.recv();
    });
    let tid = tells.recv().unwrap();
    *watcher.gauges.all[0].tid.lock() = tid;
    assert!(readers[0].stand_by());
    let mut cpus = |has_more: bool| {
        serve(&readers[0], 64, 1, has_more);
        watcher.look(SHORT);
        if readers[0].is_to_follow() {
            readers[0].follow(std::process::id());
            assert!(!readers[0].is_to_follow(), "once for each time that the watcher looks");
        }
        threads::allowed_cpus_of(tid).expect("it lives")
    };
    assert_eq!(cpus(false).count(), 1);
    assert_eq!(cpus(true), home);
    assert_eq!(cpus(false).count(), 1);
    readers[0].goes_away();
    assert_eq!(cpus(false), home, "another one reads, too");
    drop(end);
    thread.join().unwrap();
}

/// A thread that counts `served` more requests between two looks, is always ready to run, and waited so many milliseconds of the four for
/// its CPU, while its caller ran.
fn queue_of(looks: u32, served: fn(u32) -> u64, waits: u64) -> (Watched, u32) {
    // That caller does not sleep.
    queue_beside(looks, served, waits, 1)
}

/// The same beside a caller that began to run so many times between two looks.
fn queue_beside(looks: u32, served: fn(u32) -> u64, waits: u64, turns: u64) -> (Watched, u32) {
    let queue = thread::spawn(move || {
        let gauge = Gauge::default();
        *gauge.tid.lock() = threads::gettid();
        let (mut queue, mut helped) = (Watched::new(), 0);
        for look in 0..looks {
            gauge.served.fetch_add(served(look), Ordering::Relaxed);
            let waited = Duration::from_millis(u64::from(look) * waits);
            let ran =
                Duration::from_millis(u64::from(look) * (4 - waits)) + Duration::from_nanos(look.into());
            let of_queue = CpuTimes { ran, waited, turns: u64::from(look) };
            let of_caller = CpuTimes { ran: waited, waited: Duration::ZERO, turns: u64::from(look) * turns };
            helped += u32::from(queue.sees(&gauge, of_queue, of_caller));
        }
        assert_eq!(sched::is_light(threads::gettid()), queue.light);
        (queue, helped)
    });
    queue.join().unwrap()
}

impl Watched {
    /// One look at a thread that runs or is ready to.
    fn sees(&mut self, gauge: &Gauge, of_queue: CpuTimes, of_caller: CpuTimes) -> bool {
        self.look(gauge, SHORT, |_, caller| {
            let share = caller.map(|caller| Share { of_queue, caller, of_caller: Some(of_caller) });
            Seen { runs: true, share }
        });
        self.settle(gauge)
    }
}

fn busy_queue(looks: u32, served: fn(u32) -> u64) -> (Watched, u32) {
    queue_of(looks, served, 0)
}

#[test]
fn a_busy_queue_is_light_until_it_has_been_calm_for_a_while() {
    if may_change() {
        assert!(!busy_queue(100, |_| 7).0.light);
        assert!(busy_queue(1, |_| 8).0.light);
        // Requests that are served before each look: it does not starve.
        assert!(busy_queue(200, |look| if look % 2 == 0 { 8 } else { 0 }).0.light);
        assert!(!busy_queue(1 + CALM, |look| if look == 0 { 8 } else { 0 }).0.light);
    }
}

/// Unpacking an archive asks for much below between two requests: a queue that was made normal for that had each of its wakeups on another CPU,
/// and the archive took up to three times as long.
#[test]
fn a_queue_that_serves_little_and_waits_for_nothing_stays_light() {
    if may_change() {
        assert!(busy_queue(500, |look| if look % (CALM - 1) == 0 { 8 } else { 0 }).0.light);
        assert!(
            !queue_beside(2 + STARVING, |look| if look == 0 { 8 } else { 0 }, 3, 0).0.light,
            "beside its caller, which computes"
        );
    }
}

/// Who asks an io_uring again and again whether a page is there never sleeps, and the light queue beside it that was to bring the page had
/// half its speed, however many requests it served.
#[test]
fn a_busy_queue_that_waits_for_its_cpu_most_of_the_time_is_not_light() {
    if may_change() {
        assert!(queue_of(1 + STARVING, |_| 1000, 3).0.light, "what it waited before counts for nothing");
        assert!(!queue_of(2 + STARVING, |_| 1000, 3).0.light);
        assert!(queue_of(500, |_| 1000, 2).0.light, "half of the time");
    }
}

/// A regression: the kernel counts a wait when it ends, so a queue that had no CPU for a long time seemed not to wait, and each such wait lasted until
/// the queue had been calm for 60 ms.
#[test]
fn a_queue_that_waits_for_its_cpu_all_the_time_is_not_light() {
    if may_change() {
        let queue = thread::spawn(|| {
            let gauge = Gauge::default();
            *gauge.tid.lock() = threads::gettid();
            gauge.served.store(1000, Ordering::Relaxed);
            let (mut queue, still) = (Watched::new(), CpuTimes::default());
            for look in 0..2 + STARVING {
                assert_eq!(queue.light, look > 0);
                queue.sees(&gauge, still, still);
            }
            queue.light
        });
        assert!(!queue.join().unwrap());
    }
}

/// What a caller does between two requests is no work of others: GNU tar takes half of the time, and the queue that served it was made normal again
/// and again, whereupon each waited for the other on another CPU.
#[test]
fn a_queue_that_waits_for_the_turns_of_its_caller_stays_light() {
    if may_change() {
        assert!(queue_beside(500, |_| 100, 3, 100).0.light);
        assert!(queue_beside(500, |_| 100, 3, 50).0.light, "half of the requests were not waited for");
        assert!(!queue_beside(2 + STARVING, |_| 100, 3, 49).0.light);
    }
}

/// A queue beside somebody who never sleeps starves whenever it is light: a regression, for it was made light again every 400 ms.
#[test]
fn a_queue_that_starves_again_and_again_is_left_alone_ever_longer() {
    if may_change() {
        let (queue, helped) = queue_beside(10_000, |look| if look % 3 == 0 { 8 } else { 0 }, 4, 0);
        assert!((5..=8).contains(&helped), "helped {helped} times");
        assert_eq!(queue.next_hold, HOLD_MAX);
    }
}

/// How often a thread of this process has gone to sleep.
fn sleeps_of(tid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// Starts a watcher, and gives its thread, which sleeps.
fn watched(watcher: Watcher) -> (u32, thread::JoinHandle<()>) {
    let (told, tells) = mpsc::channel();
    let thread = thread::spawn(move || {
        told.send(threads::gettid()).unwrap();
        watcher.run();
    });
    let tid = tells.recv().unwrap();
    while threads::is_runnable(tid) == Some(true) {
        thread::sleep(Duration::from_millis(1));
    }
    (tid, thread)
}

/// A regression: one request in 100 ms kept the watcher at 250 looks a second, and later woke it three times.
#[test]
fn a_trickle_of_requests_does_not_wake_the_watcher_and_many_do() {
    let (watcher, readers) = watcher(1);
    assert!(readers[0].stand_by());
    let (tid, thread) = watched(watcher);
    let before = sleeps_of(tid);
    for _ in 0..40 {
        readers[0].meter.woke();
        readers[0].meter.serves(7);
        readers[0].meter.waits();
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(sleeps_of(tid), before);
    for _ in 0..40 {
        readers[0].meter.woke();
        readers[0].meter.serves(7);
        readers[0].meter.waits();
    }
    thread::sleep(LOOK * (QUIET + 10));
    let looks = sleeps_of(tid) - before;
    assert!((2..=u64::from(2 * QUIET + 12)).contains(&looks), "{looks} looks after a burst");
    drop(readers);
    thread.join().unwrap();
}

#[test]
fn a_lone_request_that_takes_long_wakes_the_watcher() {
    let (watcher, readers) = watcher(2);
    let roles = Arc::clone(&watcher.readers);
    assert!(readers[0].stand_by());
    let (_, thread) = watched(watcher);
    readers[0].meter.woke();
    let patience = Instant::now() + Duration::from_secs(10);
    while roles.try_lock().is_none_or(|state| state.at_work() < 2) {
        assert!(Instant::now() < patience, "nobody is called");
        thread::sleep(LOOK);
    }
    drop(readers);
    thread.join().unwrap();
}
