//! Threads and the CPUs they run on.

use std::ffi::CStr;
use std::io::Write;
use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::thread::CpuSet;

use crate::sched::{Class, is_light, set_class};
use crate::{OsError, Result};

/// Names the first thread of this process, which is what `ps` and `pkill` call the process; 15 bytes of it count. Where the calling thread
/// is not the first one, that one alone is named.
pub fn set_process_name(name: &CStr) {
    // No name that is a string is refused.
    let _named = rustix::thread::set_name(name);
}

/// Keeps the calling thread on one CPU.
///
/// # Errors
/// EINVAL where the CPU does not exist, is offline, or is not among those this process may use.
pub fn pin_to_cpu(cpu: usize) -> Result<()> {
    Cpus::one(cpu).ok_or(OsError::INVAL).and_then(|cpus| spread_over(&cpus))
}

/// How many CPUs this machine can ever have, offline ones included: the kernel's `num_possible_cpus()`.
#[must_use]
pub fn possible_cpus() -> u32 {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    listed.ok().and_then(|list| count(list.trim())).unwrap_or_else(|| {
        let online = std::thread::available_parallelism().map_or(1, usize::from);
        u32::try_from(online).unwrap_or(u32::MAX)
    })
}

/// The CPUs of this machine that are online now; every possible one where that is not told.
#[must_use]
pub fn online_cpus() -> Vec<usize> {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/online");
    let ranges = listed.ok().and_then(|list| ranges(list.trim()));
    let ranges = ranges.unwrap_or_else(|| vec![0..=possible_cpus().saturating_sub(1)]);
    ranges.into_iter().flatten().map(|cpu| cpu as usize).collect()
}

/// The CPUs of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineCpus {
    /// How many it can ever have: [`possible_cpus`].
    pub possible: usize,
    /// Those that are online: [`online_cpus`].
    pub online: Vec<usize>,
}

impl MachineCpus {
    /// Those of this machine, now.
    #[must_use]
    pub fn now() -> Self {
        Self { possible: possible_cpus() as usize, online: online_cpus() }
    }
}

/// How many CPUs a list such as `0-3,8` names.
fn count(list: &str) -> Option<u32> {
    let len = |range: &RangeInclusive<u32>| range.end().checked_sub(*range.start())?.checked_add(1);
    ranges(list)?.iter().try_fold(0_u32, |total, range| total.checked_add(len(range)?))
}

/// The ranges of a list such as `0-3,8`.
fn ranges(list: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').map(range).collect()
}

/// The CPU that the calling thread runs on at the moment.
#[must_use]
pub fn current_cpu() -> usize {
    rustix::thread::sched_getcpu()
}

/// Lets the calling thread run on all CPUs that `from` names.
///
/// # Errors
/// EINVAL where none of them is there.
pub fn spread_over(from: &Cpus) -> Result<()> {
    rustix::thread::sched_setaffinity(None, &from.0)
}

/// Moves the calling thread off a CPU, where it may run on another one; it may come back later.
///
/// # Errors
/// What sched_getaffinity(2) and sched_setaffinity(2) give.
pub fn leave_cpu(cpu: usize) -> Result<()> {
    if current_cpu() != cpu || cpu >= CpuSet::MAX_CPU {
        return Ok(());
    }
    let home = allowed_cpus()?;
    let mut others = home.0;
    others.unset(cpu);
    if others.count() == 0 {
        return Ok(());
    }
    rustix::thread::sched_setaffinity(None, &others)?;
    spread_over(&home)
}

/// A set of CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpus(CpuSet);

impl Cpus {
    /// One CPU alone; `None` where no machine has so many.
    #[must_use]
    pub fn one(cpu: usize) -> Option<Self> {
        let mut set = CpuSet::new();
        (cpu < CpuSet::MAX_CPU).then(|| set.set(cpu)).map(|()| Self(set))
    }

    /// Whether a CPU is one of them.
    #[must_use]
    pub fn has(&self, cpu: usize) -> bool {
        cpu < CpuSet::MAX_CPU && self.0.is_set(cpu)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::try_from(self.0.count()).unwrap_or(usize::MAX)
    }
}

/// Lets a thread run on all CPUs that `cpus` names.
///
/// # Errors
/// EINVAL where none of them is there or allowed, ESRCH where the thread is gone.
pub fn spread(tid: u32, cpus: &Cpus) -> Result<()> {
    rustix::thread::sched_setaffinity(Some(pid_of(tid)?), &cpus.0)
}

