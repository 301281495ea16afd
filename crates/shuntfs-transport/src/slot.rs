//! The memory of one request: a head page, then the payload, page-aligned.
//!
//! On a device a request is read so that what follows the first 80 bytes lands at the payload's start: the
//! data of a WRITE (40 bytes of header, 40 of arguments) is then page-aligned, as direct I/O below wants it.
//! On io_uring the head page starts with the 288 bytes that the kernel calls the header area.
//!
//! # Safety
//! A slot belongs either to the kernel or to the one [`crate::Exchange`] that serves its request. The loop of
//! a transport makes an exchange only when the kernel has handed the slot over, and hands it back only when
//! the exchange is gone. All slots of a queue lie in one region that outlives them.
#![expect(unsafe_code, reason = "requests lie in memory that the kernel fills")]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use shuntfs_sys::region::Region;

pub(crate) const PAGE: usize = 4096;
/// What of a device's request lies before the payload.
pub(crate) const DEVICE_HEAD: usize = 80;

/// The slots of one thread.
#[derive(Debug)]
pub(crate) struct Slots {
    region: Region,
    count: usize,
    payload_len: usize,
}

/// One slot's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    base: NonNull<u8>,
    payload_len: usize,
}

impl Slots {
    pub(crate) fn reserve(count: usize, payload_len: usize) -> shuntfs_sys::Result<Self> {
        let payload_len = payload_len.next_multiple_of(PAGE);
        let region = Region::reserve(count * (PAGE + payload_len))?;
        Ok(Self { region, count, payload_len })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn slot(&self, index: usize) -> Slot {
        assert!(index < self.count, "slot {index} of {}", self.count);
        // SAFETY: the region holds `count` strides, and `index` is below it.
        let base = unsafe { self.region.start().add(index * (PAGE + self.payload_len)) };
        Slot { base, payload_len: self.payload_len }
    }

    /// Puts a slot into huge pages, if the system lets us.
    pub(crate) fn gather(&self, index: usize) {
        let stride = PAGE + self.payload_len;
        if let Err(error) = self.region.gather(index * stride..(index + 1) * stride) {
            tracing::debug!(%error, index, "payload memory stays in small pages");
        }
    }

    /// Gives the memory back to the system; slots then read as zeroes.
    ///
    /// # Safety
    /// No exchange may live, and the kernel must not fill a slot meanwhile: not from another thread's call.
    pub(crate) unsafe fn give_back(&self) {
        // SAFETY: handed on to the caller.
        if let Err(error) = unsafe { self.region.give_back() } {
            tracing::debug!(%error, "idle payload memory stays");
        }
    }
}

impl Slot {
    /// Where the kernel puts io_uring's header area.
    pub(crate) fn head(self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn payload(self) -> NonNull<u8> {
        // SAFETY: the head page and the payload lie in one region.
        unsafe { self.base.add(PAGE) }
    }

    pub(crate) fn payload_len(self) -> usize {
        self.payload_len
    }

    /// Where a device's request is read to.
    ///
    /// # Safety
    /// The slot must not belong to the kernel or an exchange.
    pub(crate) unsafe fn device_buffer<'q>(self) -> &'q mut [u8] {
        // SAFETY: inside the head page.
        let start = unsafe { self.base.add(PAGE - DEVICE_HEAD) };
        // SAFETY: the tail of the head page and the payload are contiguous, initialised (zeroed) memory, and
        // by this function's contract nobody else looks at them.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), DEVICE_HEAD + self.payload_len) }
    }

    /// Bytes of the slot, counted from the head page's start.
    ///
    /// # Safety
    /// The slot must belong to the caller, who must not have it borrowed mutably.
    pub(crate) unsafe fn bytes<'q>(self, range: Range<usize>) -> &'q [u8] {
        assert!(range.start <= range.end && range.end <= PAGE + self.payload_len, "{range:?} of a slot");
        // SAFETY: inside the slot, as was just checked.
        let start = unsafe { self.base.add(range.start) };
        // SAFETY: initialised memory (zeroed when mapped) of this slot, which the caller owns.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) }
    }

    /// The same, to be written.
    ///
    /// # Safety
    /// The slot must belong to the caller, who must not have it borrowed at all.
    pub(crate) unsafe fn bytes_mut<'q>(self, range: Range<usize>) -> &'q mut [u8] {
        assert!(range.start <= range.end && range.end <= PAGE + self.payload_len, "{range:?} of a slot");
        // SAFETY: inside the slot, as was just checked.
        let start = unsafe { self.base.add(range.start) };
        // SAFETY: initialised memory (zeroed when mapped) of this slot, which the caller owns alone.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), range.len()) }
    }
}

/// Where the parts of a request lie, counted from the head page's start.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) fixed: Range<usize>,
    pub(crate) rest: Range<usize>,
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
        Ok(Self { fixed: start + HEADER..start + middle, rest: start + middle..start + len })
    }

    /// The parts of a ring's request with `payload_len` bytes of payload.
    pub(crate) fn of_ring(fixed_len: usize, payload_len: usize) -> Self {
        const OP_IN: usize = 128;
        Self { fixed: OP_IN..OP_IN + fixed_len.min(OP_IN), rest: PAGE..PAGE + payload_len }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn data_of_a_write_is_page_aligned() {
        let slots = Slots::reserve(2, 8192).expect("reserve");
        let slot = slots.slot(1);
        let parts = Parts::of_device(80 + 5000, 40).expect("long enough");
        assert_eq!(parts.rest, PAGE..PAGE + 5000);
        assert_eq!(slot.payload().as_ptr().addr() % PAGE, 0);
        // SAFETY: nobody else uses the slots of this test.
        let buffer = unsafe { slot.device_buffer() };
        assert_eq!(buffer.len(), DEVICE_HEAD + 8192);
        buffer[DEVICE_HEAD] = 9;
        // SAFETY: as above, and the mutable borrow has ended.
        assert_eq!(unsafe { slot.bytes(parts.rest) }[0], 9);
    }

    #[test]
    fn short_requests_are_refused_or_cut() {
        assert!(Parts::of_device(39, 0).is_err());
        let cut = Parts::of_device(44, 40).expect("has a header");
        assert_eq!((cut.fixed.len(), cut.rest.len()), (4, 0));
    }
}
