//! A file made of extents: the range map that most file systems need.

use std::os::fd::AsFd;
use std::sync::Arc;

use shuntfs_wire::Errno;
use thiserror::Error;

use crate::delegation::LowerFile;
use crate::range_map::{RangeMap, RangeSource};

/// Some bytes of a file, and where they come from.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Where in the file they begin.
    pub offset: u64,
    /// How many; [`Extent::REST`] for all that follow, however many there are or come to be.
    pub len: u64,
    /// Where they come from.
    pub source: RangeSource,
}

impl Extent {
    /// The length of what has no end of its own.
    pub const REST: u64 = u64::MAX;
}

/// A file made of extents, without overlaps or gaps, from offset 0 on.
///
/// One extent that is [`Extent::REST`] of a lower file from its start is that file: opens are lifted to passthrough.
#[derive(Debug)]
pub struct Extents {
    pieces: Box<[Extent]>,
    end: u64,
}

/// What is wrong with a list of extents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ExtentsError {
    /// An extent of no bytes.
    #[error("the extent at {offset} has no bytes")]
    Empty {
        /// Of the extent.
        offset: u64,
    },
    /// Two extents say where the same byte comes from.
    #[error("the extent at {offset} begins before the one before it ends")]
    Overlap {
        /// Of the later extent.
        offset: u64,
    },
    /// No extent says where a byte comes from.
    #[error("nothing is said of the bytes before {offset}")]
    Gap {
        /// Of the extent behind the gap.
        offset: u64,
    },
    /// The extent, or what it names of its lower file, goes beyond the largest offset of a file.
    #[error("the extent at {offset} goes beyond the largest offset of a file")]
    Overflow {
        /// Of the extent.
        offset: u64,
    },
    /// The lower file ends before the extent does.
    #[error("the extent at {offset} goes beyond the end of its lower file, which has {lower_len} bytes")]
    BeyondEnd {
        /// Of the extent.
        offset: u64,
        /// The lower file's size.
        lower_len: u64,
    },
    /// Zeroes, or nothing, without an end.
    #[error("the extent at {offset} has no end of its own, so it needs a length")]
    Endless {
        /// Of the extent.
        offset: u64,
    },
    /// The lower file does not tell its size.
    #[error("the lower file of the extent at {offset} does not tell its size ({errno})")]
    Unknown {
        /// Of the extent.
        offset: u64,
        /// What it tells instead.
        errno: Errno,
    },
}

impl ExtentsError {
    /// What an open answers with that cannot be composed.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Empty { .. }
            | Self::Overlap { .. }
            | Self::Gap { .. }
            | Self::Overflow { .. }
            | Self::Endless { .. } => Errno::INVAL,
            Self::BeyondEnd { .. } => Errno::IO,
            Self::Unknown { errno, .. } => *errno,
        }
    }
}

/// The largest size of a file.
const SIZE_MAX: u64 = i64::MAX.unsigned_abs();

impl Extents {
    /// A file of these extents, in whatever order they are given. Lower files are asked for their sizes; one that
    /// shrinks later ends a reply early.
    ///
    /// # Errors
    /// [`ExtentsError`].
    pub fn new(extents: impl IntoIterator<Item = Extent>) -> Result<Self, ExtentsError> {
        let mut pieces: Vec<Extent> = Vec::new();
        let mut given: Vec<Extent> = extents.into_iter().collect();
        given.sort_by_key(|extent| extent.offset);
        let mut end = 0;
        for extent in given {
            let offset = extent.offset;
            match offset.cmp(&end) {
                std::cmp::Ordering::Less => return Err(ExtentsError::Overlap { offset }),
                std::cmp::Ordering::Greater => return Err(ExtentsError::Gap { offset }),
                std::cmp::Ordering::Equal => {}
            }
            end = check(&extent)?;
            pieces.push(extent);
        }
        Ok(Self { pieces: pieces.into(), end })
    }

    /// These lower files, ranges of them, and zeroes, one behind the other.
    ///
    /// # Errors
    /// [`ExtentsError`].
    pub fn concat(parts: impl IntoIterator<Item = (RangeSource, u64)>) -> Result<Self, ExtentsError> {
        let mut next = Some(0_u64);
        let extents = parts.into_iter().map(|(source, len)| {
            let offset = next.unwrap_or(u64::MAX);
            next = offset.checked_add(len);
            Extent { offset, len, source }
        });
        Self::new(extents)
    }

    /// How many bytes the file has; `None` where its last extent goes on forever.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        (self.end <= SIZE_MAX).then_some(self.end)
    }
}

