//! The time of single calls, each taken by itself: what one in a thousand takes does not show in a mean.
//!
//! The callers are threads of a child of ours (`--calls`), because a call into a mount that does not answer cannot be left. They
//! are in the class of the bench itself, and pinned only where the load is. Who computes beside them are threads of the same
//! child, but for the load `make`, whose owner is the bench.
//!
//! Each call is made so that it cannot be answered without the server: GETATTR is forced, LOOKUP and CREATE have a name that the mount
//! never saw, READ goes around the page cache, and OPEN always asks. What belongs to a call and is another request (closing) is
//! not in its time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, available_parallelism, scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use hdrhistogram::Histogram;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx, unlinkat};
use serde::{Deserialize, Serialize};

use crate::case::{Amount, Call, Calls, Load, Quantile};
use crate::cpu;
use crate::lower::write_noise;
use crate::probe;
use crate::process;
use crate::status;
use crate::stop::Stop;

/// Everything that is called, below the folder that the target shows.
const FOLDER: &str = "calls";

/// The names that are looked up, below that; the files themselves are empty.
const NAMES: &str = "names";

/// A block of a READ.
const BLOCK: u64 = 4096;

/// A file's length: what is small may be served otherwise than what is not.
const FILE_LEN: u64 = 1 << 20;

/// Until who computes is on the CPU that the kernel wants it on.
const SETTLE: Duration = Duration::from_millis(100);

/// So many calls are made before it is the next target's turn: a few milliseconds, in which a machine hardly changes.
const TURN: u64 = 100;

/// What a child measures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed {
    calls: Calls,
    /// That of the target; those of all targets, where one caller for each takes turns.
    folders: Vec<PathBuf>,
    /// Calls of each caller, at most.
    count: u64,
    time: Duration,
}

impl FromStr for Timed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

/// What the calls took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Times {
    /// All calls, those before the first that counts included.
    pub(crate) count: u64,
    /// The quantiles in microseconds, in the order of [`Quantile::ALL`].
    micros: [f64; Quantile::ALL.len()],
    /// Processor time of the caller for each call, in microseconds.
    pub(crate) cpu_micros: f64,
}

impl Times {
    /// Returns a quantile in microseconds.
    pub(crate) fn micros(&self, quantile: Quantile) -> f64 {
        self.micros[quantile as usize]
    }

    fn new(count: u64, nanos: &Histogram<u64>, cpu: Duration) -> Self {
        let micros = |quantile: Quantile| {
            let nanos = Duration::from_nanos(nanos.value_at_quantile(quantile.part()));
            nanos.as_secs_f64() * 1e6
        };
        let calls = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        Self { count, micros: Quantile::ALL.map(micros), cpu_micros: cpu.as_secs_f64() * 1e6 / calls }
    }
}

/// Puts the lower folder into the state that the calls start from.
pub(crate) fn prepare(calls: &Calls, lower: &Path, amount: &Amount) -> Result<()> {
    let folder = lower.join(FOLDER);
    fs::create_dir_all(folder.join(NAMES))?;
    for caller in 0..calls.callers {
        let file = folder.join(file_of(caller));
        if !file.exists() {
            write_noise(&file, FILE_LEN, u64::from(caller))?;
        }
        let made = folder.join(folder_of(caller));
        if made.exists() {
            fs::remove_dir_all(&made).context("cannot remove what was created")?;
        }
        fs::create_dir(&made)?;
    }
    let missing = |number: &u64| !folder.join(NAMES).join(name(*number)).exists();
    if calls.call == Call::Lookup && missing(&amount.names.saturating_sub(1)) {
        for number in 0..amount.names {
            fs::File::create(folder.join(NAMES).join(name(number)))?;
        }
    }
    Ok(())
}

/// Checks on the lower folder that each call did what it was timed for.
pub(crate) fn verify(calls: &Calls, lower: &Path, count: u64) -> Result<()> {
    let created = match calls.call {
        Call::Create => count,
        Call::File => 0,
        Call::GetAttr | Call::Lookup | Call::Read | Call::Open => return Ok(()),
    };
    let mut there = 0;
    for caller in 0..calls.callers {
        there += fs::read_dir(lower.join(FOLDER).join(folder_of(caller)))?.count();
    }
    if u64::try_from(there)? != created {
        bail!("{there} files are there after {count} calls of {}", calls.call.as_str());
    }
    Ok(())
}

