//! What XFS says of an inode by its number alone.
//!
//! # Safety
//! The kernel is given one request of its own layout (`struct xfs_bulkstat_req`, `fs/xfs/libxfs/xfs_fs.h`) with room for the one inode that it
//! asks for.
#![expect(unsafe_code, reason = "ioctl has no safe form")]

use std::os::fd::AsFd;

use crate::{OsError, Result, faults, raw};

/// `XFS_IOC_BULKSTAT`, since Linux 5.3.
const BULKSTAT: u32 = 0x8040_587f;

/// `struct xfs_bulk_ireq`, and one `struct xfs_bulkstat` behind it.
#[repr(C)]
struct Request {
    inode: u64,
    flags: u32,
    room: u32,
    count: u32,
    group: u32,
    reserved: [u64; 5],
    found: Found,
}

/// `struct xfs_bulkstat`, as far as it is read here.
#[repr(C)]
struct Found {
    inode: u64,
    /// Size, blocks, flags, and four times.
    before: [u64; 7],
    generation: u32,
    after: [u32; 31],
}

const _: () = assert!(size_of::<Request>() == 64 + 192);

/// The generation of the inode with this number on the XFS that an open file is on. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// ESTALE where there is no such inode, ENOTTY on other file systems, EPERM without the capability, else what XFS gives.
pub fn xfs_generation(on: impl AsFd, inode: u64) -> Result<u32> {
    faults::point()?;
    let found = Found { inode: 0, before: [0; 7], generation: 0, after: [0; 31] };
    let mut request = Request { inode, flags: 0, room: 1, count: 0, group: 0, reserved: [0; 5], found };
    let argument = &raw mut request;
    // SAFETY: the request has room for as many inodes as it says, and other file systems refuse the command before they look at it.
    let asked = unsafe { raw::ioctl(on.as_fd(), BULKSTAT, argument.cast()) };
    match asked {
        // It is told of the next one where there is none with this number, and of none behind the last.
        Ok(_) if request.count == 1 && request.found.inode == inode => Ok(request.found.generation),
        Ok(_) | Err(OsError::INVAL) => Err(OsError::STALE),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn others_than_xfs_have_no_such_answer() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(xfs_generation(&file, 2), Err(OsError::NOTTY));
    }
}
