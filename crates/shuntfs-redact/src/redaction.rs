//! What must be hidden of a file.

use std::fmt;

use crate::pattern::Pattern;
use crate::photo;
use crate::ranges::Ranges;

/// So many bytes of a file are examined, at most; a photo that is longer is hidden whole.
pub const LOOK_MAX: u64 = 64 << 20;

/// What must be read as zeroes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Redaction {
    /// Everything.
    Whole,
    /// These bytes.
    Ranges(Ranges),
    /// What a regular expression finds.
    Pattern(Pattern),
    /// Where a photo says it was taken: JPEG and HEIF; anything else is hidden whole.
    ExifGps,
    /// What any of these finds.
    All(Vec<Self>),
}

/// How many bytes of a file must be known to say what is hidden of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// None: what is hidden does not depend on what the file holds.
    Nothing,
    /// These many, from the start; what comes after is not hidden by what was found.
    First(u64),
    /// All, of a file of at most [`LOOK_MAX`] bytes; one that is longer is hidden whole.
    All,
}

impl Redaction {
    /// How much [`Redaction::find`] must be given.
    #[must_use]
    pub fn look(&self) -> Look {
        match self {
            Self::Whole | Self::Ranges(_) => Look::Nothing,
            Self::Pattern(pattern) => Look::First(pattern.first()),
            Self::ExifGps => Look::All,
            Self::All(parts) => parts.iter().map(Self::look).fold(Look::Nothing, Look::wider),
        }
    }

    /// The bytes to hide of a file that holds `bytes`, or, where [`Redaction::look`] says so, starts with them.
    ///
    /// Takes time and memory in proportion to the bytes, within [`LOOK_MAX`].
    #[must_use]
    pub fn find(&self, bytes: &[u8]) -> Ranges {
        match self {
            Self::Whole => Ranges::whole(),
            Self::Ranges(ranges) => ranges.clone(),
            Self::Pattern(pattern) => pattern.find(bytes).into_iter().collect(),
            Self::ExifGps => photo::location(bytes),
            Self::All(parts) => {
                parts.iter().fold(Ranges::none(), |found, part| found.union(&part.find(bytes)))
            }
        }
    }
}

impl Look {
    fn wider(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::First(one), Self::First(two)) => Self::First(one.max(two)),
            (Self::First(first), Self::Nothing) | (Self::Nothing, Self::First(first)) => Self::First(first),
            (Self::Nothing, Self::Nothing) => Self::Nothing,
        }
    }
}

impl fmt::Display for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("everything"),
            Self::Ranges(ranges) => write!(f, "bytes {ranges}"),
            Self::Pattern(pattern) => write!(f, "matches of {pattern}"),
            Self::ExifGps => f.write_str("exif-gps"),
            Self::All(parts) => {
                for (place, part) in parts.iter().enumerate() {
                    write!(f, "{}{part}", if place == 0 { "" } else { " and " })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn parts_are_put_together() {
        let pattern = Redaction::Pattern(Pattern::new("b+", 0, 100).unwrap());
        let ranges = Redaction::Ranges([0..1].into_iter().collect());
        assert_eq!(ranges.look(), Look::Nothing);
        let both = Redaction::All(vec![ranges, pattern]);
        assert_eq!(both.look(), Look::First(100));
        assert_eq!(both.find(b"aabbbcb").as_slice(), [0..1, 2..5, 6..7]);
        assert_eq!(both.to_string(), "bytes 0-0 and matches of \"b+\" in the first 100 bytes");
        let all = Redaction::All(vec![both, Redaction::ExifGps]);
        assert_eq!(all.look(), Look::All);
        assert!(all.find(b"no photo").is_whole());
        assert!(Redaction::Whole.find(b"").is_whole());
    }
}