/// Makes the calls in a child. On several targets each has a caller, who takes turns with the others.
///
/// # Errors
/// When one fails, or the child hangs.
pub(crate) fn measure(calls: &Calls, roots: &[&Path], amount: &Amount, stop: &Stop) -> Result<Vec<Times>> {
    let is_named = matches!(calls.call, Call::Lookup | Call::Create);
    let all = if is_named { amount.names } else { amount.calls };
    let count = (all / u64::from(calls.callers)).max(1);
    let time = amount.calling * u32::try_from(roots.len())?;
    let folders = roots.iter().map(|root| root.join(FOLDER)).collect();
    let timed = Timed { calls: *calls, folders, count, time };
    let mut command = Command::new("/proc/self/exe");
    command.args(["--calls", &serde_json::to_string(&timed)?]);
    let ended = process::run(&mut command, amount.limit, stop)?;
    if !ended.status.success() {
        bail!("{}", process::last_lines(&ended.stderr, &ended.stdout));
    }
    serde_json::from_str(&ended.stdout).with_context(|| format!("the callers said `{}`", ended.stdout.trim()))
}

/// Checks that a mount of ours got a request for each call: what nobody was asked for was answered from a cache.
///
/// # Errors
/// When it got fewer, or does not say.
pub(crate) fn check_requests(shunt: &str, root: &Path, call: Call, times: &Times, stop: &Stop) -> Result<()> {
    let requests = requests(&status::of(shunt, root, stop)?, call).context("no operations")?;
    if requests < times.count {
        bail!("{requests} requests for {} calls of {}", times.count, call.as_str());
    }
    Ok(())
}

/// Reads how many requests of a call came; one that never came is not named.
fn requests(status: &serde_json::Value, call: Call) -> Option<u64> {
    let all = status["session"]["ops"].as_object()?;
    Some(all.get(call.request()).and_then(|operation| operation["requests"].as_u64()).unwrap_or(0))
}

/// Makes the calls in this process and prints what they took.
///
/// # Errors
/// When one fails.
pub(crate) fn run(timed: &Timed) -> Result<()> {
    let times = match timed.folders.as_slice() {
        [folder] => vec![times(timed, folder)?],
        _ => times_in_turns(timed)?,
    };
    println!("{}", serde_json::to_string(&times)?);
    Ok(())
}

