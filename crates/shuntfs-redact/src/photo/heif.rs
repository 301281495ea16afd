//! HEIF (and AVIF): boxes, and the items that one of them lists.
//!
//! What is left of the file are boxes that are known, and of the data only what items of known kinds of picture cover;
//! EXIF and XMP are looked into, anything else is hidden: tracks of video, unknown items, data that no item names.

use std::ops::Range;

use super::Odd;
use super::hidden::Hidden;
use super::part::Part;
use super::{tiff, xmp};

const BRANDS: [&[u8; 4]; 12] = [
    b"mif1", b"mif2", b"msf1", b"miaf", b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"avif",
    b"avis",
];

/// Boxes of the first that are known to tell no place.
const PLAIN_IN_META: [&[u8; 4]; 8] = [b"hdlr", b"pitm", b"iinf", b"iloc", b"iref", b"iprp", b"grpl", b"dinf"];

/// Items that are pictures, or say how pictures are put together.
const PICTURES: [&[u8; 4]; 8] = [b"hvc1", b"av01", b"grid", b"iden", b"iovl", b"tmap", b"avc1", b"vvc1"];

const BOXES_MAX: usize = 1 << 12;
const ITEMS_MAX: usize = 1 << 12;

pub(super) fn is_heif(part: Part<'_>) -> bool {
    let Ok((kind, body, _)) = next_box(part) else { return false };
    // The brand, a version, and brands that it may also be read as.
    let brands = body.bytes().chunks_exact(4).enumerate().filter(|(place, _)| *place != 1);
    kind == *b"ftyp" && brands.into_iter().any(|(_, brand)| BRANDS.iter().any(|known| brand == *known))
}

/// A file.
pub(super) fn file(part: Part<'_>, hidden: &mut Hidden) -> Result<(), Odd> {
    let mut meta = None;
    let mut data = Vec::new();
    for (kind, body) in boxes(part)? {
        match &kind {
            b"meta" if meta.is_none() => meta = Some(body),
            b"mdat" => data.push(body),
            b"ftyp" => {}
            _ => hidden.hide(body)?,
        }
    }
    let shown = pictures(part, meta.ok_or(Odd)?, &mut data, hidden)?;
    for body in data {
        hide_others(body, &shown, hidden)?;
    }
    // Also what the file grows by is hidden: it was not looked at.
    hidden.hide_from(part.start() + part.len());
    Ok(())
}

/// Where the data of pictures and of metadata that was looked into lies. The box of items' data is added to `data`.
fn pictures<'b>(
    file: Part<'b>,
    meta: Part<'b>,
    data: &mut Vec<Part<'b>>,
    hidden: &mut Hidden,
) -> Result<Vec<Range<usize>>, Odd> {
    let (mut info, mut places, mut own) = (None, None, None);
    // Behind version and flags.
    for (kind, body) in boxes(meta.from(4)?)? {
        let seen = match &kind {
            b"iinf" => info.replace(body).is_some(),
            b"iloc" => places.replace(body).is_some(),
            b"idat" => own.replace(body).is_some(),
            kind if PLAIN_IN_META.contains(&kind) => false,
            _ => {
                hidden.hide(body)?;
                false
            }
        };
        if seen {
            return Err(Odd);
        }
    }
    data.extend(own);
    let items = items(info.ok_or(Odd)?)?;
    let mut shown = Vec::new();
    for place in item_places(places.ok_or(Odd)?)? {
        let extents = place.extents(file, own)?;
        let Some((_, kind)) = items.iter().find(|(id, _)| *id == place.id) else { continue };
        let looked_into = match (kind, extents.as_slice()) {
            (kind, _) if PICTURES.contains(&kind) => true,
            (b"Exif", [extent]) => {
                let header = extent.be32(0)?;
                tiff::exif(extent.from(4)?.from(header)?, hidden, 0)?;
                // What stands before the header is useless.
                hidden.hide(extent.part(4, header)?)?;
                true
            }
            (b"mime", [extent]) => {
                xmp::packet(*extent, hidden)?;
                true
            }
            _ => false,
        };
        if looked_into {
            shown.extend(extents.iter().map(|extent| extent.start()..extent.start() + extent.len()));
        }
    }
    shown.sort_unstable_by_key(|range| range.start);
    // Two items may not share bytes: what is hidden for one would be missing from the other.
    let overlap = shown.windows(2).any(|pair| pair[1].start < pair[0].end);
    if overlap { Err(Odd) } else { Ok(shown) }
}

