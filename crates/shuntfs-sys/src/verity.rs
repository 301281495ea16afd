//! The kernel's own fs-verity: turning it on for a file, and asking what it made (`include/uapi/linux/fsverity.h`).
//!
//! # Safety
//! Every command gets a structure of the length that its number says, made here; the memory that its pointers name is
//! borrowed for the call, with its true length beside it.
#![expect(unsafe_code, reason = "ioctl has no safe form")]

use std::os::fd::AsFd;

use crate::{OsError, Result, faults, raw};

const ENABLE: u32 = 0x4080_6685;
const MEASURE: u32 = 0xc004_6686;
const READ_METADATA: u32 = 0xc028_6687;

/// Longest digest that the kernel has (`FS_VERITY_MAX_DIGEST_SIZE`).
pub const DIGEST_LEN_MAX: usize = 64;
/// `STATX_ATTR_VERITY`, in the attributes of [`crate::Stat`].
pub const STATX_ATTR_VERITY: u64 = 0x0010_0000;

/// How a tree is made (`struct fsverity_enable_arg`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enable<'a> {
    /// `FS_VERITY_HASH_ALG_*`: 1 or 2.
    pub algorithm: u8,
    /// Block size in bytes.
    pub block_size: u32,
    /// At most 32 bytes.
    pub salt: &'a [u8],
}

#[repr(C)]
struct EnableArg {
    version: u32,
    hash_algorithm: u32,
    block_size: u32,
    salt_size: u32,
    salt_ptr: u64,
    sig_size: u32,
    reserved1: u32,
    sig_ptr: u64,
    reserved2: [u64; 11],
}
const _: () = assert!(size_of::<EnableArg>() == 128);

#[repr(C)]
struct MetadataArg {
    kind: u64,
    offset: u64,
    length: u64,
    buf_ptr: u64,
    reserved: u64,
}
const _: () = assert!(size_of::<MetadataArg>() == 40);

/// Makes the kernel build the tree of a file, which cannot be written from then on. Takes as long as hashing it all.
///
/// # Errors
/// ETXTBSY where anybody has it open for writing, the caller included; EEXIST where it is on already; ENOTTY and
/// EOPNOTSUPP where the file system, or this one, has no fs-verity; EINVAL for parameters that it does not take.
pub fn enable(fd: impl AsFd, how: &Enable<'_>) -> Result<()> {
    let mut arg = EnableArg {
        version: 1,
        hash_algorithm: how.algorithm.into(),
        block_size: how.block_size,
        salt_size: u32::try_from(how.salt.len()).map_err(|_| OsError::INVAL)?,
        salt_ptr: how.salt.as_ptr().expose_provenance() as u64,
        sig_size: 0,
        reserved1: 0,
        sig_ptr: 0,
        reserved2: [0; 11],
    };
    // SAFETY: `arg` is what the command reads, and its one pointer names the salt, borrowed for the call.
    unsafe { raw::ioctl(fd.as_fd(), ENABLE, (&raw mut arg).cast()) }.map(drop)
}

/// The digest of a file that has fs-verity: the algorithm's number, and how many bytes of `digest` were filled.
///
/// # Errors
/// ENODATA where the file has no fs-verity, ENOTTY and EOPNOTSUPP where its file system has none.
pub fn measure(fd: impl AsFd, digest: &mut [u8; DIGEST_LEN_MAX]) -> Result<(u16, usize)> {
    faults::point()?;
    #[repr(C)]
    struct Arg {
        algorithm: u16,
        size: u16,
        digest: [u8; DIGEST_LEN_MAX],
    }
    let mut arg = Arg { algorithm: 0, size: 64, digest: [0; DIGEST_LEN_MAX] };
    // SAFETY: the command writes the head and at most `size` bytes behind it, which is what `arg` has.
    unsafe { raw::ioctl(fd.as_fd(), MEASURE, (&raw mut arg).cast()) }?;
    *digest = arg.digest;
    Ok((arg.algorithm, usize::from(arg.size).min(DIGEST_LEN_MAX)))
}

/// What is kept of a file that has fs-verity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Metadata {
    /// The tree, root level first.
    Tree,
    /// The descriptor.
    Descriptor,
    /// The signature that it was enabled with.
    Signature,
}

/// Reads what the kernel keeps of a file; unchecked by the kernel. 0 at its end.
///
/// # Errors
/// As [`measure`]; ENODATA for a signature where there is none; ENOTTY before Linux 5.12.
pub fn read_metadata(fd: impl AsFd, what: Metadata, offset: u64, bytes: &mut [u8]) -> Result<usize> {
    faults::point()?;
    let kind = match what {
        Metadata::Tree => 1,
        Metadata::Descriptor => 2,
        Metadata::Signature => 3,
    };
    let buf_ptr = bytes.as_mut_ptr().expose_provenance() as u64;
    let mut arg = MetadataArg { kind, offset, length: bytes.len() as u64, buf_ptr, reserved: 0 };
    // SAFETY: `arg` is what the command reads; it writes at most `length` bytes to `bytes`, borrowed for the call.
    unsafe { raw::ioctl(fd.as_fd(), READ_METADATA, (&raw mut arg).cast()) }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_file_without_it_says_so() {
        let file = tempfile::tempfile().unwrap();
        let mut digest = [0; DIGEST_LEN_MAX];
        let none = [OsError::NODATA, OsError::NOTTY, OsError::OPNOTSUPP];
        assert!(none.contains(&measure(&file, &mut digest).unwrap_err()));
        assert!(none.contains(&read_metadata(&file, Metadata::Descriptor, 0, &mut digest).unwrap_err()));
        let how = Enable { algorithm: 9, block_size: 4096, salt: &[] };
        enable(&file, &how).unwrap_err();
    }
}
