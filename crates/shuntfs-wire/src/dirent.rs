//! Records of a listing, packed into the reply.

use zerocopy::IntoBytes;

use crate::macros::{layout, wire_struct};
use crate::op::EntryOut;

wire_struct! {
    /// The head of a READDIR record; the name follows, then zeroes up to a multiple of 8 bytes.
    pub struct Dirent {
        /// Inode number.
        pub ino: u64,
        /// The place after this record, for the next READDIR.
        pub off: u64,
        /// Length of the name in bytes, without a NUL.
        pub namelen: u32,
        /// `DT_*`.
        pub kind: u32,
    }
}

layout!(Dirent, 24, off @ 8, namelen @ 16, kind @ 20);

const HEAD: usize = size_of::<Dirent>();
const ENTRY: usize = size_of::<EntryOut>();

/// Packs records into the memory of a reply, as many as fit.
#[derive(Debug)]
pub struct DirentSink<'b> {
    into: &'b mut [u8],
    used: usize,
}

impl<'b> DirentSink<'b> {
    /// An empty listing.
    pub fn new(into: &'b mut [u8]) -> Self {
        Self { into, used: 0 }
    }

    /// How many bytes hold records.
    #[must_use]
    pub fn len(&self) -> u32 {
        u32::try_from(self.used).unwrap_or(u32::MAX)
    }

    /// Whether nothing was packed yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether a READDIR record with so long a name fits.
    #[must_use]
    pub fn fits(&self, name_len: usize) -> bool {
        self.room_for(HEAD, name_len)
    }

    /// Whether a READDIRPLUS record with so long a name fits.
    #[must_use]
    pub fn fits_plus(&self, name_len: usize) -> bool {
        self.room_for(ENTRY + HEAD, name_len)
    }

    /// Packs a READDIR record; false where it does not fit. The kernel fails the whole listing for a name that is
    /// empty or holds a `/`.
    pub fn push(&mut self, ino: u64, off: u64, kind: u8, name: &[u8]) -> bool {
        self.fits(name.len()) && self.pack(&[], ino, off, kind, name)
    }

    /// Packs a READDIRPLUS record; false where it does not fit. An entry of zeroes says nothing of the node.
    pub fn push_plus(&mut self, entry: &EntryOut, ino: u64, off: u64, kind: u8, name: &[u8]) -> bool {
        self.fits_plus(name.len()) && self.pack(entry.as_bytes(), ino, off, kind, name)
    }

    fn room_for(&self, head: usize, name_len: usize) -> bool {
        let len = head.checked_add(name_len).and_then(|len| len.checked_next_multiple_of(8));
        len.is_some_and(|len| len <= self.into.len() - self.used)
    }

    fn pack(&mut self, entry: &[u8], ino: u64, off: u64, kind: u8, name: &[u8]) -> bool {
        let Ok(namelen) = u32::try_from(name.len()) else { return false };
        let head = Dirent { ino, off, namelen, kind: u32::from(kind) };
        let padding = [0; 7];
        let padding_len = (HEAD + name.len()).next_multiple_of(8) - HEAD - name.len();
        for piece in [entry, head.as_bytes(), name, padding.get(..padding_len).unwrap_or_default()] {
            let end = self.used + piece.len();
            let Some(place) = self.into.get_mut(self.used..end) else { return false };
            place.copy_from_slice(piece);
            self.used = end;
        }
        true
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use zerocopy::FromBytes;

    #[test]
    fn records_follow_each_other_at_multiples_of_8() {
        let mut memory = [0xaa; 100];
        let mut sink = DirentSink::new(&mut memory);
        assert!(sink.push(7, 1, 4, b"abc"));
        assert!(sink.push(8, 2, 8, b"12345678"));
        assert_eq!(sink.len(), 64);
        assert!(sink.fits(8) && !sink.fits(9) && !sink.fits_plus(0));
        assert!(!sink.push(9, 3, 8, b"123456789"));
        assert_eq!(sink.len(), 64, "what does not fit leaves nothing behind");
        let (head, rest) = Dirent::read_from_prefix(&memory).unwrap();
        assert_eq!(head, Dirent { ino: 7, off: 1, namelen: 3, kind: 4 });
        assert_eq!(&rest[..8], b"abc\0\0\0\0\0");
        let (head, rest) = Dirent::read_from_prefix(&rest[8..]).unwrap();
        assert_eq!((head.ino, head.off), (8, 2));
        assert_eq!(&rest[..8], b"12345678");
    }

    #[test]
    fn entries_stand_in_front() {
        let mut memory = [0; 256];
        let mut sink = DirentSink::new(&mut memory);
        let entry = EntryOut { nodeid: 5, ..EntryOut::default() };
        assert!(sink.push_plus(&entry, 7, 1, 4, b"x"));
        assert_eq!(sink.len(), 160);
        assert!(!sink.push_plus(&entry, 7, 1, 4, b"x"));
        assert_eq!(EntryOut::read_from_prefix(&memory).unwrap().0.nodeid, 5);
        assert_eq!(Dirent::read_from_prefix(&memory[ENTRY..]).unwrap().0.ino, 7);
    }

    #[test]
    fn absurd_lengths_do_not_fit() {
        let mut memory = [0; 64];
        let sink = DirentSink::new(&mut memory);
        assert!(!sink.fits(usize::MAX) && !sink.fits_plus(usize::MAX - 7));
    }
}
