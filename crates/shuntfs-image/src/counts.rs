//! One reference count in a block of them, which may be narrower than a byte.

/// Where a count is in its block, and how wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    /// The first byte.
    pub(crate) byte: u64,
    /// How many bytes it takes; one where it shares it.
    pub(crate) len: usize,
    shift: u32,
    mask: u8,
}

impl Count {
    /// The count at a place of a block whose counts have two to the power of `order` bits.
    pub(crate) fn at(index: u64, order: u32) -> Self {
        let bit = index << order;
        let len = if order < 3 { 1 } else { 1 << (order - 3) };
        let mask = if order < 3 { (1_u8 << (1 << order)) - 1 } else { u8::MAX };
        Self { byte: bit / 8, len, shift: if order < 3 { (bit % 8) as u32 } else { 0 }, mask }
    }

    /// Makes a zero a one in the count's own bytes; false where it is none.
    pub(crate) fn raise(self, bytes: &mut [u8]) -> bool {
        let is_zero = bytes.iter().all(|byte| (byte >> self.shift) & self.mask == 0);
        if let (true, Some(last)) = (is_zero, bytes.last_mut()) {
            *last |= 1 << self.shift;
        }
        is_zero
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn counts_of_every_width_are_raised_once_and_alone() {
        for order in 0..=6 {
            let mut block = [0; 64];
            let raise = |block: &mut [u8], index| {
                let count = Count::at(index, order);
                let start = usize::try_from(count.byte).expect("small");
                count.raise(&mut block[start..][..count.len])
            };
            assert!(raise(&mut block, 3) && !raise(&mut block, 3), "{order}");
            let before = block;
            assert!(raise(&mut block, 2) && raise(&mut block, 4), "{order}");
            assert!(!raise(&mut block, 3) && block != before, "{order}");
            let ones: u32 = block.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(ones, 3, "{order}");
        }
        // As QEMU counts: 16 bits, the larger byte first; and 2 bits, from the lowest on.
        let mut wide = [0; 2];
        Count::at(5, 4).raise(&mut wide);
        assert_eq!((wide, Count::at(5, 4).byte), ([0, 1], 10));
        let mut narrow = [0b11];
        Count::at(1, 1).raise(&mut narrow);
        assert_eq!(narrow, [0b111]);
    }
}
