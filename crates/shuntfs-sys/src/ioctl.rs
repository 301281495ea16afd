//! The ioctls that a server passes on to lower files: attributes and labels, nothing that takes pointers or acts on a
//! whole file system.
//!
//! # Safety
//! Every command passed on reads and writes at most `ROOM` bytes behind its argument, which is a buffer of our own.
#![expect(unsafe_code, reason = "ioctl has no safe form")]

use std::os::fd::AsFd;

use crate::{OsError, Result, faults, raw};

/// What FS_IOC_GETFSLABEL writes, the longest of all.
const ROOM: usize = 256;

/// One command that is passed on.
struct Allowed {
    /// The numbers that callers use: of a 64-bit program, then of a 32-bit one.
    numbers: [u32; 2],
    /// How many bytes go in and come out.
    len: usize,
}

/// The kernel's numbers say `long` for the first four, but what travels is an `int`.
const ALLOWED: [Allowed; 6] = [
    // FS_IOC_GETFLAGS, FS_IOC32_GETFLAGS
    Allowed { numbers: [0x8008_6601, 0x8004_6601], len: 4 },
    // FS_IOC_SETFLAGS. Not FS_IOC32_SETFLAGS: the kernel turns that of a 32-bit program into the other one and checks
    // who asks (fs/ioctl.c); what still comes with that number was sent by a 64-bit program and checked by nobody.
    Allowed { numbers: [0x4008_6602; 2], len: 4 },
    // FS_IOC_GETVERSION, FS_IOC32_GETVERSION
    Allowed { numbers: [0x8008_7601, 0x8004_7601], len: 4 },
    // FS_IOC_FSGETXATTR
    Allowed { numbers: [0x801c_581f; 2], len: 28 },
    // FS_IOC_FSSETXATTR
    Allowed { numbers: [0x401c_5820; 2], len: 28 },
    // FS_IOC_GETFSLABEL
    Allowed { numbers: [0x8100_9431; 2], len: ROOM },
];

/// Passes an ioctl on to an open lower file. `data` holds the argument and takes the answer, and is as long as the
/// command's number says.
///
/// # Errors
/// ENOTTY for a command that is not passed on and where the lower file system does not know it, EINVAL where `data` is
/// too short, else the file system's own.
pub fn file_ioctl(fd: impl AsFd, command: u32, data: &mut [u8]) -> Result<i32> {
    faults::point()?;
    let allowed = ALLOWED.iter().find(|allowed| allowed.numbers.contains(&command)).ok_or(OsError::NOTTY)?;
    let data = data.get_mut(..allowed.len).ok_or(OsError::INVAL)?;
    let mut room = Room([0; ROOM]);
    let (argument, _) = room.0.split_at_mut(allowed.len);
    argument.copy_from_slice(data);
    let [native, _] = allowed.numbers;
    // SAFETY: the command is one of the above, none of which reaches beyond the room.
    let answer = unsafe { raw::ioctl(fd.as_fd(), native, room.0.as_mut_ptr().cast()) }?;
    data.copy_from_slice(room.0.split_at(allowed.len).0);
    i32::try_from(answer).map_err(|_| OsError::IO)
}

#[repr(align(8))]
struct Room([u8; ROOM]);

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn passes_nothing_else_on() {
        let file = tempfile::tempfile().unwrap();
        let mut data = [0; 256];
        // FICLONE, FIONREAD, FITRIM, FIEMAP, FS_IOC32_SETFLAGS
        for command in [0x4004_9409, 0x541b, 0xc018_5879, 0xc020_660b, 0x4004_6602] {
            assert_eq!(file_ioctl(&file, command, &mut data), Err(OsError::NOTTY), "{command:#x}");
        }
        assert_eq!(file_ioctl(&file, 0x8008_6601, &mut data[..3]), Err(OsError::INVAL));
    }
}