fn times(timed: &Timed, folder: &Path) -> Result<Times> {
    let cpus = available_parallelism().map_or(1, usize::from);
    let (load, count) = (timed.calls.load, timed.calls.callers);
    if load == Load::Pinned {
        probe::pin()?;
    }
    let computing = match load {
        Load::Idle | Load::Make => 0,
        Load::Computing => cpus,
        Load::Pinned => 1,
        Load::Four => 4,
    };
    let caller = |number| Caller::new(timed.calls.call, folder, number);
    let callers: Vec<Caller> = (0..count).map(caller).collect::<Result<_>>()?;
    let (over, start) = (AtomicBool::new(false), Barrier::new(callers.len()));
    let outcomes = scope(|scope| {
        for _ in 0..computing {
            scope.spawn(|| compute(&over));
        }
        if load != Load::Idle {
            sleep(SETTLE);
        }
        let callers: Vec<_> =
            callers.into_iter().map(|caller| scope.spawn(|| caller.call(timed, &start))).collect();
        let outcomes: Vec<_> = callers.into_iter().map(ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        outcomes
    });
    let (mut all, mut nanos, mut cpu) = (0, histogram()?, Duration::ZERO);
    for outcome in outcomes {
        let (count, of_one, cpu_of_one) = outcome.map_err(|_| anyhow!("a caller panicked"))??;
        all += count;
        cpu += cpu_of_one;
        nanos.add(of_one).context("cannot add histograms")?;
    }
    if nanos.is_empty() {
        bail!("the time was over before a call that counts");
    }
    Ok(Times::new(all, &nanos, cpu))
}

/// One thread calls on a target, then on the next one, in an order of each turn's own: whatever the machine does meanwhile, it does to all.
fn times_in_turns(timed: &Timed) -> Result<Vec<Times>> {
    let mut callers = Vec::new();
    for (number, folder) in (0..).zip(&timed.folders) {
        callers.push((Caller::new(timed.calls.call, folder, number)?, histogram()?, Duration::ZERO));
    }
    let mut order: Vec<usize> = (0..callers.len()).collect();
    let mut random = fastrand::Rng::with_seed(timed.count);
    let (begun, mut count) = (Instant::now(), 0);
    while count == 0 || (count < timed.count && begun.elapsed() < timed.time) {
        random.shuffle(&mut order);
        let turn = TURN.min(timed.count - count);
        for &place in &order {
            let (caller, nanos, cpu) = &mut callers[place];
            let cpu_before = cpu::of_this_thread();
            for at in count..count + turn {
                let took = caller.timed(at, timed)?;
                // The caches of this target are those of the one before; and in the first turn, what a server does once.
                if at >= count + turn / 10 && (count > 0 || turn == timed.count) {
                    nanos.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
                }
            }
            *cpu += cpu::of_this_thread().saturating_sub(cpu_before);
        }
        count += turn;
    }
    if callers.iter().any(|(_, nanos, _)| nanos.is_empty()) {
        bail!("the time was over before a call that counts");
    }
    Ok(callers.iter().map(|(_, nanos, cpu)| Times::new(count, nanos, *cpu)).collect())
}

/// Up to a minute in nanoseconds, in three digits; more counts as that.
fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("cannot make a histogram")
}

fn compute(over: &AtomicBool) {
    let mut state = 1_u64;
    while !over.load(Ordering::Relaxed) {
        for _ in 0..1000 {
            state = std::hint::black_box(state.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (state >> 29));
        }
    }
}

/// One thread that calls, with files of its own.
struct Caller {
    call: Call,
    number: u64,
    file: OwnedFd,
    folder: OwnedFd,
    page: Box<Page>,
}

/// What `O_DIRECT` wants its memory to be.
#[repr(align(4096))]
struct Page([u8; 4096]);

