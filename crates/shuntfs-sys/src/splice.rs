//! Moving bytes through a pipe without seeing them.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::{Result, faults};

/// A pipe, both ends close-on-exec.
#[derive(Debug)]
pub struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    capacity: usize,
}

impl Pipe {
    /// Makes a pipe of at least `capacity` bytes, or of the largest half, quarter and so on that the kernel allows
    /// (`fs.pipe-max-size`, and less for a user with many pipes); [`Pipe::capacity`] tells.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit.
    pub fn new(capacity: usize) -> Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let held = rustix::pipe::fcntl_getpipe_size(&writer)?;
        let sizes =
            std::iter::successors(Some(capacity), |size| Some(size / 2)).take_while(|size| *size > held);
        let granted = sizes.into_iter().find_map(|size| rustix::pipe::fcntl_setpipe_size(&writer, size).ok());
        Ok(Self { reader, writer, capacity: granted.unwrap_or(held) })
    }

    /// The end that bytes come out of.
    #[must_use]
    pub fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// The end that bytes go into.
    #[must_use]
    pub fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    /// How many bytes fit, if every page is full.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

/// Moves up to `len` bytes from `from` (at `offset`, where it is a file) into the pipe; 0 at the end of the file.
///
/// # Errors
/// What splice(2) gives; EAGAIN where the pipe is full, because this never waits for room; EINVAL where the file
/// system cannot splice.
pub fn splice_to_pipe(from: impl AsFd, offset: Option<u64>, pipe: &Pipe, len: usize) -> Result<usize> {
    faults::point()?;
    retry_on_intr(|| {
        let mut offset = offset;
        rustix::pipe::splice(&from, offset.as_mut(), &pipe.writer, None, len, flags())
    })
}

/// Moves up to `len` bytes from the pipe into `to` (at `offset`, where it is a file).
///
/// # Errors
/// What splice(2) gives; EAGAIN where the pipe is empty.
pub fn splice_from_pipe(pipe: &Pipe, to: impl AsFd, offset: Option<u64>, len: usize) -> Result<usize> {
    retry_on_intr(|| {
        let mut offset = offset;
        rustix::pipe::splice(&pipe.reader, None, &to, offset.as_mut(), len, flags())
    })
}

/// Pages are never to be moved out of the cache that they come from: it belongs to others, too.
fn flags() -> SpliceFlags {
    SpliceFlags::NONBLOCK
}

impl Pipe {
    /// Takes bytes out of the pipe, copied, into one piece after the other; 0 where the pipe is empty.
    ///
    /// # Errors
    /// What readv(2) gives.
    pub fn read(&self, pieces: &mut [IoSliceMut<'_>]) -> Result<usize> {
        if rustix::io::ioctl_fionread(&self.reader)? == 0 {
            return Ok(0);
        }
        retry_on_intr(|| rustix::io::readv(&self.reader, pieces))
    }
}

impl Pipe {
    /// Puts bytes into the pipe, copied; how many, which is fewer than given where the pipe is full.
    ///
    /// # Errors
    /// What write(2) gives.
    pub fn write(&self, bytes: &[u8]) -> Result<usize> {
        retry_on_intr(|| rustix::io::write(&self.writer, bytes))
    }
}
