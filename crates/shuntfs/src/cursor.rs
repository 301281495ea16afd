//! A reply that is written from its start on, and that is as long as what was written.

use std::os::fd::AsFd;

use shuntfs_wire::{Errno, Result};

use crate::reply::Filled;

/// The bytes of a reply. The memory below may hold bytes of an earlier request: what this type did not write is never a part of
/// the answer, and never shown.
#[derive(Debug)]
pub struct Cursor<'q> {
    room: &'q mut [u8],
    written: usize,
}

impl<'q> Cursor<'q> {
    pub(crate) fn new(room: &'q mut [u8]) -> Self {
        Self { room, written: 0 }
    }

    /// How many bytes still fit.
    #[must_use]
    pub fn left(&self) -> usize {
        self.room.len() - self.written
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// ERANGE where they do not fit; none is added then.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.next(bytes.len())?.copy_from_slice(bytes);
        self.written += bytes.len();
        Ok(())
    }

    /// Adds so many zeroes.
    ///
    /// # Errors
    /// ERANGE where they do not fit; none is added then.
    pub fn zeroes(&mut self, len: usize) -> Result<()> {
        self.next(len)?.fill(0);
        self.written += len;
        Ok(())
    }

    /// Adds what one read of a file at `offset` gives, `len` bytes at most and no more than fit; returns how many: 0 at the file's
    /// end. Called inline, it holds up the queue while it waits.
    ///
    /// # Errors
    /// Those of pread(2).
    pub fn read_at(&mut self, file: impl AsFd, offset: u64, len: usize) -> Result<usize> {
        let len = len.min(self.left());
        let read = shuntfs_sys::data::read_at(file, self.next(len)?, offset);
        let read = read.map_err(|error| Errno::from_lower(error.raw_os_error()))?;
        self.written += read;
        Ok(read)
    }

    /// Has `fill` write into the next `len` bytes, which are zero, and adds the first ones, as many as it returns.
    ///
    /// # Errors
    /// ERANGE where `len` bytes do not fit, those of `fill`, and EIO where it returns more than `len`.
    pub fn with(&mut self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<usize> {
        let room = self.next(len)?;
        room.fill(0);
        let added = fill(room)?;
        if added > len {
            return Err(Errno::IO);
        }
        self.written += added;
        Ok(added)
    }

    /// What was written so far.
    pub fn written_mut(&mut self) -> &mut [u8] {
        &mut self.room[..self.written]
    }

    /// Answers with what was written.
    pub fn finish(self) -> Filled<'q> {
        Filled::bytes(self.written)
    }

    fn next(&mut self, len: usize) -> Result<&mut [u8]> {
        self.room[self.written..].get_mut(..len).ok_or(Errno::RANGE)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_answer_has_what_was_written_and_no_more() {
        let mut room = [0xee; 16];
        let mut out = Cursor::new(&mut room);
        out.put(b"ab").unwrap();
        out.zeroes(2).unwrap();
        assert_eq!(out.with(4, |next| Ok(usize::from(next == [0; 4]) * 3)), Ok(3), "stale bytes do not show");
        assert_eq!((out.left(), out.written_mut().to_vec()), (9, b"ab\0\0\0\0\0".to_vec()));
        assert_eq!(out.put(&[1; 10]), Err(Errno::RANGE));
        assert_eq!(out.zeroes(10), Err(Errno::RANGE));
        assert_eq!(out.with(10, |_| panic!("there is no room")), Err(Errno::RANGE));
        assert_eq!(out.with(4, |_| Ok(5)), Err(Errno::IO), "more than there was");
        assert_eq!(out.with(4, |_| Err(Errno::NODATA)), Err(Errno::NODATA));
        assert_eq!(out.left(), 9, "what failed adds nothing");
        let program = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(out.read_at(&program, 0, 4), Ok(4));
        assert_eq!(out.read_at(&program, 1, 100), Ok(5), "as much as fits");
        assert_eq!(out.read_at(&program, u64::from(u32::MAX), 1), Ok(0), "no room, no read");
        assert_eq!(out.finish().filled(), Ok(16));
        assert_eq!(room[7..], *b"\x7fELFELF\x02\x01");
    }
}