impl Caller {
    fn new(call: Call, all: &Path, number: u32) -> Result<Self> {
        let flags = match call {
            Call::Read => OFlags::RDONLY | OFlags::DIRECT,
            _ => OFlags::PATH,
        };
        let folder = match call {
            Call::Lookup => all.join(NAMES),
            Call::Create | Call::File => all.join(folder_of(number)),
            Call::GetAttr | Call::Read | Call::Open => all.to_owned(),
        };
        let open = |path: &Path, flags| openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty());
        Ok(Self {
            call,
            number: u64::from(number),
            file: open(&all.join(file_of(number)), flags).context("cannot open a caller's file")?,
            folder: open(&folder, OFlags::PATH).context("cannot open a caller's folder")?,
            page: Box::new(Page([0; 4096])),
        })
    }

    /// Calls until the count or the time is reached; how often, how long each took, and this thread's processor time for all.
    fn call(mut self, timed: &Timed, start: &Barrier) -> Result<(u64, Histogram<u64>, Duration)> {
        let mut nanos = histogram()?;
        start.wait();
        let (begun, cpu_before) = (Instant::now(), cpu::of_this_thread());
        let mut count = 0;
        while count == 0 || (count < timed.count && begun.elapsed() < timed.time) {
            let took = self.timed(count, timed)?;
            // What a server does once is over after the first calls: neither more than a few, nor for long.
            let first = count < timed.count / 20 && begun.elapsed() < timed.time / 10;
            count += 1;
            if !first {
                nanos.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            }
        }
        Ok((count, nanos, cpu::of_this_thread().saturating_sub(cpu_before)))
    }

    /// Makes a call of this number, and returns how long it took.
    fn timed(&mut self, count: u64, timed: &Timed) -> Result<Duration> {
        let at = if self.call == Call::Lookup { self.number * timed.count + count } else { count };
        self.once(at).with_context(|| format!("call {count} of {}", self.call.as_str()))
    }

    fn once(&mut self, at: u64) -> Result<Duration> {
        let name = match self.call {
            Call::Lookup | Call::Create | Call::File => name(at),
            Call::Open => file_of(u32::try_from(self.number)?),
            Call::GetAttr | Call::Read => String::new(),
        };
        let all = StatxFlags::BASIC_STATS;
        let started = Instant::now();
        match self.call {
            Call::GetAttr => {
                statx(&self.file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, all)?;
            }
            Call::Lookup => {
                statx(&self.folder, &name, AtFlags::STATX_DONT_SYNC, all)?;
            }
            Call::Create => {
                let file = self.create(&name)?;
                return Ok(closed_after(started.elapsed(), file));
            }
            Call::File => {
                let file = self.create(&name)?;
                let len = rustix::io::pwrite(&file, &self.page.0, 0)?;
                drop(file);
                let file = openat(&self.folder, &name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                let len_read = rustix::io::pread(&file, &mut self.page.0, 0)?;
                drop(file);
                unlinkat(&self.folder, &name, AtFlags::empty())?;
                if [len, len_read] != [self.page.0.len(); 2] {
                    bail!("{len} bytes were written, and {len_read} read");
                }
            }
            Call::Read => {
                let len = rustix::io::pread(&self.file, &mut self.page.0, at % (FILE_LEN / BLOCK) * BLOCK)?;
                if len != self.page.0.len() {
                    bail!("{len} bytes were read");
                }
            }
            Call::Open => {
                let file = openat(&self.folder, &name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                return Ok(closed_after(started.elapsed(), file));
            }
        }
        Ok(started.elapsed())
    }

    fn create(&self, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(openat(&self.folder, name, flags, Mode::from_raw_mode(0o644))?)
    }
}

/// Closes a file whose opening is over: that is a request of its own.
fn closed_after(took: Duration, file: OwnedFd) -> Duration {
    drop(file);
    took
}

fn file_of(caller: u32) -> String {
    format!("file.{caller}")
}

/// Where a caller creates files: callers in one folder would wait for each other in the kernel.
fn folder_of(caller: u32) -> String {
    format!("made.{caller}")
}

fn name(number: u64) -> String {
    format!("name.{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_a_known_distribution() {
        let mut nanos = histogram().unwrap();
        // 10,000 calls: 9,800 of 1 us, 190 of 50 us, nine of 2 ms, one of 30 ms.
        for (micros, count) in [(1, 9800), (50, 190), (2000, 9), (30_000, 1)] {
            nanos.record_n(micros * 1000, count).unwrap();
        }
        let times = Times::new(10_000, &nanos, Duration::from_millis(40));
        for (quantile, micros) in [
            (Quantile::P50, 1.0),
            (Quantile::P99, 50.0),
            (Quantile::P999, 50.0),
            (Quantile::Longest, 30_000.0),
        ] {
            let near = (times.micros(quantile) / micros - 1.0).abs() < 0.001;
            assert!(near, "{quantile:?}: {} and not {micros}", times.micros(quantile));
        }
        assert!((times.cpu_micros - 4.0).abs() < 1e-9, "{}", times.cpu_micros);
        nanos.record_n(2_000_000, 1).unwrap();
        assert!(
            (Times::new(10_001, &nanos, Duration::ZERO).micros(Quantile::P999) / 2000.0 - 1.0).abs() < 0.001
        );
    }

    #[test]
    fn what_takes_longer_than_the_histogram_is_still_counted() {
        let mut nanos = histogram().unwrap();
        nanos.saturating_record(u64::MAX);
        assert!(Times::new(1, &nanos, Duration::ZERO).micros(Quantile::Longest) >= 60e6);
    }

    #[test]
    fn a_child_is_told_in_one_word_and_answers_in_one() {
        let calls = Calls { call: Call::Lookup, callers: 8, load: Load::Pinned };
        let timed = Timed { calls, folders: vec!["/a b:c".into()], count: 7, time: Duration::from_millis(3) };
        assert_eq!(serde_json::to_string(&timed).unwrap().parse(), Ok(timed));
        assert!("7:/a".parse::<Timed>().is_err());
        let times = Times { count: 3, micros: [0.5, 1.0, 1.5, 2.25], cpu_micros: 0.25 };
        assert_eq!(serde_json::from_str::<Times>(&serde_json::to_string(&times).unwrap()).unwrap(), times);
    }

    #[test]
    fn requests_are_read_from_a_status() {
        let said = serde_json::json!({"session": {"ops": {"GETATTR": {"requests": 7, "errors": 1}}}});
        assert_eq!(requests(&said, Call::GetAttr), Some(7));
        assert_eq!(requests(&said, Call::Open), Some(0));
        assert_eq!(requests(&serde_json::Value::Null, Call::Open), None);
    }

    /// Every kind of call, on a folder without a server: as often as it was asked for, each name once.
    #[test]
    fn every_call_is_made_as_often_as_asked() {
        let lower = tempfile::tempdir().unwrap();
        let amount = Amount::TINY;
        for call in Call::ALL {
            for (callers, load) in [(1, Load::Idle), (2, Load::Computing)] {
                let calls = Calls { call, callers, load };
                prepare(&calls, lower.path(), &amount).unwrap();
                let folder = lower.path().join(FOLDER);
                let count = amount.names / u64::from(callers);
                let timed = Timed { calls, folders: Vec::new(), count, time: amount.calling };
                let times = times(&timed, &folder).unwrap();
                assert_eq!(times.count, amount.names, "{calls:?}");
                assert!(times.micros.is_sorted() && times.micros[0] > 0.0, "{calls:?}: {times:?}");
                assert!(times.cpu_micros > 0.0, "{calls:?}: {times:?}");
                verify(&calls, lower.path(), times.count).unwrap();
                if call == Call::Create {
                    let more = verify(&calls, lower.path(), times.count + 1);
                    assert!(more.is_err(), "a call that made nothing is found");
                }
            }
        }
    }

    #[test]
    fn calls_end_with_the_time_and_with_an_error() {
        let lower = tempfile::tempdir().unwrap();
        let calls = Calls { call: Call::GetAttr, callers: 2, load: Load::Four };
        prepare(&calls, lower.path(), &Amount::TINY).unwrap();
        let folder = lower.path().join(FOLDER);
        let time = Duration::from_millis(20);
        let timed = Timed { calls, folders: Vec::new(), count: u64::MAX, time };
        assert!(times(&timed, &folder).unwrap().count > 0);
        // The second name of a caller is there already.
        let calls = Calls { call: Call::Create, ..calls };
        fs::write(folder.join(folder_of(1)).join(name(1)), "").unwrap();
        let error = format!("{:#}", times(&Timed { calls, ..timed }, &folder).unwrap_err());
        assert!(error.contains("call 1 of create"), "{error}");
    }

    /// Every call on two targets: each gets as many as the other, on files of its own.
    #[test]
    fn targets_get_as_many_calls_in_turns() {
        let lower = tempfile::tempdir().unwrap();
        let folders = vec![lower.path().join(FOLDER); 2];
        for call in Call::ALL.into_iter().chain([Call::File]) {
            let calls = Calls { call, callers: 2, load: Load::Idle };
            prepare(&calls, lower.path(), &Amount::TINY).unwrap();
            let count = Amount::TINY.names / 2;
            let timed = Timed { calls, folders: folders.clone(), count, time: Duration::from_secs(60) };
            let times = times_in_turns(&timed).unwrap();
            assert_eq!(times.iter().map(|times| times.count).collect::<Vec<_>>(), [count; 2], "{call:?}");
            assert!(times.iter().all(|times| times.micros(Quantile::P50) > 0.0), "{call:?}: {times:?}");
            verify(&calls, lower.path(), count * 2).unwrap();
            if call == Call::File {
                fs::write(folders[0].join(folder_of(1)).join(name(0)), "").unwrap();
                assert!(verify(&calls, lower.path(), count * 2).is_err(), "a file that is left is found");
                assert!(times_in_turns(&timed).is_err(), "it is in the way");
            }
        }
    }
}
