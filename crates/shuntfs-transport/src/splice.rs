//! READ answered through a pipe: the bytes go from the page cache to the caller without being copied by us.
//!
//! The header goes into the pipe first and says that all bytes asked for will follow; then the lower file's pages, by
//! reference; then the device takes the whole pipe in one call, which is how it wants an answer. Where the file
//! ended early the header is wrong, and what is in the pipe is read into the request's own memory instead.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use shuntfs_sys::data::{Pipe, splice_to_pipe};
use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::{OsError, identity};
use shuntfs_wire::OutHeader;
use zerocopy::IntoBytes;

use crate::slot::PAGE;

/// Below this many bytes, copying is cheaper than the calls and the pipe's pages.
const WORTH_IT: u32 = 64 << 10;
/// A page for each place in the pipe: what the longest READ (1 MiB) needs with its header, as a power of two. Without
/// `CAP_SYS_RESOURCE` it comes to `fs.pipe-max-size`, 1 MiB where nobody changed it, and READs that just do not fit are
/// copied.
const PIPE_LEN: usize = 2 << 20;
/// After a lower file that does not splice, so many reads are copied before the next try.
const COPIES_AFTER_REFUSAL: u32 = 256;
const HEADER_LEN: usize = size_of::<OutHeader>();

/// One READ to be answered by splicing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpliceRead<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) unique: u64,
    /// Whether the lower file may keep its readers waiting for long.
    pub(crate) can_block: bool,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spliced {
    /// The answer has left, or nobody waits for it any more.
    Sent,
    /// The file ended: so many bytes are in the request's memory, to be answered from there.
    Copied(usize),
    /// Nothing happened: it does not pay, or does not work.
    No,
}

/// The pipe of one thread, made at first use and kept.
#[derive(Debug, Default)]
pub(crate) struct SplicePath {
    pipe: Option<Pipe>,
    /// Pipes that would be worth it are not available.
    refused: bool,
    /// Reads to be copied before the next try.
    copies: u32,
}

impl SplicePath {
    /// Whether a READ of `len` bytes is worth a try.
    pub(crate) fn pays(&self, len: u32) -> bool {
        len >= WORTH_IT && !self.refused
    }

    /// Answers a READ for which that pays. `payload` is the request's memory.
    pub(crate) fn read(&mut self, device: &FuseDevice, read: &SpliceRead<'_>, payload: &mut [u8]) -> Spliced {
        if let Some(left) = self.copies.checked_sub(1) {
            self.copies = left;
            return Spliced::No;
        }
        if self.pipe.is_none() {
            self.pipe = new_pipe();
            self.refused = self.pipe.is_none();
        }
        let Some(pipe) = self.pipe.as_ref().filter(|pipe| read.places() * PAGE <= pipe.capacity()) else {
            return Spliced::No;
        };
        match read.through(pipe, device, payload) {
            Ok(outcome) => outcome,
            Err(error) => {
                // What is in the pipe goes with it; the caller reads again by plain calls.
                tracing::debug!(%error, "a read is not spliced");
                self.pipe = None;
                self.copies = COPIES_AFTER_REFUSAL;
                Spliced::No
            }
        }
    }
}

/// The largest pipe available, of those that are worth having.
fn new_pipe() -> Option<Pipe> {
    let pipe = identity::with_resource(|| Pipe::new(PIPE_LEN));
    pipe.ok().filter(|pipe| pipe.capacity() > WORTH_IT as usize)
}

impl SpliceRead<'_> {
    /// How many of the pipe's places it takes: one for each page that it touches, and one for the header.
    fn places(&self) -> usize {
        let ragged = usize::try_from(self.offset % PAGE as u64).unwrap_or(0);
        (ragged + self.len as usize).div_ceil(PAGE) + 1
    }

    fn through(&self, pipe: &Pipe, device: &FuseDevice, payload: &mut [u8]) -> Result<Spliced, OsError> {
        let wanted = self.len as usize;
        let total = HEADER_LEN + wanted;
        let len = u32::try_from(total).map_err(|_| OsError::INVAL)?;
        let header = OutHeader { len, error: 0, unique: self.unique };
        if pipe.write(header.as_bytes())? != HEADER_LEN {
            return Err(OsError::IO);
        }
        let mut got = 0;
        while got < wanted {
            match splice_to_pipe(self.fd, Some(self.offset + got as u64), pipe, wanted - got) {
                Ok(0) => break,
                Ok(count) => got += count,
                // Part of it is there; the next read meets the error, if it lasts.
                Err(_) if got > 0 => break,
                Err(error) => return Err(error),
            }
        }
        if got < wanted {
            return take_out(pipe, got, payload);
        }
        match device.splice(pipe, total) {
            Ok(_) | Err(OsError::NOENT | OsError::NODEV | OsError::CONNABORTED) => Ok(Spliced::Sent),
            Err(error) => Err(error),
        }
    }
}

