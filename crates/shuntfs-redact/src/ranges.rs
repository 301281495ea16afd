//! Ranges of a file, in order and apart from each other.

use std::fmt;
use std::ops::Range;

/// Every byte.
const WHOLE: Range<u64> = 0..u64::MAX;

/// Bytes of a file, as ranges: in order, none empty, none touching the next.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Ranges {
    ranges: Vec<Range<u64>>,
}

impl Ranges {
    /// No bytes.
    #[must_use]
    pub const fn none() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Every byte, whatever the file's length.
    #[must_use]
    pub fn whole() -> Self {
        Self { ranges: vec![WHOLE] }
    }

    /// Whether every byte is meant.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.ranges == [WHOLE]
    }

    /// Whether no byte is meant.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges.
    #[must_use]
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Whether the byte at `offset` is meant.
    #[must_use]
    pub fn contains(&self, offset: u64) -> bool {
        self.run(offset).0
    }

    /// Whether the byte at `offset` is meant, and for how many bytes from there on that holds (at least 1).
    #[must_use]
    pub fn run(&self, offset: u64) -> (bool, u64) {
        let place = self.ranges.partition_point(|range| range.end <= offset);
        match self.ranges.get(place) {
            Some(range) if range.start <= offset => (true, range.end - offset),
            Some(range) => (false, range.start - offset),
            None => (false, (u64::MAX - offset).max(1)),
        }
    }

    /// These bytes, and those of `other`.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.ranges.iter().chain(&other.ranges).cloned().collect()
    }

    /// Puts zeroes in place of the meant bytes in `bytes`, which start at `offset` of the file.
    pub fn blank(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset.saturating_add(bytes.len() as u64);
        let first = self.ranges.partition_point(|range| range.end <= offset);
        for range in self.ranges[first..].iter().take_while(|range| range.start < end) {
            let from = usize::try_from(range.start.max(offset) - offset).unwrap_or(usize::MAX);
            let to = usize::try_from(range.end.min(end) - offset).unwrap_or(usize::MAX);
            bytes[from..to].fill(0);
        }
    }
}

/// In any order, overlapping or not; empty ones are left out.
impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut given: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        given.sort_unstable_by_key(|range| range.start);
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(given.len());
        for range in given {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }
}

/// `0-9,100-199`: first and last byte of each; `100-` goes to the end.
impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.ranges.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            match range.end {
                u64::MAX => write!(f, "{comma}{}-", range.start)?,
                end => write!(f, "{comma}{}-{}", range.start, end - 1)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn ranges_are_put_in_order_and_together() {
        let ranges: Ranges = [9..12, 0..3, 5..5, 3..4, 10..11, 20..u64::MAX].into_iter().collect();
        assert_eq!(ranges.as_slice(), [0..4, 9..12, 20..u64::MAX]);
        assert_eq!(ranges.to_string(), "0-3,9-11,20-");
        for (offset, inside) in [(0, true), (3, true), (4, false), (8, false), (9, true), (12, false)] {
            assert_eq!(ranges.contains(offset), inside, "{offset}");
        }
        assert!(ranges.contains(u64::MAX - 1) && !Ranges::none().contains(0));
        assert!(Ranges::whole().is_whole() && !ranges.is_whole() && Ranges::none().is_none());
    }

    #[test]
    fn runs_agree_with_asking_for_each_byte() {
        for ranges in [
            [0..2, 5..6, 9..14, 30..u64::MAX].into_iter().collect(),
            [3..5, 7..12].into_iter().collect(),
            Ranges::none(),
            Ranges::whole(),
        ] {
            for offset in 0..40 {
                let (is_meant, len) = ranges.run(offset);
                let end = offset.saturating_add(len);
                assert_eq!(is_meant, ranges.as_slice().iter().any(|range| range.contains(&offset)));
                assert!((offset..end.min(50)).all(|byte| ranges.contains(byte) == is_meant), "{offset}");
                assert!(len >= 1 && (end == u64::MAX || ranges.contains(end) != is_meant), "{offset}");
            }
            assert_eq!(ranges.run(u64::MAX), (false, 1));
        }
    }

    #[test]
    fn blanking_agrees_with_asking_for_each_byte() {
        let ranges: Ranges = [0..2, 5..6, 9..14, 30..u64::MAX].into_iter().collect();
        for offset in 0..40_u64 {
            for len in 0..20_usize {
                let mut bytes = vec![1; len];
                ranges.blank(offset, &mut bytes);
                for (place, byte) in bytes.iter().enumerate() {
                    assert_eq!(*byte == 0, ranges.contains(offset + place as u64), "{offset} {len} {place}");
                }
            }
        }
        ranges.blank(u64::MAX - 1, &mut [1; 8]);
    }
}