fn pid_of(tid: u32) -> Result<rustix::thread::Pid> {
    i32::try_from(tid).ok().and_then(rustix::thread::Pid::from_raw).ok_or(OsError::SRCH)
}

/// The CPUs that the calling thread may run on.
///
/// # Errors
/// What sched_getaffinity(2) gives.
pub fn allowed_cpus() -> Result<Cpus> {
    rustix::thread::sched_getaffinity(None).map(Cpus)
}

/// The CPUs that a thread may run on, of any process.
///
/// # Errors
/// What sched_getaffinity(2) gives.
pub fn allowed_cpus_of(tid: u32) -> Result<Cpus> {
    rustix::thread::sched_getaffinity(Some(pid_of(tid)?)).map(Cpus)
}

/// Lets the calling thread run where the process's first thread may, and takes it out of the light class where that one is not in it:
/// both are inherited from whoever started it.
///
/// # Errors
/// What sched_setaffinity(2) gives; EPERM where the class is not to be left.
pub fn follow_first() -> Result<()> {
    let first = std::process::id();
    spread_over(&allowed_cpus_of(first)?)?;
    if is_light(gettid()) && !is_light(first) { set_class(gettid(), Class::Normal) } else { Ok(()) }
}

/// The threads that the kernel keeps for the rings of this process, where an operation would wait (io-wq).
#[must_use]
pub fn ring_workers() -> Vec<u32> {
    let tids = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let is_worker = |path: &std::path::Path| {
        std::fs::read(path.join("comm")).is_ok_and(|name| name.starts_with(b"iou-wrk-"))
    };
    tids.filter(|entry| is_worker(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The CPU that a thread of any process ran on last; `None` where it is gone or not visible.
#[must_use]
pub fn last_cpu_of(tid: u32) -> Option<usize> {
    let mut text = [0_u8; STAT_LEN];
    processor(stat_of(tid, &mut text)?)
}

/// Whether a thread of any process runs, or waits for a CPU to run on; `None` where it is gone or not visible.
#[must_use]
pub fn is_runnable(tid: u32) -> Option<bool> {
    let mut text = [0_u8; STAT_LEN];
    stat_of(tid, &mut text).and_then(after_name).map(|fields| fields.starts_with(" R"))
}

/// What a thread of any process is called (`comm`), as bytes that it chose itself; `None` where it is gone or not visible. Takes no hold of the
/// process's memory, so whoever serves its requests may ask.
#[must_use]
pub fn name_of(tid: u32) -> Option<Vec<u8>> {
    let mut text = [0_u8; STAT_LEN];
    let name = about(tid, "comm", &mut text)?;
    Some(name.strip_suffix(b"\n").unwrap_or(name).to_vec())
}

/// The process that a thread is one of; `None` where it is gone or not visible.
#[must_use]
pub fn process_of(tid: u32) -> Option<u32> {
    let mut text = [0_u8; STAT_LEN];
    let text = about(tid, "status", &mut text)?;
    // A name has no line end in it as it is written there.
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Tgid:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Whether a thread is one of a process's.
#[must_use]
pub fn is_of_process(tid: u32, pid: u32) -> bool {
    tid == pid || std::fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false)
}

/// The function of the kernel that a thread sleeps in; `None` where it does not sleep, or that is not told.
#[must_use]
pub fn waits_in(tid: u32) -> Option<String> {
    let mut text = [0_u8; STAT_LEN];
    let name = std::str::from_utf8(about(tid, "wchan", &mut text)?).ok()?.trim();
    (!name.is_empty() && name != "0").then(|| name.to_owned())
}

/// The functions of the kernel that a thread is in, the innermost first, as far as there is room; `None` where that is not told, as to who is not
/// root.
#[must_use]
pub fn kernel_stack_of(tid: u32) -> Option<Vec<String>> {
    let mut text = [0_u8; STAT_LEN];
    let text = String::from_utf8_lossy(about(tid, "stack", &mut text)?).into_owned();
    // `[<0>] name+0x1/0x2`; the last line may be cut.
    let name = |line: &str| Some(line.split_once("] ")?.1.split_once('+')?.0.to_owned());
    let names: Vec<String> = text.lines().filter_map(name).collect();
    (!names.is_empty()).then_some(names)
}

/// The threads of this process that hang in the kernel, each with the function that it sleeps in: those that nothing wakes but what they wait for,
/// as on a disk that hangs, and those whose name begins with one of `named`, if they wait for anything else than work.
#[must_use]
pub fn hanging_threads(named: &[&str]) -> Vec<(u32, String)> {
    /// What waits for work, or for other threads, sleeps in these.
    const IDLE: [&str; 2] = ["futex", "io_wq_worker"];
    let tids = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let tids = tids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let hangs = |tid: u32| {
        let mut text = [0_u8; STAT_LEN];
        let state = after_name(stat_of(tid, &mut text)?)?.trim_start().chars().next()?;
        let function = waits_in(tid);
        let name = name_of(tid)?;
        let is_named = named.iter().any(|start| name.starts_with(start.as_bytes()));
        let is_busy = function.as_ref().is_some_and(|it| IDLE.iter().all(|idle| !it.contains(idle)));
        (state == 'D' || is_named && is_busy).then(|| (tid, function.unwrap_or_default()))
    };
    tids.filter_map(hangs).collect()
}

/// What a thread did in its life.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct CpuTimes {
    /// How long it ran.
    pub ran: Duration,
    /// How long it was ready to run and had no CPU. What waits now counts once it runs.
    pub waited: Duration,
    /// How often it began to run on a CPU.
    pub turns: u64,
}

/// How long and how often a thread of any process has run, and how long it waited for a CPU. `None` where it is gone or not visible, or the kernel does not count
/// (`CONFIG_SCHED_INFO`).
#[must_use]
pub fn cpu_times(tid: u32) -> Option<CpuTimes> {
    let mut text = [0_u8; STAT_LEN];
    let text = std::str::from_utf8(about(tid, "schedstat", &mut text)?).ok()?;
    let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse().ok());
    let (ran, waited, turns) = (numbers.next()?, numbers.next()?, numbers.next()?);
    Some(CpuTimes { ran: Duration::from_nanos(ran), waited: Duration::from_nanos(waited), turns })
}

/// Enough for all fields of a thread's `stat`.
const STAT_LEN: usize = 512;

fn stat_of(tid: u32, text: &mut [u8; STAT_LEN]) -> Option<&[u8]> {
    about(tid, "stat", text)
}

/// The text of one of a thread's files in `/proc`. No allocation: this is called between requests.
fn about<'t>(tid: u32, name: &str, text: &'t mut [u8; STAT_LEN]) -> Option<&'t [u8]> {
    // That of the thread alone: in `/proc/TID/stat` the kernel sums all threads of the process up.
    let mut path = [0_u8; 48];
    write!(&mut path[..], "/proc/{tid}/task/{tid}/{name}\0").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // No lower file, so no call that a test has fail.
    let len = rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut *text, 0)).ok()?;
    text.get(..len)
}