/// Empties the pipe of a header, which is dropped, and of `got` bytes, which go to the payload.
fn take_out(pipe: &Pipe, got: usize, payload: &mut [u8]) -> Result<Spliced, OsError> {
    let mut header = [0; HEADER_LEN];
    if pipe.read(&mut [IoSliceMut::new(&mut header)])? != HEADER_LEN {
        return Err(OsError::IO);
    }
    let mut taken = 0;
    while taken < got {
        let room = payload.get_mut(taken..got).ok_or(OsError::IO)?;
        match pipe.read(&mut [IoSliceMut::new(room)])? {
            0 => return Err(OsError::IO),
            count => taken += count,
        }
    }
    Ok(Spliced::Copied(got))
}

#[cfg(test)]
mod test {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    fn read(fd: BorrowedFd<'_>, offset: u64, len: u32) -> SpliceRead<'_> {
        SpliceRead { fd, offset, len, unique: 7, can_block: false }
    }

    #[test]
    fn places_count_touched_pages_and_the_header() {
        let file = std::fs::File::open("/proc/self/exe").expect("own program");
        for (offset, len, places) in
            [(0, 4096, 2), (1, 4096, 3), (4095, 2, 3), (0, 1 << 20, 257), (8, 1 << 20, 258)]
        {
            assert_eq!(read(file.as_fd(), offset, len).places(), places, "{len} at {offset}");
        }
        assert!(read(file.as_fd(), 5, 1 << 20).places() * PAGE <= PIPE_LEN);
    }

    /// The answer "leaves" into a file, so that a test sees it whole.
    #[test]
    fn whole_answers_leave_and_short_ones_are_handed_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let lower = dir.path().join("lower");
        let bytes: Vec<u8> = (0..300_000_u32).map(|index| (index % 251) as u8).collect();
        std::fs::File::create(&lower).and_then(|mut file| file.write_all(&bytes)).expect("a lower file");
        let file = std::fs::File::open(&lower).expect("opens");
        let out = dir.path().join("out");
        std::fs::write(&out, "").expect("a file");
        let sink = std::fs::File::options().write(true).open(&out).expect("opens");
        let device = FuseDevice::from_fd(sink.into()).expect("a stand-in");
        let mut path = SplicePath::default();
        let mut payload = vec![0xee; 1 << 20];
        let mut expected = Vec::new();
        for offset in [0, 1, 4095, 4096, 100_001] {
            let outcome = path.read(&device, &read(file.as_fd(), offset as u64, 131_072), &mut payload);
            assert_eq!(outcome, Spliced::Sent, "at {offset}");
            let header = OutHeader { len: 131_088, error: 0, unique: 7 };
            expected.extend_from_slice(header.as_bytes());
            expected.extend_from_slice(&bytes[offset..][..131_072]);
        }
        assert!(std::fs::read(&out).expect("reads") == expected);
        for (offset, left) in [(200_000_u64, 100_000), (299_999, 1), (300_000, 0), (1 << 40, 0)] {
            let outcome = path.read(&device, &read(file.as_fd(), offset, 131_072), &mut payload);
            assert_eq!(outcome, Spliced::Copied(left), "at {offset}");
            assert!(payload[..left] == bytes[bytes.len() - left..], "at {offset}");
        }
        assert!(!path.pays(4096), "too small");
        assert_eq!(
            path.read(&device, &read(file.as_fd(), 0, 65_536), &mut payload),
            Spliced::Sent,
            "goes on"
        );
    }

    #[test]
    fn a_lower_file_that_does_not_splice_is_tried_again_later() {
        let folder = std::fs::File::open("/").expect("opens");
        let device =
            FuseDevice::from_fd(std::fs::File::open("/dev/null").expect("opens").into()).expect("a stand-in");
        let mut path = SplicePath::default();
        let mut payload = vec![0; 1 << 20];
        assert_eq!(path.read(&device, &read(folder.as_fd(), 0, 65_536), &mut payload), Spliced::No);
        assert!(path.pipe.is_none() && path.pays(65_536));
        for _ in 0..COPIES_AFTER_REFUSAL {
            assert_eq!(path.read(&device, &read(folder.as_fd(), 0, 65_536), &mut payload), Spliced::No);
        }
        assert_eq!(path.copies, 0, "the next one tries");
    }
}
