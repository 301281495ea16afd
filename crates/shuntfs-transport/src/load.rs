//! When the memory of a request is worth huge pages.
//!
//! For each transfer the kernel pins the pages of a payload one by one, twice: for the lower file's direct I/O and for the
//! copy between us and the caller. A payload of 1 MiB has 256 of them, and that is dearer than the copy. In a huge page
//! it is one. But gathering copies what exists, and a huge page holds memory that small requests never touch: so it is
//! for slots that carry long transfers again and again. The kernel gives free slots out last in, first out, so one
//! caller's transfers lie in one or two.

/// A transfer of so many bytes counts as long.
const LONG: usize = 128 << 10;
/// So many in one burst make a slot worth it: who sends a few is done before it pays.
const ENOUGH: u8 = 16;

/// What one slot has carried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    long: u8,
}

impl Load {
    /// Enters a transfer; says once, when enough were long, that the slot should be gathered.
    pub(crate) fn add(&mut self, len: usize) -> bool {
        if len < LONG || self.long == ENOUGH {
            return false;
        }
        self.long += 1;
        self.long == ENOUGH
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_slot_is_gathered_once_and_for_long_transfers_alone() {
        let mut load = Load::default();
        assert!(!(0..1000).any(|_| load.add(LONG - 1)), "short ones");
        let said: Vec<usize> = (0..1000).filter(|_| load.add(LONG)).collect();
        assert_eq!(said, [usize::from(ENOUGH) - 1]);
    }
}
