//! READ answered through a pipe: the bytes go from the page cache to the caller without being copied by us.

use std::os::fd::{AsFd, BorrowedFd};

use shuntfs_sys::OsError;
use shuntfs_sys::data::{Pipe, splice_from_pipe, splice_to_pipe};
use shuntfs_sys::device::FuseDevice;
use shuntfs_wire::OutHeader;
use zerocopy::IntoBytes;

use crate::exchange::Outcome;

/// Below this many bytes, copying is cheaper than four calls.
const WORTH_IT: u32 = 32 << 10;

/// The pipes of one thread, made at first use and kept.
#[derive(Debug, Default)]
pub(crate) struct SplicePath {
    pipes: Option<Pipes>,
    /// Pipes of the needed size are not to be had, or the descriptors do not splice.
    refused: bool,
}

#[derive(Debug)]
struct Pipes {
    data: Pipe,
    answer: Pipe,
}

impl SplicePath {
    /// Answers a READ; `None` where that does not pay or did not work, with nothing lost.
    pub(crate) fn read(
        &mut self,
        device: &FuseDevice,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: u32,
        unique: u64,
    ) -> Option<Outcome> {
        if len < WORTH_IT || self.refused {
            return None;
        }
        if self.pipes.is_none() {
            self.pipes = Pipes::new(len.max(1 << 20) as usize);
            self.refused = self.pipes.is_none();
        }
        let pipes = self.pipes.as_ref()?;
        match pipes.read(device, fd, offset, len as usize, unique) {
            Ok(()) | Err((OsError::NOENT | OsError::NODEV | OsError::CONNABORTED, true)) => {
                Some(Outcome::Sent)
            }
            Err((error, _)) => {
                // What is in the pipes goes with them; the caller reads again by plain calls.
                tracing::debug!(%error, "splicing is given up");
                self.pipes = None;
                self.refused = true;
                None
            }
        }
    }
}

impl Pipes {
    fn new(len: usize) -> Option<Self> {
        // A slot for each page, one for a ragged start, one for the header.
        let size = len + 2 * 4096;
        let (data, answer) = (Pipe::new(size).ok()?, Pipe::new(size).ok()?);
        (data.capacity() >= size && answer.capacity() >= size).then_some(Self { data, answer })
    }

    /// The error, and whether it came from the last step, when the kernel had the whole answer.
    fn read(
        &self,
        device: &FuseDevice,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        unique: u64,
    ) -> Result<(), (OsError, bool)> {
        let before = |error| (error, false);
        let mut got = 0;
        while got < len {
            let count =
                splice_to_pipe(fd, Some(offset + got as u64), &self.data, len - got).map_err(before)?;
            if count == 0 {
                break;
            }
            got += count;
        }
        let total = size_of::<OutHeader>() + got;
        let header =
            OutHeader { len: u32::try_from(total).map_err(|_| before(OsError::INVAL))?, error: 0, unique };
        self.answer.write(header.as_bytes()).map_err(before)?;
        let mut moved = 0;
        while moved < got {
            moved += match splice_from_pipe(&self.data, self.answer.writer(), None, got - moved)
                .map_err(before)?
            {
                0 => return Err(before(OsError::IO)),
                count => count,
            };
        }
        splice_from_pipe(&self.answer, device.as_fd(), None, total).map_err(|error| (error, true))?;
        Ok(())
    }
}
