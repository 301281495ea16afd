//! Listing lower folders with getdents64, in batches, with the kernel's own cookies.
//!
//! # Safety
//! The kernel writes into a buffer that is borrowed for the call, with its true length. The records are then parsed
//! as untrusted bytes: a length that does not fit ends the batch with EIO instead of reading past it.
#![expect(unsafe_code, reason = "rustix's reader of folders cannot stop before a record and seek")]

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::SeekFrom;
use rustix::io::retry_on_intr;

use crate::{OsError, Result, faults, raw};

/// Bytes asked for in one call, as glibc does.
const BATCH_LEN: usize = 32 * 1024;
/// Where the name starts in `struct linux_dirent64`.
const NAME_OFFSET: usize = 19;

/// One name of a folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirRecord<'a> {
    /// Inode number, of what the name is on the lower file system itself, not of what is mounted there.
    pub ino: u64,
    /// The cookie from which a listing goes on after this name.
    pub next: u64,
    /// `DT_*`, 0 where the file system does not tell.
    pub kind: u8,
    /// The name; `.` and `..` are listed too.
    pub name: &'a CStr,
}

/// A position in an open folder, with a batch of its names.
#[derive(Debug)]
pub struct DirReader {
    fd: OwnedFd,
    /// Allocated at the first use and kept.
    batch: Vec<u8>,
    len: usize,
    start: usize,
    /// The cookie of the record at `start`.
    position: u64,
}

impl DirReader {
    /// Reads the folder from its start; `fd` must be open for reading, and its offset is the reader's own.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, batch: Vec::new(), len: 0, start: 0, position: 0 }
    }

    /// Drops what is left of the batch and fetches the next; false at the folder's end.
    ///
    /// # Errors
    /// What getdents64(2) gives; ENOENT for a removed folder.
    pub fn fill(&mut self) -> Result<bool> {
        faults::point()?;
        if self.start < self.len {
            // The descriptor stands behind the batch; what was not consumed must come again.
            self.seek_lower(self.position)?;
        }
        if self.batch.is_empty() {
            self.batch = vec![0; BATCH_LEN];
        }
        (self.start, self.len) = (0, 0);
        let (fd, start, len) = (self.fd.as_raw_fd(), self.batch.as_mut_ptr(), self.batch.len());
        let got = retry_on_intr(|| {
            // SAFETY: `start` and `len` are those of the batch, which nothing else uses during the call.
            let got = unsafe { libc::syscall(libc::SYS_getdents64, fd, start, len) };
            raw::check(got)
        })?;
        self.len = got.min(self.batch.len());
        Ok(self.len > 0)
    }

    /// The next record of the batch, left in place; `None` at the batch's end.
    ///
    /// # Errors
    /// EIO for a record that does not hold together.
    pub fn peek(&self) -> Result<Option<DirRecord<'_>>> {
        let rest = self.rest();
        if rest.is_empty() { Ok(None) } else { parse(rest).map(|(record, _)| Some(record)) }
    }

    /// Steps over the record that [`DirReader::peek`] shows.
    ///
    /// # Errors
    /// EIO for a record that does not hold together.
    pub fn advance(&mut self) -> Result<()> {
        let rest = self.rest();
        if rest.is_empty() {
            return Ok(());
        }
        let (record, len) = parse(rest)?;
        self.position = record.next;
        self.start += len;
        Ok(())
    }

    /// The records left in the batch, without consuming them; ends early at one that does not hold together.
    pub fn records(&self) -> impl Iterator<Item = DirRecord<'_>> {
        let mut rest = self.rest();
        std::iter::from_fn(move || {
            let (record, len) = parse(rest).ok()?;
            rest = rest.get(len..)?;
            Some(record)
        })
    }

    /// The cookie of what comes next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes to a cookie that a record gave, or to the start with 0, which also forgets what was fetched.
    ///
    /// # Errors
    /// What lseek(2) gives; EINVAL for a cookie that the file system cannot have given.
    pub fn seek(&mut self, cookie: u64) -> Result<()> {
        // optimisation: the usual reader goes on where it stopped.
        if cookie == self.position && cookie != 0 {
            return Ok(());
        }
        self.seek_lower(cookie)?;
        (self.start, self.len, self.position) = (0, 0, cookie);
        Ok(())
    }

    fn seek_lower(&self, cookie: u64) -> Result<()> {
        faults::point()?;
        // Cookies are `loff_t` to the kernel, and some file systems (ext4's hashes, NFS) use the whole width.
        rustix::fs::seek(&self.fd, SeekFrom::Start(cookie)).map(drop)
    }

    fn rest(&self) -> &[u8] {
        self.batch.get(self.start..self.len).unwrap_or(&[])
    }
}

impl AsFd for DirReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The first record of `bytes` and its length.
fn parse(bytes: &[u8]) -> Result<(DirRecord<'_>, usize)> {
    let head = bytes.first_chunk::<NAME_OFFSET>().ok_or(OsError::IO)?;
    let (ino, after) = head.split_first_chunk::<8>().ok_or(OsError::IO)?;
    let (next, after) = after.split_first_chunk::<8>().ok_or(OsError::IO)?;
    let [len_low, len_high, kind] = *after else { return Err(OsError::IO) };
    let len = usize::from(u16::from_ne_bytes([len_low, len_high]));
    let name = bytes.get(NAME_OFFSET..len).ok_or(OsError::IO)?;
    let name = CStr::from_bytes_until_nul(name).map_err(|_| OsError::IO)?;
    let record = DirRecord { ino: u64::from_ne_bytes(*ino), next: u64::from_ne_bytes(*next), kind, name };
    Ok((record, len))
}

#[cfg(test)]
mod test {
    use super::*;

    fn record(ino: u64, next: u64, len: u16, name: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(ino.to_ne_bytes());
        bytes.extend(next.to_ne_bytes());
        bytes.extend(len.to_ne_bytes());
        bytes.push(8);
        bytes.extend(name);
        bytes
    }

    #[test]
    fn parses_one_record() {
        let bytes = record(7, u64::MAX, 24, b"ab\0\0\0rest");
        let (got, len) = parse(&bytes).unwrap();
        assert_eq!(got, DirRecord { ino: 7, next: u64::MAX, kind: 8, name: c"ab" });
        assert_eq!(len, 24);
    }

    #[test]
    fn broken_records_are_errors() {
        for bytes in [
            record(1, 1, 0, b"a\0"),
            record(1, 1, 19, b"a\0"),
            record(1, 1, 21, b"aa"),
            record(1, 1, 400, b"a\0"),
            record(1, 1, 24, b"")[..18].to_vec(),
        ] {
            assert_eq!(parse(&bytes).err(), Some(OsError::IO), "{bytes:?}");
        }
    }
}
