//! Parts of cached files, mapped to be looked at without a copy.
//!
//! Others may cut a file while a part of it is mapped, and a disk may fail: whoever looks at a page that is gone gets SIGBUS.
//! Inside of a [`Window`] he gets zeroes instead, and hears of it when he asks [`Window::is_whole`], which he must before he
//! believes what he saw. Bytes may also change while they are looked at, as those of a read may between two reads.
//!
//! # Safety
//! A window owns its mapping, which is never written through, and is listed in [`SLOTS`] for as long as its bytes can be
//! borrowed. The handler touches nothing but that list, and the mappings that are in it: with mmap(2) alone, at their own places.
#![expect(unsafe_code, reason = "mappings are made by address, and rustix has no handlers of signals")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::data::read_at_cached;

/// Windows at the same time, of all threads together. Who finds no place reads.
const SLOTS_MAX: usize = 64;

static SLOTS: [Slot; SLOTS_MAX] = [const { Slot::new() }; SLOTS_MAX];

/// Where a window is.
struct Slot {
    /// Its address; [`FREE`], or [`TAKEN`] before it has one.
    start: AtomicUsize,
    len: AtomicUsize,
    is_cut: AtomicBool,
}

const FREE: usize = 0;
const TAKEN: usize = 1;

/// A part of a file in memory, to be read only.
#[derive(Debug)]
pub struct Window {
    start: NonNull<u8>,
    len: usize,
    slot: &'static Slot,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only read.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `len` bytes of a file from `offset` on, where they are cached. `None` where they are not, or cannot be mapped:
    /// they are to be read, then, which says what is wrong.
    pub fn of_cached(file: impl AsFd, offset: u64, len: usize) -> Option<Self> {
        let last = offset.checked_add(len.checked_sub(1)? as u64)?;
        if read_at_cached(&file, &mut [0], last) != Ok(1) || !is_guarded() {
            return None;
        }
        let taken = |slot: &&Slot| {
            slot.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let slot = SLOTS.iter().find(taken)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let mapped = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, offset) };
        let Some(start) = mapped.ok().and_then(|start| NonNull::new(start.cast::<u8>())) else {
            slot.start.store(FREE, Ordering::Release);
            return None;
        };
        slot.len.store(len, Ordering::Relaxed);
        slot.is_cut.store(false, Ordering::Relaxed);
        slot.start.store(start.as_ptr().addr(), Ordering::Release);
        let window = Self { start, len, slot };
        // All pages in one call, where each would be a fault by itself.
        // SAFETY: the mapping is the window's.
        let there = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateRead) };
        there.is_ok().then_some(window)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is this long, and stays for as long as the window is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Whether every byte that was looked at so far was the file's.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.slot.is_cut.load(Ordering::Acquire)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Another window may have the address as soon as this one has not.
        self.slot.start.store(TAKEN, Ordering::Release);
        // SAFETY: the mapping is the window's, and nobody borrows it any more.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a window's own mapping: {unmapped:?}");
        self.slot.start.store(FREE, Ordering::Release);
    }
}

impl Slot {
    const fn new() -> Self {
        Self { start: AtomicUsize::new(FREE), len: AtomicUsize::new(0), is_cut: AtomicBool::new(false) }
    }

    /// Puts zeroes in the place of the window, if the address is in it.
    fn cuts(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Relaxed);
        if start <= TAKEN || !(start..start + len).contains(&address) {
            return false;
        }
        self.is_cut.store(true, Ordering::Release);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let at = ptr::with_exposed_provenance_mut(start);
        // SAFETY: these pages are a window's, whose owner is in this handler, or in the middle of looking at them.
        let zeroes = unsafe { libc::mmap(at, len, libc::PROT_READ, flags, -1, 0) };
        zeroes != libc::MAP_FAILED
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Slot").field("is_cut", &self.is_cut).finish_non_exhaustive()
    }
}

/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Whether SIGBUS comes to the handler; installs it the first time.
fn is_guarded() -> bool {
    static GUARDED: OnceLock<bool> = OnceLock::new();
    *GUARDED.get_or_init(|| {
        let mut before = MaybeUninit::uninit();
        // SAFETY: asks only, and fills the structure where it succeeds.
        let failed = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) };
        if failed != 0 {
            return false;
        }
        // SAFETY: filled by the call.
        BEFORE.get_or_init(|| unsafe { before.assume_init() });
        // SAFETY: a structure of integers, for which zeroes are valid.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        let handler: extern "C" fn(c_int, *const libc::siginfo_t, *const c_void) = on_bus_error;
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the handler calls nothing that a handler must not (see the module's text).
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0 }
    })
}

extern "C" fn on_bus_error(signal: c_int, info: *const libc::siginfo_t, _: *const c_void) {
    // SAFETY: the kernel hands the handler a filled structure.
    let code = unsafe { (*info).si_code };
    // Others than the kernel send no address.
    if code > 0 {
        // SAFETY: a SIGBUS of the kernel's has an address.
        let address = unsafe { (*info).si_addr() }.addr();
        if SLOTS.iter().any(|slot| slot.cuts(address)) {
            return;
        }
    }
    // Not ours: what was to come, comes.
    if let Some(before) = BEFORE.get() {
        // SAFETY: puts back what was there.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
        // SAFETY: raise(3) may be called by a handler.
        unsafe { libc::raise(signal) };
    }
}

#[cfg(test)]
mod test {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    const LEN: usize = 1 << 20;

    fn file() -> File {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8 + 1).collect();
        file.write_all(&bytes).unwrap();
        file
    }

    #[test]
    fn what_is_cached_is_seen() {
        let file = file();
        let Some(window) = Window::of_cached(&file, 4096, LEN - 4096) else {
            println!("SKIPPED: the kernel fills no mappings at once, or keeps nothing here");
            return;
        };
        assert!(window.bytes().iter().zip(4096..).all(|(byte, at)| *byte == (at % 251) as u8 + 1));
        assert!(window.is_whole());
        assert!(Window::of_cached(&file, 0, LEN + 1).is_none(), "the file ends before");
        assert!(Window::of_cached(&file, 4096, 0).is_none());
    }

    #[test]
    fn a_file_that_is_cut_is_noticed_and_kills_nobody() {
        let (file, other) = (file(), file());
        let (Some(window), Some(kept)) =
            (Window::of_cached(&file, 0, LEN), Window::of_cached(&other, 0, LEN))
        else {
            println!("SKIPPED: the kernel fills no mappings at once, or keeps nothing here");
            return;
        };
        assert_eq!(window.bytes()[LEN - 1], ((LEN - 1) % 251) as u8 + 1);
        file.set_len(5000).unwrap();
        assert!(window.is_whole(), "nobody has looked");
        assert_eq!(std::hint::black_box(window.bytes())[LEN - 1], 0);
        assert!(!window.is_whole());
        drop(window);
        assert!(kept.is_whole());
        assert_eq!(kept.bytes()[LEN - 1], ((LEN - 1) % 251) as u8 + 1);
    }

    #[test]
    fn there_are_so_many_windows_at_most() {
        let file = file();
        let windows: Vec<_> = (0..2 * SLOTS_MAX).map_while(|_| Window::of_cached(&file, 0, 4096)).collect();
        assert!(windows.len() <= SLOTS_MAX);
        assert!(windows.iter().all(|window| window.bytes()[0] == 1));
    }
}
