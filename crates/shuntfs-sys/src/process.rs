//! Another process, which is not a child, told from a later one with its number.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, test_kill_process};

use crate::{OsError, Result};

/// A process that is there, or was.
#[derive(Debug)]
pub struct Process(OwnedFd);

/// When a process was started, in ticks since the machine was; `None` where it is gone. No two processes have the same number and this.
#[must_use]
pub fn started(pid: u32) -> Option<u64> {
    field(pid, 22)?.parse().ok()
}

/// The process that started this one, or took it over; `None` where either has no number here.
#[must_use]
pub fn parent(pid: u32) -> Option<u32> {
    field(pid, 4)?.parse().ok().filter(|parent| *parent > 0)
}

/// A field of `/proc/PID/stat` by its number in proc(5), from the third on.
fn field(pid: u32, number: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second may have blanks, and ends with the last parenthesis.
    Some(stat.rsplit_once(") ")?.1.split(' ').nth(number.checked_sub(3)?)?.to_owned())
}

/// Whether there is a process with this number, in this process's namespace; one that only waits to be collected is there.
#[must_use]
pub fn is_there(pid: u32) -> bool {
    number(pid).is_some_and(|pid| test_kill_process(pid) != Err(OsError::SRCH))
}

/// A process's number, as system calls take it; 0 would mean other things.
pub(crate) fn number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw)
}

impl Process {
    /// The process with this number that was started then; `None` where it is gone.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit, ENOSYS before Linux 5.3.
    pub fn find(pid: u32, start: u64) -> Result<Option<Self>> {
        let Some(number) = number(pid) else { return Ok(None) };
        let held = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(held) => held,
            // EINVAL: it is the number of a thread.
            Err(OsError::SRCH | OsError::INVAL) => return Ok(None),
            Err(error) => return Err(error),
        };
        // Looked at while it is held: the number is not another's meanwhile.
        Ok((started(pid) == Some(start)).then_some(Self(held)))
    }

    /// Kills it.
    ///
    /// # Errors
    /// ESRCH where it is gone, EPERM where it is someone else's.
    pub fn kill(&self) -> Result<()> {
        pidfd_send_signal(&self.0, Signal::KILL)
    }
}

/// Readable when it has ended, all of its threads with it.
impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod test {
    use std::time::Duration;

    use super::*;
    use crate::event::wait_readable;

    #[test]
    fn a_process_is_told_from_another_with_its_number() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        let pid = child.id();
        let start = started(pid).expect("is there");
        assert!(Process::find(pid, start + 1).expect("a descriptor").is_none());
        let found = Process::find(pid, start).expect("a descriptor").expect("is there");
        assert_eq!(wait_readable(&[found.as_fd()], Some(Duration::ZERO)), Ok(false));
        found.kill().expect("is ours");
        assert_eq!(wait_readable(&[found.as_fd()], Some(Duration::from_secs(10))), Ok(true));
        assert!(is_there(pid));
        child.wait().expect("is a child");
        assert!(!is_there(pid) && !is_there(0) && !is_there(u32::MAX) && is_there(std::process::id()));
        assert!(Process::find(pid, start).expect("a descriptor").is_none());
        assert_eq!(
            (parent(std::process::id()), parent(0)),
            (Some(std::os::unix::process::parent_id()), None)
        );
        assert_eq!((started(0), Process::find(0, 0).expect("no process").is_none()), (None, true));
    }
}
