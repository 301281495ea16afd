//! The memory of the process as a whole: giving back what was freed, keeping the rest where it is, and files that lie in it.
//!
//! # Safety
//! `malloc_trim` takes no pointers. Pages of the program are brought in by address, which changes no byte of them.
#![expect(
    unsafe_code,
    reason = "the allocator's own call has no safe form, and pages are brought in by address"
)]

use std::collections::HashSet;
use std::ffi::{CStr, c_void};
use std::fs::File;
use std::ops::Range;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{Advice, MlockAllFlags, madvise, mlockall, munlockall};

use crate::caps::{Cap, has_effective};
use crate::{OsError, Result, limits};

/// Gives memory that was freed, and that the allocator keeps for later, back to the system. Takes time that grows
/// with the heap, so it is for moments when much was freed. Does nothing where the allocator is not glibc's.
pub fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: `malloc_trim` may be called at any time from any thread; 0 is how much to leave at the top.
        let _gave = unsafe { libc::malloc_trim(0) };
    }
}

/// Keeps the memory of this process from being paged out: what it has used so far, and the program with its libraries as a whole. Where
/// there is no limit for it, what is used later, too. Memory that was reserved and not used stays unused. A child made by
/// fork(2) has nothing locked, as mlock(2) says, and neither has the program after exec.
///
/// # Errors
/// ENOMEM where the address space is larger than RLIMIT_MEMLOCK, EPERM where that is 0; nothing is locked then.
pub fn lock_memory() -> Result<()> {
    let mut flags = MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT;
    // Under a limit, an allocation that goes beyond it would fail.
    if limits::memlock().is_none() || has_effective(Cap::IpcLock) {
        flags |= MlockAllFlags::FUTURE;
    }
    mlockall(flags)?;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for range in program(&maps) {
        let start = std::ptr::without_provenance_mut::<c_void>(range.start);
        // SAFETY: the range is a mapping of this process, and to have its pages read changes nothing. Before Linux 5.14 that is
        // refused, and a page comes in when it is used.
        let _brought_in = unsafe { madvise(start, range.len(), Advice::LinuxPopulateRead) };
    }
    Ok(())
}

/// Lets the memory of this process be paged out again, whoever had locked it.
pub fn unlock_memory() {
    // It fails for nobody.
    let _unlocked = munlockall();
}

/// A file in memory that has no name below, empty and close-on-exec; `name` is for whoever looks at `/proc/PID/fd`.
///
/// # Errors
/// EMFILE at the descriptor limit, ENOMEM.
pub fn file_in_memory(name: &CStr) -> Result<File> {
    // Linux 6.3 complains where it is not said that no program lies in it; older ones do not know the flag.
    let made = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL);
    let made = match made {
        Err(OsError::INVAL) => memfd_create(name, MemfdFlags::CLOEXEC),
        made => made,
    };
    made.map(File::from)
}

/// Where the program and its libraries are mapped, by `/proc/PID/maps`: every private mapping of a file of which some part is code.
fn program(maps: &str) -> Vec<Range<usize>> {
    let mappings: Vec<Mapping<'_>> = maps.lines().filter_map(Mapping::read).collect();
    let code = mappings.iter().filter(|mapping| mapping.permissions.contains('x'));
    let files: HashSet<&str> = code.map(|mapping| mapping.path).collect();
    let own = mappings.into_iter().filter(|Mapping { permissions, path, .. }| {
        permissions.starts_with('r') && permissions.ends_with('p') && files.contains(path)
    });
    own.map(|mapping| mapping.range).collect()
}

/// A line of `/proc/PID/maps`: addresses, permissions, offset, device, inode and path.
struct Mapping<'m> {
    range: Range<usize>,
    permissions: &'m str,
    path: &'m str,
}

impl<'m> Mapping<'m> {
    /// `None` for what is no file.
    fn read(line: &'m str) -> Option<Self> {
        let path = &line[line.find('/')?..];
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let address = |digits| usize::from_str_radix(digits, 16).ok();
        Some(Self { range: address(start)?..address(end)?, permissions: fields.next()?, path })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_program_is_what_lies_in_files_with_code() {
        let maps = "1000-2000 r--p 00000000 fd:00 12 /bin/a program\n\
                    2000-3000 r-xp 00001000 fd:00 12 /bin/a program\n\
                    3000-4000 ---p 00002000 fd:00 12 /bin/a program\n\
                    4000-5000 rw-p 00000000 00:00 0\n\
                    5000-6000 r--p 00000000 fd:00 13 /var/data\n\
                    6000-7000 r-xs 00000000 fd:00 14 /lib/shared\n\
                    7000-8000 r-xp 00000000 00:00 0 [vdso]\n";
        assert_eq!(program(maps), [0x1000..0x2000, 0x2000..0x3000]);
        let own = std::fs::read_to_string("/proc/self/maps").expect("procfs");
        assert!(!program(&own).is_empty());
    }
}
