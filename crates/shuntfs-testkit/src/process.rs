//! A process seen from outside: memory, descriptors, wakeups, system calls.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{find, wait_for};

/// Sends a signal to a process by its number.
///
/// # Errors
/// There is no such process.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no such process number")?;
    Ok(kill_process(pid, signal)?)
}

/// Says whether a process runs: zombies do not count.
#[must_use]
pub fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z')))
}

/// Resident memory in bytes.
///
/// # Errors
/// The process is gone.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// Number of open descriptors.
///
/// # Errors
/// The process is gone.
pub fn descriptors(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// How often the threads of a process went to sleep of their own accord, summed; twice the same number means that
/// nobody woke up in between.
///
/// # Errors
/// The process is gone.
pub fn wakeups(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(status) = fs::read_to_string(thread?.path().join("status")) else { continue };
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += line.context("no count of switches")?.trim().parse::<u64>()?;
    }
    Ok(sum)
}

/// Counts the system calls of a process while it is followed.
#[derive(Debug)]
pub struct Tracer {
    pid: u32,
    threads: Vec<u32>,
    child: Child,
    table: tempfile::NamedTempFile,
}

impl Tracer {
    /// Starts to follow the threads of a process with `strace -c`; `None` where that is not available, with the reason. The
    /// thread that watches the queues is left out: its calls come by the clock, not by the request.
    ///
    /// # Errors
    /// strace cannot be started.
    pub fn follow(pid: u32) -> Result<Option<Self>> {
        let Some(strace) = find("strace") else {
            crate::skipped("the program strace is not installed");
            return Ok(None);
        };
        let table = tempfile::NamedTempFile::new()?;
        let threads = threads_of(pid)?;
        let mut child = Command::new(strace)
            .args(["-c", "-U", "calls,name"])
            .args(threads.iter().map(|thread| format!("--attach={thread}")))
            .arg("-o")
            .arg(table.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let attached = crate::limit::wait_until(Duration::from_secs(10), || {
            threads.iter().all(|thread| tracer_of(pid, *thread) != 0)
        });
        if !attached {
            drop(child.kill());
            drop(child.wait());
            crate::skipped("strace may not attach to a process here");
            return Ok(None);
        }
        Ok(Some(Self { pid, threads, child, table }))
    }

    /// Stops following and returns the number of calls by name.
    ///
    /// # Errors
    /// strace does not end, its table cannot be read, or a thread came meanwhile that was not followed.
    pub fn stop(mut self) -> Result<BTreeMap<String, u64>> {
        signal(self.child.id(), Signal::INT)?;
        if wait_for(&mut self.child, Duration::from_secs(20))?.is_none() {
            bail!("strace does not end");
        }
        if let Some(new) = threads_of(self.pid)?.iter().find(|thread| !self.threads.contains(thread)) {
            bail!("thread {new} came meanwhile, and its calls were not counted");
        }
        Ok(parse_table(&fs::read_to_string(self.table.path())?))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // It has ended already in the good case.
        drop(signal(self.child.id(), Signal::KILL));
        drop(self.child.wait());
    }
}

/// The threads whose calls count.
fn threads_of(pid: u32) -> Result<Vec<u32>> {
    let folder = format!("/proc/{pid}/task");
    let mut threads = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.trim() != "shunt-watch" {
            threads.push(entry.file_name().to_string_lossy().parse()?);
        }
    }
    Ok(threads)
}

fn tracer_of(pid: u32, thread: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

fn parse_table(text: &str) -> BTreeMap<String, u64> {
    let rows = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let calls = words.next()?.parse().ok()?;
        let name = words.next()?;
        (name != "total").then(|| (name.to_owned(), calls))
    });
    rows.collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn strace_tables() {
        let text = "    calls syscall\n--------- -------\n        3 read\n       12 pread64\n--------- ---\n       15 total\n";
        let table = parse_table(text);
        assert_eq!(table.len(), 2);
        assert_eq!(table["pread64"], 12);
    }

    #[test]
    fn our_own_process() {
        let pid = std::process::id();
        assert!(is_running(pid));
        assert!(resident_bytes(pid).unwrap() > 100_000);
        assert!(descriptors(pid).unwrap() >= 3);
        // Threads of other tests take their counts along when they end.
        let counts = || {
            let before = wakeups(pid).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            wakeups(pid).unwrap() > before
        };
        assert!((0..100).any(|_| counts()));
    }
}
