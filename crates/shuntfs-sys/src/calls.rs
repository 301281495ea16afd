//! What a thread is about by the number of the system call that it is in, as `/proc/PID/task/TID/syscall` tells it.

/// What a system call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Waits {
    /// Another thread or process, time, or whatever descriptors tell of: nothing that a disk has a part in.
    Beside,
    /// Bytes of its first argument, a descriptor.
    ToRead,
    /// A file system, or what is not known here.
    Below,
}

/// Calls of all platforms that are [`Waits::Beside`].
const BESIDE: &[i64] = &[
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_sched_yield,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// Those that newer platforms do without.
#[cfg(target_arch = "x86_64")]
const BESIDE_TOO: &[i64] = &[libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait, libc::SYS_pause];
#[cfg(not(target_arch = "x86_64"))]
const BESIDE_TOO: &[i64] = &[];

/// What the call with this number waits for, if it waits.
#[must_use]
pub fn waits(number: i64) -> Waits {
    if BESIDE.contains(&number) || BESIDE_TOO.contains(&number) {
        Waits::Beside
    } else if number == libc::SYS_read || number == libc::SYS_readv {
        Waits::ToRead
    } else {
        Waits::Below
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_a_disk_has_a_part_in_is_told_from_the_rest() {
        assert_eq!(waits(libc::SYS_futex), Waits::Beside);
        assert_eq!(waits(libc::SYS_ppoll), Waits::Beside);
        assert_eq!(waits(libc::SYS_read), Waits::ToRead);
        assert_eq!(waits(libc::SYS_pread64), Waits::Below);
        assert_eq!(waits(libc::SYS_statx), Waits::Below);
        assert_eq!(waits(i64::MAX), Waits::Below);
    }
}