/// Where an extent ends.
fn check(extent: &Extent) -> Result<u64, ExtentsError> {
    let Extent { offset, len, ref source } = *extent;
    if len == 0 {
        return Err(ExtentsError::Empty { offset });
    }
    if len == Extent::REST {
        return match source {
            RangeSource::Lower(_, from) if *from > SIZE_MAX => Err(ExtentsError::Overflow { offset }),
            RangeSource::Lower(..) | RangeSource::Served => Ok(u64::MAX),
            _ => Err(ExtentsError::Endless { offset }),
        };
    }
    let fits = |from: u64| from.checked_add(len).filter(|end| *end <= SIZE_MAX);
    let end = fits(offset).ok_or(ExtentsError::Overflow { offset })?;
    match source {
        RangeSource::Lower(file, from) => {
            let wanted = fits(*from).ok_or(ExtentsError::Overflow { offset })?;
            let lower_len = size_of(file).map_err(|errno| ExtentsError::Unknown { offset, errno })?;
            if wanted > lower_len { Err(ExtentsError::BeyondEnd { offset, lower_len }) } else { Ok(end) }
        }
        RangeSource::End => Err(ExtentsError::Endless { offset }),
        _ => Ok(end),
    }
}

fn size_of(file: &Arc<LowerFile>) -> Result<u64, Errno> {
    let found = shuntfs_sys::stat_of(file.as_fd());
    found.map(|found| found.size).map_err(|error| Errno::from_lower(error.raw_os_error()))
}

impl RangeMap for Extents {
    fn source(&self, offset: u64) -> (RangeSource, u64) {
        let behind = self.pieces.partition_point(|piece| piece.offset <= offset);
        let Some(piece) = behind.checked_sub(1).map(|index| &self.pieces[index]) else {
            return (RangeSource::End, u64::MAX);
        };
        let into = offset - piece.offset;
        let Some(left) = piece.len.checked_sub(into).filter(|left| *left > 0) else {
            return (RangeSource::End, u64::MAX);
        };
        let left = if piece.len == Extent::REST { u64::MAX } else { left };
        match &piece.source {
            RangeSource::Lower(file, from) => {
                (RangeSource::Lower(Arc::clone(file), from.saturating_add(into)), left)
            }
            other => (other.clone(), left),
        }
    }
}

#[cfg(test)]
mod test {
    use std::io::Write;

    use super::*;
    use crate::range_map::{lifted, run};

