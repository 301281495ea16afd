//! A part of a file that knows where it is. Every look is checked.

/// The file is not what it says it is, or more than this crate understands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Odd;

/// Some bytes of a file and their offset in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'b> {
    bytes: &'b [u8],
    start: usize,
}

impl<'b> Part<'b> {
    /// A whole file.
    pub(super) fn of(bytes: &'b [u8]) -> Self {
        Self { bytes, start: 0 }
    }

    pub(super) fn start(self) -> usize {
        self.start
    }

    pub(super) fn len(self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(self) -> &'b [u8] {
        self.bytes
    }

    /// `len` bytes from `at` on.
    pub(super) fn part(self, at: usize, len: usize) -> Result<Self, Odd> {
        let end = at.checked_add(len).ok_or(Odd)?;
        let bytes = self.bytes.get(at..end).ok_or(Odd)?;
        Ok(Self { bytes, start: self.start + at })
    }

    /// Everything from `at` on.
    pub(super) fn from(self, at: usize) -> Result<Self, Odd> {
        let bytes = self.bytes.get(at..).ok_or(Odd)?;
        Ok(Self { bytes, start: self.start + at })
    }

    pub(super) fn starts_with(self, with: &[u8]) -> bool {
        self.bytes.starts_with(with)
    }

    pub(super) fn byte(self, at: usize) -> Result<u8, Odd> {
        self.bytes.get(at).copied().ok_or(Odd)
    }

    pub(super) fn array<const N: usize>(self, at: usize) -> Result<[u8; N], Odd> {
        self.bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().ok_or(Odd)
    }

    pub(super) fn be16(self, at: usize) -> Result<usize, Odd> {
        self.array(at).map(|bytes| usize::from(u16::from_be_bytes(bytes)))
    }

    pub(super) fn be32(self, at: usize) -> Result<usize, Odd> {
        self.be(at, 4)
    }

    /// A big-endian number of 0, 2, 4 or 8 bytes.
    pub(super) fn be(self, at: usize, len: usize) -> Result<usize, Odd> {
        let number = match len {
            0 => 0,
            2 => u64::from(u16::from_be_bytes(self.array(at)?)),
            4 => u64::from(u32::from_be_bytes(self.array(at)?)),
            8 => u64::from_be_bytes(self.array(at)?),
            _ => return Err(Odd),
        };
        usize::try_from(number).map_err(|_| Odd)
    }
}