/// The 39th field.
fn processor(stat: &[u8]) -> Option<usize> {
    after_name(stat)?.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

/// The fields from the third on; the second, in parentheses, may hold anything.
fn after_name(stat: &[u8]) -> Option<&str> {
    let end = stat.iter().rposition(|byte| *byte == b')')? + 1;
    std::str::from_utf8(stat.get(end..)?).ok()
}

/// The calling thread's number.
#[must_use]
pub fn gettid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_thread_leaves_a_cpu_where_there_is_another() {
        let home = allowed_cpus().expect("affinity");
        if home.0.count() > 1 {
            for _ in 0..20 {
                let cpu = current_cpu();
                pin_to_cpu(cpu).expect("affinity");
                assert_eq!(leave_cpu(cpu), Ok(()), "there is no other");
                assert_eq!(current_cpu(), cpu);
                spread_over(&home).expect("affinity");
                leave_cpu(cpu).expect("affinity");
                assert_eq!(allowed_cpus().expect("affinity"), home);
            }
        }
        assert_eq!(leave_cpu(usize::MAX), Ok(()));
    }

    #[test]
    fn a_pinned_thread_is_where_it_was_pinned_to() {
        let all = allowed_cpus().expect("affinity");
        for cpu in 0..possible_cpus() as usize {
            if pin_to_cpu(cpu).is_ok() {
                std::thread::yield_now();
                assert_eq!(last_cpu_of(gettid()), Some(cpu));
            }
        }
        spread_over(&all).expect("affinity");
        assert_eq!(last_cpu_of(u32::MAX), None);
        let odd = b"7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 5 0";
        assert_eq!(processor(odd), Some(5));
    }

    #[test]
    fn the_running_are_told_from_the_sleeping() {
        assert_eq!(is_runnable(gettid()), Some(true));
        assert_eq!(is_runnable(u32::MAX), None);
        let (told, tells) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            told.send(gettid()).unwrap();
            let _over = ended.recv();
        });
        let tid = tells.recv().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(is_runnable(tid), Some(false));
        drop(end);
        sleeper.join().unwrap();
    }

    #[test]
    fn a_thread_tells_its_name_and_what_it_waits_in() {
        let (told, tells) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let named = std::thread::Builder::new().name("a name\n".into());
        let sleeper = named.spawn(move || {
            told.send(gettid()).unwrap();
            let _over = ended.recv();
        });
        let tid = tells.recv().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(name_of(tid).as_deref(), Some(&b"a name\n"[..]));
        assert!(is_of_process(tid, std::process::id()) && !is_of_process(tid, 1));
        assert_eq!((process_of(tid), process_of(u32::MAX)), (Some(std::process::id()), None));
        match waits_in(tid) {
            Some(function) => assert!(function.contains("futex"), "{function}"),
            None => println!("SKIPPED: this kernel does not tell what a thread waits in (CONFIG_KALLSYMS)"),
        }
        if let Some(stack) = kernel_stack_of(tid) {
            assert!(stack.iter().any(|name| name.contains("futex")), "{stack:?}");
        }
        assert!(hanging_threads(&["a name"]).iter().all(|(one, _)| *one != tid), "it waits for work");
        drop(end);
        sleeper.unwrap().join().unwrap();
        assert_eq!((name_of(u32::MAX), waits_in(u32::MAX), kernel_stack_of(u32::MAX)), (None, None, None));
    }

    #[test]
    fn a_thread_waits_for_a_cpu_that_another_one_has() {
        if cpu_times(gettid()).is_none() {
            return println!("SKIPPED: this kernel does not count how long threads wait (CONFIG_SCHED_INFO)");
        }
        let cpu = current_cpu();
        let both = std::sync::Arc::new(std::sync::Barrier::new(2));
        let compute = move |barrier: std::sync::Arc<std::sync::Barrier>| {
            pin_to_cpu(cpu).unwrap();
            barrier.wait();
            let before = cpu_times(gettid()).unwrap();
            let until = std::time::Instant::now() + Duration::from_millis(200);
            while std::time::Instant::now() < until {}
            let after = cpu_times(gettid()).unwrap();
            (after.ran - before.ran, after.waited - before.waited)
        };
        let other = std::sync::Arc::clone(&both);
        let other = std::thread::spawn(move || compute(other));
        let (one, other) = (std::thread::spawn(move || compute(both)).join().unwrap(), other.join().unwrap());
        let (ran, waited) = (one.0 + other.0, one.1 + other.1);
        assert!(ran >= Duration::from_millis(20), "{ran:?} of 400 ms for one CPU");
        assert!(waited >= Duration::from_millis(100), "{waited:?} of 400 ms for one CPU");
        assert!(cpu_times(u32::MAX).is_none());
        let before = cpu_times(gettid()).unwrap().turns;
        std::thread::sleep(Duration::from_millis(1));
        assert!(cpu_times(gettid()).unwrap().turns > before);
    }

    #[test]
    fn counts_lists_of_cpus() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-3"), Some(4));
        assert_eq!(count("0-3,8-11,64"), Some(9));
        for broken in ["", "a", "3-1", "0-", "0-4294967295"] {
            assert_eq!(count(broken), None, "{broken:?}");
        }
        assert!(possible_cpus() >= 1);
        let online = online_cpus();
        assert!(online.contains(&current_cpu()) && online.len() <= possible_cpus() as usize, "{online:?}");
    }

    #[test]
    fn a_pinned_thread_stays() {
        std::thread::spawn(|| {
            let cpu = current_cpu();
            pin_to_cpu(cpu).unwrap();
            assert_eq!(current_cpu(), cpu);
            assert_eq!(pin_to_cpu(1 << 20), Err(OsError::INVAL));
        })
        .join()
        .unwrap();
    }
}
