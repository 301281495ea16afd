//! Where a request lies in its slot: a head page, then the payload, page-aligned.
//!
//! On a device a request is read so that what follows the first 80 bytes lands at the payload's start: the
//! data of a WRITE (40 bytes of header, 40 of arguments) is then page-aligned, as direct I/O below wants it.
//! On io_uring the head page starts with the 288 bytes that the kernel calls the header area.

use std::io;
use std::ops::Range;

pub(crate) const PAGE: usize = 4096;
/// What of a device's request lies before the payload.
const DEVICE_HEAD: usize = 80;

/// What the kernel calls the header area, and where in it a ring's request has its arguments and its entry.
pub(crate) const HEADER_AREA: usize = 288;
pub(crate) const OP_IN: usize = 128;
pub(crate) const ENT_IN_OUT: usize = 256;

/// Where every request begins, and small ones and small answers end.
pub(crate) const WARM: Range<usize> = 0..2 * PAGE;

/// How many bytes a slot with so long a payload has.
pub(crate) fn slot_len(payload_len: usize) -> usize {
    PAGE + payload_len.next_multiple_of(PAGE)
}

/// Where a device's request is read to, in a slot of `size` bytes.
pub(crate) fn device_room(size: usize) -> Range<usize> {
    PAGE - DEVICE_HEAD..size
}

/// Where `len` bytes of the payload lie.
pub(crate) fn payload(start: usize, len: usize) -> Range<usize> {
    PAGE + start..PAGE + start + len
}

/// Where the parts of a request lie, counted from the head page's start.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) fixed: Range<usize>,
    pub(crate) rest: Range<usize>,
    /// The data is not in the payload but in pages that nobody here sees, or is to go there.
    pub(crate) in_pages: bool,
}

impl Parts {
    /// The parts of a device's request of `len` bytes whose fixed struct has `fixed_len` bytes.
    pub(crate) fn of_device(len: usize, fixed_len: usize) -> io::Result<Self> {
        const HEADER: usize = 40;
        let start = PAGE - DEVICE_HEAD;
        if len < HEADER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a request of {len} bytes")));
        }
        let middle = (HEADER + fixed_len).min(len);
        Ok(Self { fixed: start + HEADER..start + middle, rest: start + middle..start + len, in_pages: false })
    }

    /// The parts of a ring's request with `payload_len` bytes of payload.
    pub(crate) fn of_ring(fixed_len: usize, payload_len: usize, in_pages: bool) -> Self {
        Self { fixed: OP_IN..OP_IN + fixed_len.min(OP_IN), rest: PAGE..PAGE + payload_len, in_pages }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn data_of_a_write_is_page_aligned() {
        let parts = Parts::of_device(80 + 5000, 40).expect("long enough");
        assert_eq!(parts.rest, PAGE..PAGE + 5000);
        let room = device_room(slot_len(8000));
        assert_eq!((room.start + 80, room.end), (PAGE, PAGE + 8192));
    }

    #[test]
    fn short_requests_are_refused_or_cut() {
        assert!(Parts::of_device(39, 0).is_err());
        let cut = Parts::of_device(44, 40).expect("has a header");
        assert_eq!((cut.fixed.len(), cut.rest.len()), (4, 0));
    }
}
