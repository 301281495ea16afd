//! EXIF: TIFF's folders of tags, in either byte order.
//!
//! A folder of GPS tags is hidden whole, with the values that its entries point to: for a reader it is then an empty
//! folder. Folders must not overlap each other, and no value of a GPS tag may lie in a folder; else the hiding would change
//! what the others say.

use std::ops::Range;

use super::Odd;
use super::hidden::Hidden;
use super::part::Part;
use super::{jpeg, xmp};

/// Folders and entries of one EXIF, at most.
const FOLDERS_MAX: usize = 64;
const ENTRIES_MAX: usize = 1 << 14;

/// Tags that point to folders.
const GPS: u16 = 0x8825;
const SUB_FOLDERS: [u16; 4] = [0x8769, 0xa005, 0x014a, 0x0190];
/// A small picture: where it is, and how long.
const THUMBNAIL: u16 = 0x0201;
const THUMBNAIL_LEN: u16 = 0x0202;
/// An XMP packet.
const XMP: u16 = 0x02bc;
/// Tags whose values are hidden: IPTC, Photoshop's resources, the tags of GeoTIFF.
const PLACES: [u16; 8] = [0x83bb, 0x8649, 0x830e, 0x8482, 0x85d8, 0x87af, 0x87b0, 0x87b1];

/// EXIF, from the TIFF header on.
pub(super) fn exif(part: Part<'_>, hidden: &mut Hidden, depth: u32) -> Result<(), Odd> {
    let big = match part.array(0)? {
        [b'I', b'I', 42, 0] => false,
        [b'M', b'M', 0, 42] => true,
        _ => return Err(Odd),
    };
    let mut walk =
        Walk { part, big, depth, folders: Vec::new(), next: Vec::new(), entries: 0, values: Vec::new() };
    let first = walk.offset(4)?;
    walk.next.push((first, Kind::Chained));
    while let Some((at, kind)) = walk.next.pop() {
        walk.folder(at, kind, hidden)?;
    }
    walk.check_overlaps()?;
    hidden.walked.push(part.start());
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// One of the first row, which names the next.
    Chained,
    Sub,
    Gps,
}

struct Walk<'b> {
    part: Part<'b>,
    big: bool,
    depth: u32,
    /// Where the folders are that were walked.
    folders: Vec<Range<usize>>,
    /// Folders to walk.
    next: Vec<(usize, Kind)>,
    entries: usize,
    /// Where the values of GPS tags are.
    values: Vec<Range<usize>>,
}

/// One entry of a folder.
#[derive(Clone, Copy, Debug)]
struct Entry<'b> {
    tag: u16,
    kind: u16,
    count: usize,
    /// Where the value is: in the entry, or anywhere; `None` for a type of unknown size.
    value: Option<(usize, Part<'b>)>,
}

impl<'b> Walk<'b> {
    fn folder(&mut self, at: usize, kind: Kind, hidden: &mut Hidden) -> Result<(), Odd> {
        let count = usize::from(self.u16(at)?);
        self.entries += count;
        if self.entries > ENTRIES_MAX || self.folders.len() >= FOLDERS_MAX {
            return Err(Odd);
        }
        let tail = 2 + count * 12;
        // The last folder may lack the offset of the next one.
        let len = self.part.part(at, tail + 4).map_or(tail, |_| tail + 4);
        let folder = self.part.part(at, len)?;
        self.folders.push(at..at + len);
        let mut thumbnail = (None, None);
        for place in 0..count {
            let entry = self.entry(at + 2 + place * 12)?;
            match (kind, entry.tag) {
                (Kind::Gps, _) => self.gps_value(entry, hidden)?,
                (_, THUMBNAIL) => thumbnail.0 = Some(self.number(entry)?),
                (_, THUMBNAIL_LEN) => thumbnail.1 = Some(self.number(entry)?),
                _ => self.value(entry, hidden)?,
            }
        }
        if let (Some(at), Some(len)) = thumbnail {
            self.thumbnail(at, len, hidden)?;
        }
        match kind {
            Kind::Gps => hidden.hide(folder)?,
            Kind::Chained if len > tail => match self.offset(at + tail)? {
                0 => {}
                next => self.next.push((next, Kind::Chained)),
            },
            Kind::Chained | Kind::Sub => {}
        }
        Ok(())
    }

