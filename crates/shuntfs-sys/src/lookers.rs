//! Callers of our own, each on a CPU of its choice: they ask a file system for its size, and wait for the answer as any caller does.
//!
//! # Safety
//! They are threads of a child, not of this process: one that waits for an answer cannot be killed, and must not keep this process from
//! dying. The child is forked from a process with threads, so it does nothing but make system calls, on memory that was prepared before. It has
//! no descriptors: a caller that held the device of the mount that it waits for would wait forever where every server is gone.
#![expect(unsafe_code, reason = "there is no safe fork, and no safe thread without the C library's books")]

use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::raw::check;
use crate::region::Region;
use crate::{OsError, Result};

/// The child whose threads wait.
#[derive(Debug)]
pub struct Lookers(Pid);

/// What one thread needs.
struct Order {
    path: *const libc::c_char,
    /// Its CPU, as a set.
    cpu: Box<[u64]>,
}

const STACK: usize = 16 << 10;
const CPUS_MAX: usize = 1 << 13;

/// Has the file system at `path` asked for its size, so many times on each of these CPUs, at the same time. A CPU on which this process may
/// not run is left out.
///
/// # Errors
/// Those of a fork; EINVAL for a path with a NUL, or a CPU that cannot be.
pub fn look(path: &Path, wanted: &[(usize, usize)]) -> Result<Lookers> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| OsError::INVAL)?;
    let mut orders = Vec::new();
    for &(cpu, count) in wanted {
        if cpu >= CPUS_MAX {
            return Err(OsError::INVAL);
        }
        orders.extend((0..count).map(|_| {
            let mut set = vec![0_u64; cpu / 64 + 1];
            set[cpu / 64] = 1 << (cpu % 64);
            Order { path: path.as_ptr(), cpu: set.into() }
        }));
    }
    let stacks = Region::reserve(STACK * orders.len().max(1))?;
    let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
    let none: libc::c_long = 0;
    // SAFETY: without CLONE_VM the child has memory of its own, and does nothing there that takes a lock.
    let forked = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    let pid = check(forked)?;
    if pid == 0 {
        in_child(&orders, &stacks);
    }
    i32::try_from(pid).ok().and_then(Pid::from_raw).map(Lookers).ok_or(OsError::SRCH)
}

impl Lookers {
    /// Whether all of them have their answers.
    #[must_use]
    pub fn are_done(&self) -> bool {
        !matches!(waitpid(Some(self.0), WaitOptions::NOHANG), Ok(None))
    }
}

fn in_child(orders: &[Order], stacks: &Region) -> ! {
    // The table is the parent's until here, and this child's own, and empty, from here on.
    // SAFETY: takes no pointer.
    let alone = unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, CLOSE_RANGE_UNSHARE) };
    for (place, order) in orders.iter().enumerate() {
        if alone != 0 {
            break;
        }
        let flags =
            libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
        let top = stacks.start().as_ptr().wrapping_add((place + 1) * STACK);
        let order = std::ptr::from_ref(order).cast_mut().cast::<c_void>();
        // SAFETY: each has a stack of its own, and orders and stacks live until the last of them has ended, as nothing frees them here.
        let _made = unsafe { libc::clone(look_once, top.cast(), flags, order) };
    }
    // SAFETY: ends this thread, and the child with its last one.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("exit returns nothing")
}

/// `CLOSE_RANGE_UNSHARE`.
const CLOSE_RANGE_UNSHARE: libc::c_uint = 1 << 1;

extern "C" fn look_once(order: *mut c_void) -> c_int {
    // SAFETY: an order, which lives as long as the child.
    let order = unsafe { &*order.cast::<Order>() };
    let len = size_of_val::<[u64]>(&order.cpu);
    // SAFETY: the set is so long.
    let placed = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, len, order.cpu.as_ptr()) };
    if placed == 0 {
        let mut answer = [0_u64; 64];
        // SAFETY: the path ends with a NUL, and the answer has more room than `struct statfs`.
        let _asked = unsafe { libc::syscall(libc::SYS_statfs, order.path, answer.as_mut_ptr()) };
    }
    // SAFETY: ends this thread alone.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    0
}

#[cfg(test)]
mod test {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn they_look_and_are_gone() {
        let cpus = crate::threads::online_cpus();
        let wanted: Vec<_> = cpus.iter().map(|cpu| (*cpu, 5)).chain([(CPUS_MAX - 1, 1)]).collect();
        let lookers = look(Path::new("/proc"), &wanted).expect("forks");
        let end = Instant::now() + Duration::from_secs(10);
        while !lookers.are_done() {
            assert!(Instant::now() < end, "they hang");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(look(Path::new("/proc"), &[(CPUS_MAX, 1)]).err(), Some(OsError::INVAL));
        assert_eq!(look(Path::new("a\0b"), &[]).err(), Some(OsError::INVAL));
    }
}
