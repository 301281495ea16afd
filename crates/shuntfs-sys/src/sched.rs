//! Which class of the kernel's scheduler a thread is in.
#![expect(unsafe_code, reason = "rustix has no sched_setscheduler(2)")]

use std::ffi::c_int;

use crate::caps::{Cap, has_effective};
use crate::raw::last_error;
use crate::{OsError, Result};

/// A class of threads without real-time demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// As threads usually are (`SCHED_OTHER`).
    Normal,
    /// Everybody else goes first (`SCHED_IDLE`), and a CPU on which only such threads run counts as idle.
    Light,
}

/// Puts a thread of this process into a class.
///
/// # Errors
/// ESRCH where the thread is gone; EPERM on the way from `Light` to `Normal` without `CAP_SYS_NICE`.
pub fn set_class(tid: u32, class: Class) -> Result<()> {
    let policy = match class {
        Class::Normal => libc::SCHED_OTHER,
        Class::Light => libc::SCHED_IDLE,
    };
    let tid = c_int::try_from(tid).map_err(|_| OsError::SRCH)?;
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter is read during the call alone.
    let done = unsafe { libc::sched_setscheduler(tid, policy, &raw const param) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// Whether threads of the calling thread's kind may go to `Light` and come back: it is in the normal class itself
/// (nobody chose another for the whole process), and has `CAP_SYS_NICE`, which the way back needs. In a user namespace that is not
/// enough, so a thread tries it.
#[must_use]
pub fn may_change_class() -> bool {
    let there_and_back = || {
        let tid = crate::threads::gettid();
        set_class(tid, Class::Light).and_then(|()| set_class(tid, Class::Normal)).is_ok()
    };
    policy_of(0) == libc::SCHED_OTHER
        && has_effective(Cap::SysNice)
        && std::thread::spawn(there_and_back).join().unwrap_or(false)
}

/// Whether a thread of any process is in the light class; false where it is gone.
#[must_use]
pub fn is_light(tid: u32) -> bool {
    c_int::try_from(tid).is_ok_and(|tid| policy_of(tid) == libc::SCHED_IDLE)
}

fn policy_of(tid: c_int) -> c_int {
    // SAFETY: no memory is passed.
    unsafe { libc::sched_getscheduler(tid) }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::threads::gettid;

    #[test]
    fn a_thread_goes_to_light_and_back() {
        std::thread::spawn(|| {
            if !may_change_class() {
                eprintln!("SKIPPED: CAP_SYS_NICE is not to be had");
                return;
            }
            set_class(gettid(), Class::Light).unwrap();
            assert!(is_light(gettid()));
            assert!(!may_change_class(), "a class of its own is somebody's choice");
            set_class(gettid(), Class::Normal).unwrap();
            assert!(!is_light(gettid()));
        })
        .join()
        .unwrap();
        assert_eq!(set_class(0x3fff_ffff, Class::Light), Err(OsError::SRCH));
    }
}