    fn lower(len: usize) -> Arc<LowerFile> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; len]).unwrap();
        Arc::new(LowerFile::new(file.into()))
    }

    fn extent(offset: u64, len: u64, source: RangeSource) -> Extent {
        Extent { offset, len, source }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let file = lower(1000);
        let from = |from| RangeSource::Lower(Arc::clone(&file), from);
        let zeroes = RangeSource::Zeroes;
        let cases = [
            (vec![extent(0, 0, zeroes.clone())], ExtentsError::Empty { offset: 0 }),
            (vec![extent(1, 1, zeroes.clone())], ExtentsError::Gap { offset: 1 }),
            (vec![extent(0, 5, from(0)), extent(6, 1, from(0))], ExtentsError::Gap { offset: 6 }),
            (vec![extent(4, 2, from(0)), extent(0, 5, from(0))], ExtentsError::Overlap { offset: 4 }),
            (vec![extent(0, 5, from(0)), extent(0, 5, from(0))], ExtentsError::Overlap { offset: 0 }),
            (vec![extent(0, 1001, from(0))], ExtentsError::BeyondEnd { offset: 0, lower_len: 1000 }),
            (vec![extent(0, 1, from(1000))], ExtentsError::BeyondEnd { offset: 0, lower_len: 1000 }),
            (vec![extent(0, 2, from(u64::MAX))], ExtentsError::Overflow { offset: 0 }),
            (vec![extent(0, u64::MAX - 1, zeroes.clone())], ExtentsError::Overflow { offset: 0 }),
            (vec![extent(0, Extent::REST, from(u64::MAX))], ExtentsError::Overflow { offset: 0 }),
            (vec![extent(0, Extent::REST, zeroes.clone())], ExtentsError::Endless { offset: 0 }),
            (vec![extent(0, 5, RangeSource::End)], ExtentsError::Endless { offset: 0 }),
            (
                vec![extent(0, Extent::REST, from(0)), extent(9, 1, zeroes)],
                ExtentsError::Overlap { offset: 9 },
            ),
        ];
        for (extents, error) in cases {
            let what = format!("{extents:?}");
            assert_eq!(Extents::new(extents).unwrap_err(), error, "{what}");
            assert_ne!(error.errno(), Errno::NOSYS);
        }
        let parts = [(RangeSource::Served, Extent::REST), (RangeSource::Served, 1)];
        assert!(Extents::concat(parts).is_err(), "behind what has no end");
    }

    #[test]
    fn each_byte_has_its_source() {
        let (one, two) = (lower(1000), lower(1000));
        let file = Extents::concat([
            (RangeSource::Served, 10),
            (RangeSource::Lower(Arc::clone(&one), 100), 400),
            (RangeSource::Lower(Arc::clone(&one), 500), 500),
            (RangeSource::Zeroes, 90),
            (RangeSource::Lower(Arc::clone(&two), 0), 1000),
        ])
        .unwrap();
        assert_eq!(file.size(), Some(2000));
        let lower_at = |offset, wanted| match run(&file, offset, wanted) {
            (RangeSource::Lower(file, from), len) => (Arc::ptr_eq(&file, &one), from, len),
            other => panic!("{other:?} at {offset}"),
        };
        assert!(matches!(run(&file, 0, 50), (RangeSource::Served, 10)));
        assert_eq!(lower_at(10, 5000), (true, 100, 900), "in one go");
        assert_eq!(lower_at(909, 5000), (true, 999, 1));
        assert!(matches!(run(&file, 910, 5000), (RangeSource::Zeroes, 90)));
        assert_eq!(lower_at(1500, 5000), (false, 500, 500));
        assert!(matches!(run(&file, 2000, 5000), (RangeSource::End, _)));
        assert!(matches!(run(&file, u64::MAX, 5000), (RangeSource::End, _)));
    }

    /// A file of random extents, some of them wrong, against a list of where each byte comes from.
    #[test]
    fn random_lists_are_refused_or_right() {
        let file = lower(500);
        let mut seed = 0x5eed_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let (mut good, mut bad) = (0, 0);
        for round in 0..3000 {
            let mut bytes: Vec<Option<u64>> = Vec::new();
            let mut extents = Vec::new();
            for _ in 0..random(8) {
                let (offset, len, from) = (bytes.len() as u64, 1 + random(100), random(400));
                let is_lower = random(2) == 0;
                bytes.extend((0..len).map(|at| is_lower.then_some(from + at)));
                let from = RangeSource::Lower(Arc::clone(&file), from);
                extents.push(extent(offset, len, if is_lower { from } else { RangeSource::Zeroes }));
            }
            if let (Some(at), 0) = (extents.len().checked_sub(1), random(3)) {
                let wrong = &mut extents[usize::try_from(random(at as u64 + 1)).unwrap()];
                let numbers = [0, 1, 99, 1 << 40, u64::MAX - 1, u64::MAX];
                let number = numbers[usize::try_from(random(6)).unwrap()];
                match random(3) {
                    0 => wrong.offset = number,
                    1 => wrong.len = number,
                    _ => wrong.source = RangeSource::Lower(Arc::clone(&file), number),
                }
                match Extents::new(extents) {
                    Ok(map) => drop([0, 1, 50, u64::MAX].map(|at| map.source(at))),
                    Err(error) => {
                        bad += 1;
                        assert!(!error.to_string().is_empty());
                    }
                }
                continue;
            }
            good += 1;
            let map = Extents::new(extents).unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(map.size(), Some(bytes.len() as u64));
            let mut at = 0;
            while at < bytes.len() {
                let (source, len) = run(&map, at as u64, 70);
                for (index, byte) in bytes[at..].iter().take(len).enumerate() {
                    match (&source, byte) {
                        (RangeSource::Lower(_, from), Some(wanted)) => {
                            assert_eq!(from + index as u64, *wanted, "round {round}, byte {at} + {index}");
                        }
                        (RangeSource::Zeroes, None) => {}
                        other => panic!("round {round}, byte {at} + {index}: {other:?}"),
                    }
                }
                at += len;
            }
            assert_eq!(at, bytes.len(), "round {round}: a run ends where the file does");
            assert!(matches!(run(&map, at as u64, 70), (RangeSource::End, _)));
        }
        assert!(good > 1000 && bad > 300, "{good} good, {bad} bad");
    }

    #[test]
    fn a_whole_file_is_lifted_and_a_part_is_not() {
        use crate::open_flags::OpenFlags;
        let file = lower(1000);
        let whole = |len| Extents::concat([(RangeSource::Lower(Arc::clone(&file), 0), len)]).unwrap();
        assert!(lifted(&whole(Extent::REST), OpenFlags(0)).is_some());
        assert_eq!(whole(Extent::REST).size(), None);
        assert!(lifted(&whole(1000), OpenFlags(0)).is_none(), "the lower file may grow");
        let none = Extents::new([]).unwrap();
        assert!(lifted(&none, OpenFlags(0)).is_none());
        assert_eq!(none.size(), Some(0));
    }
}
