//! Numbers of the protocol that belong to no single operation.

/// Major version of the protocol.
pub const MAJOR: u32 = 7;

/// The minor version that this crate knows whole: Linux 7.3.
pub const MINOR: u32 = 46;

/// The minor version to answer INIT with, where the kernel said `offered`: its own from 45 on, and 45 to those before, which take the
/// smaller of the two themselves. The kernel asks it only whether it is above numbers that are long past (`fs/fuse`, Linux 7.3).
#[must_use]
pub const fn minor_answered(offered: u32) -> u32 {
    if offered < MINOR { 45 } else { MINOR }
}

/// The least that a buffer for `read` on the device must hold, in bytes, whatever `max_write` is.
pub const MIN_READ_BUFFER: usize = 8192;

/// Set in a request's `unique` when the kernel sends it again after [`crate::Notification::Resend`]. The reply must
/// carry it too.
pub const UNIQUE_RESEND: u64 = 1 << 63;

/// Set in the `unique` of an INTERRUPT; without it the number is the interrupted request's.
pub const UNIQUE_INTERRUPT: u64 = 1;

/// `uid` and `gid` of requests that create nothing, once [`crate::InitFlags::ALLOW_IDMAP`] was agreed to.
pub const INVALID_ID: u32 = u32::MAX;

/// `end` of a lock that reaches to the end of the file.
pub const LOCK_END_OF_FILE: u64 = i64::MAX.cast_unsigned();
