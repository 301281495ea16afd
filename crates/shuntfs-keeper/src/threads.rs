//! What the threads of a server do, as the kernel tells: for the log, and to judge why nobody reads.
//!
//! Only files of procfs are read that wait for no lock of the process's memory, which a dying or stuck process may hold.

use std::fmt;
use std::fs;

/// Of more threads nothing is told.
const THREADS_MAX: usize = 64;
/// Of deeper stacks the outer part is left out.
const FRAMES_MAX: usize = 24;

/// A thread, as far as it may be looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) name: String,
    /// As in `/proc/PID/stat`: R, S, D, T, t, Z and others.
    pub(crate) state: Option<char>,
    /// Where it sleeps in the kernel.
    pub(crate) waits_in: Option<String>,
    /// The system call that it is in, with its first argument.
    pub(crate) call: Option<Call>,
    /// What the kernel does for it, inmost first. Root alone may see it.
    pub(crate) stack: Vec<String>,
}

/// A system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    pub(crate) number: i64,
    pub(crate) first: u64,
}

/// The threads of a process; none where it is gone.
pub(crate) fn threads_of(pid: u32) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let numbers = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    numbers.take(THREADS_MAX).map(|tid| look(pid, tid)).collect()
}

fn look(pid: u32, tid: u32) -> Thread {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).unwrap_or_default();
    Thread {
        tid,
        name: read("comm").trim_end().to_owned(),
        state: state(&read("stat")),
        waits_in: Some(read("wchan")).filter(|name| !name.is_empty() && name != "0"),
        call: call(&read("syscall")),
        stack: frames(&read("stack")),
    }
}

/// The name before it may have parentheses and blanks.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// None where the thread runs, or waits outside of a call (-1), as for a page.
fn call(text: &str) -> Option<Call> {
    let mut fields = text.split_whitespace();
    let number = fields.next()?.parse::<i64>().ok().filter(|number| *number >= 0)?;
    let first = fields.next().and_then(|first| u64::from_str_radix(first.strip_prefix("0x")?, 16).ok());
    Some(Call { number, first: first? })
}

/// `[<0>] name+0x1/0x2` a line.
fn frames(stack: &str) -> Vec<String> {
    let names = stack.lines().filter_map(|line| line.split_whitespace().last());
    names.take(FRAMES_MAX).map(|name| name.split('+').next().unwrap_or(name).to_owned()).collect()
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.tid, self.name, self.state.unwrap_or('?'))?;
        if let Some(place) = &self.waits_in {
            write!(f, " in {place}")?;
        }
        if let Some(Call { number, .. }) = self.call {
            write!(f, ", call {number}")?;
        }
        if !self.stack.is_empty() {
            write!(f, ", stack {}", self.stack.join(" < "))?;
        }
        Ok(())
    }
}

/// Writes them to the log.
pub(crate) fn log(threads: &[Thread]) {
    for thread in threads {
        tracing::error!("thread {thread}");
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_procfs_says_of_a_thread_is_read() {
        assert_eq!(state("12 (a) b) D 1 12 12"), Some('D'));
        assert_eq!(state(""), None);
        assert_eq!(call("202 0x7f00 0x80 0x0 0x7ffc 0x7f3f\n"), Some(Call { number: 202, first: 0x7f00 }));
        assert_eq!(call("running\n"), None);
        assert_eq!(call("-1 0x7ffc 0x7f3f\n"), None);
        let stack = "[<0>] futex_wait+0x60/0x90\n[<0>] do_futex+0x1/0x2\n";
        assert_eq!(frames(stack), ["futex_wait", "do_futex"]);
        assert_eq!(frames(&"[<0>] f+0x1/0x2\n".repeat(100)).len(), FRAMES_MAX);
    }

    #[test]
    fn a_thread_that_waits_is_described() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waits = std::thread::Builder::new().name("waits".into()).spawn(move || ended.recv());
        let named = || threads_of(std::process::id()).into_iter().find(|thread| thread.name == "waits");
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while named().is_none_or(|thread| thread.state != Some('S')) {
            assert!(std::time::Instant::now() < limit, "{:?}", named());
            std::thread::yield_now();
        }
        let text = named().expect("it waits").to_string();
        assert!(text.contains(" waits: S"), "{text}");
        drop(end);
        assert!(waits.expect("starts").join().expect("no panic").is_err());
    }
}