    fn entry(&self, at: usize) -> Result<Entry<'b>, Odd> {
        let (tag, kind, count) = (self.u16(at)?, self.u16(at + 2)?, self.offset(at + 4)?);
        let size = match kind {
            1 | 2 | 6 | 7 | 129 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 => 8,
            _ => return Ok(Entry { tag, kind, count, value: None }),
        };
        let len = count.checked_mul(size).ok_or(Odd)?;
        let place = if len <= 4 { at + 8 } else { self.offset(at + 8)? };
        Ok(Entry { tag, kind, count, value: Some((place, self.part.part(place, len)?)) })
    }

    fn gps_value(&mut self, entry: Entry<'b>, hidden: &mut Hidden) -> Result<(), Odd> {
        let (at, value) = entry.value.ok_or(Odd)?;
        if value.len() > 4 {
            self.values.push(at..at + value.len());
            hidden.hide(value)?;
        }
        Ok(())
    }

    fn value(&mut self, entry: Entry<'b>, hidden: &mut Hidden) -> Result<(), Odd> {
        let kind = match entry.tag {
            GPS => Kind::Gps,
            tag if SUB_FOLDERS.contains(&tag) => Kind::Sub,
            XMP => return xmp::packet(entry.value.ok_or(Odd)?.1, hidden),
            tag if PLACES.contains(&tag) => return hidden.hide(entry.value.ok_or(Odd)?.1),
            _ => return Ok(()),
        };
        // Folders are pointed to by LONG or IFD.
        let (at, _) = entry.value.filter(|_| matches!(entry.kind, 4 | 13)).ok_or(Odd)?;
        if entry.count > FOLDERS_MAX {
            return Err(Odd);
        }
        for place in 0..entry.count {
            let folder = self.offset(at + place * 4)?;
            self.next.push((folder, kind));
        }
        Ok(())
    }

    /// A small picture with metadata of its own; one that is not understood is hidden.
    fn thumbnail(&self, at: usize, len: usize, hidden: &mut Hidden) -> Result<(), Odd> {
        let picture = self.part.part(at, len)?;
        if len == 0 {
            return Ok(());
        }
        let mark = hidden.mark();
        match jpeg::image(picture, hidden, self.depth + 1) {
            Ok(end) => hidden.hide(picture.from(end)?),
            Err(Odd) => {
                hidden.back_to(mark);
                hidden.hide(picture)
            }
        }
    }

    fn check_overlaps(&mut self) -> Result<(), Odd> {
        self.folders.push(0..8);
        self.folders.sort_unstable_by_key(|range| range.start);
        if self.folders.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return Err(Odd);
        }
        let lies_in_folder = |value: &Range<usize>| {
            let after = self.folders.partition_point(|folder| folder.end <= value.start);
            self.folders.get(after).is_some_and(|folder| folder.start < value.end)
        };
        if self.values.iter().any(lies_in_folder) { Err(Odd) } else { Ok(()) }
    }

    /// A number that is one SHORT or LONG.
    fn number(&self, entry: Entry<'b>) -> Result<usize, Odd> {
        let (at, _) = entry.value.filter(|_| entry.count == 1).ok_or(Odd)?;
        match entry.kind {
            3 => self.u16(at).map(usize::from),
            4 | 13 => self.offset(at),
            _ => Err(Odd),
        }
    }

    fn u16(&self, at: usize) -> Result<u16, Odd> {
        let bytes = self.part.array(at)?;
        Ok(if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    /// A LONG, which is an offset or a count.
    fn offset(&self, at: usize) -> Result<usize, Odd> {
        let bytes = self.part.array(at)?;
        let number = if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        usize::try_from(number).map_err(|_| Odd)
    }
}
