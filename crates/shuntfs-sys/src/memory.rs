//! Giving freed memory back to the system.
//!
//! # Safety
//! The one call takes no pointers.
#![expect(unsafe_code, reason = "the allocator's own call has no safe form")]

/// Gives memory that was freed, and that the allocator keeps for later, back to the system. Takes time that grows
/// with the heap, so it is for moments when much was freed. Does nothing where the allocator is not glibc's.
pub fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: `malloc_trim` may be called at any time from any thread; 0 is how much to leave at the top.
        let _gave = unsafe { libc::malloc_trim(0) };
    }
}