/// Hides what of a box of data is not shown.
fn hide_others(body: Part<'_>, shown: &[Range<usize>], hidden: &mut Hidden) -> Result<(), Odd> {
    let end = body.start() + body.len();
    let mut at = body.start();
    for range in shown.iter().filter(|range| range.start < end && range.end > body.start()) {
        if range.start < at || range.end > end {
            return Err(Odd);
        }
        hidden.hide(body.part(at - body.start(), range.start - at)?)?;
        at = range.end;
    }
    hidden.hide(body.from(at - body.start())?)
}

/// Ids and types of the items.
fn items(info: Part<'_>) -> Result<Vec<(usize, [u8; 4])>, Odd> {
    let start = if info.byte(0)? == 0 { 6 } else { 8 };
    let mut items = Vec::new();
    for (kind, body) in boxes(info.from(start)?)? {
        let (id, at) = match (&kind, body.byte(0)?) {
            (b"infe", 2) => (body.be16(4)?, 8),
            (b"infe", 3) => (body.be32(4)?, 10),
            _ => return Err(Odd),
        };
        if items.iter().any(|(known, _)| *known == id) {
            return Err(Odd);
        }
        items.push((id, body.array(at)?));
    }
    Ok(items)
}

/// Where one item's data lies.
#[derive(Debug)]
struct Place {
    id: usize,
    method: usize,
    extents: Vec<(usize, usize)>,
}

impl Place {
    fn extents<'b>(&self, file: Part<'b>, own: Option<Part<'b>>) -> Result<Vec<Part<'b>>, Odd> {
        let within = match self.method {
            0 => file,
            1 => own.ok_or(Odd)?,
            _ => return Err(Odd),
        };
        self.extents.iter().map(|(at, len)| within.part(*at, *len)).collect()
    }
}

fn item_places(body: Part<'_>) -> Result<Vec<Place>, Odd> {
    let version = body.byte(0)?;
    if version > 2 {
        return Err(Odd);
    }
    let (sizes, more_sizes) = (body.byte(4)?, body.byte(5)?);
    let half = |byte: u8| (usize::from(byte >> 4), usize::from(byte & 15));
    let ((offset_len, length_len), (base_len, index_len)) = (half(sizes), half(more_sizes));
    let index_len = if version == 0 { 0 } else { index_len };
    let id_len = if version == 2 { 4 } else { 2 };
    let mut at = 6;
    let mut take = |len: usize| {
        at += len;
        body.be(at - len, len)
    };
    let count = take(id_len)?;
    let mut places: Vec<Place> = Vec::new();
    let mut extents_count = 0;
    for _ in 0..count {
        let id = take(id_len)?;
        let method = if version == 0 { 0 } else { take(2)? & 15 };
        let from_elsewhere = take(2)? != 0;
        let base = take(base_len)?;
        let mut extents = Vec::new();
        for _ in 0..take(2)? {
            let _index = take(index_len)?;
            let start = base.checked_add(take(offset_len)?).ok_or(Odd)?;
            let len = take(length_len)?;
            extents_count += 1;
            // No length is "all there is", which no camera writes.
            if len == 0 || extents_count > ITEMS_MAX {
                return Err(Odd);
            }
            extents.push((start, len));
        }
        if from_elsewhere || places.len() >= ITEMS_MAX || places.iter().any(|place| place.id == id) {
            return Err(Odd);
        }
        places.push(Place { id, method, extents });
    }
    Ok(places)
}

type Boxes<'b> = Vec<([u8; 4], Part<'b>)>;

fn boxes(part: Part<'_>) -> Result<Boxes<'_>, Odd> {
    let mut boxes = Vec::new();
    let mut rest = part;
    while rest.len() > 0 {
        let (kind, body, len) = next_box(rest)?;
        boxes.push((kind, body));
        rest = rest.from(len)?;
        if boxes.len() > BOXES_MAX {
            return Err(Odd);
        }
    }
    Ok(boxes)
}

/// The first box: its type, what is in it, and its length with its head.
fn next_box(part: Part<'_>) -> Result<([u8; 4], Part<'_>, usize), Odd> {
    let kind = part.array(4)?;
    let (head, len) = match part.be32(0)? {
        0 => (8, part.len()),
        1 => (16, part.be(8, 8)?),
        len => (8, len),
    };
    let body = part.part(head, len.checked_sub(head).ok_or(Odd)?)?;
    Ok((kind, body, len))
}
