//! JPEG: segments, scans, and what follows the first image.

use memchr::{memchr, memmem};

use super::Odd;
use super::hidden::Hidden;
use super::part::Part;
use super::{iptc, tiff, xmp};

const START: &[u8] = b"\xff\xd8\xff";
const EXIF: &[u8] = b"Exif\0";
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const XMP_MORE: &[u8] = b"http://ns.adobe.com/xmp/extension/\0";
/// What of an extended XMP segment comes before its text: the signature, a digest, the full length, the offset.
const XMP_MORE_HEAD: usize = XMP_MORE.len() + 32 + 4 + 4;

/// Segments that are known to tell no place, by marker and first bytes.
const PLAIN: [(u8, &[u8]); 5] = [
    (0xe0, b"JFIF\0"),
    (0xe2, b"ICC_PROFILE\0"),
    (0xe2, b"MPF\0"),
    (0xe2, b"urn:iso:std:iso:ts:21496:-1\0"),
    (0xee, b"Adobe"),
];

/// Images one after another in one file, at most.
const IMAGES_MAX: usize = 64;

/// An image in an image, in an image.
const DEPTH_MAX: u32 = 2;

/// The longest that a segment's EXIF is.
const SEGMENT_MAX: usize = 1 << 16;

pub(super) fn is_jpeg(part: Part<'_>) -> bool {
    part.starts_with(START)
}

/// A file: an image, perhaps more images, perhaps something else, which is hidden.
pub(super) fn file(part: Part<'_>, hidden: &mut Hidden) -> Result<(), Odd> {
    let mut end = image(part, hidden, 0)?;
    for _ in 1..IMAGES_MAX {
        let rest = part.from(end)?;
        // Between images there may be room, which is left only where it is empty.
        let gap = rest.bytes().iter().take_while(|byte| **byte == 0).count();
        let Ok(next) = rest.from(gap) else { break };
        if !is_jpeg(next) {
            break;
        }
        let mark = hidden.mark();
        match image(next, hidden, 0) {
            Ok(len) => end += gap + len,
            Err(Odd) => {
                hidden.back_to(mark);
                break;
            }
        }
    }
    // Also what a file grows by is hidden: it was not looked at.
    hidden.hide_from(part.start() + end);
    stray_exif(part.part(0, end)?, hidden)
}

/// EXIF where none is expected, as in a maker's note: hidden, as long as it could be.
fn stray_exif(part: Part<'_>, hidden: &mut Hidden) -> Result<(), Odd> {
    for at in memmem::find_iter(part.bytes(), b"Exif\0\0") {
        if !hidden.walked.contains(&(part.start() + at + 6)) {
            let len = SEGMENT_MAX.min(part.len() - at);
            hidden.hide(part.part(at, len)?)?;
        }
    }
    Ok(())
}

/// One image, from its start; how long it is.
pub(super) fn image(part: Part<'_>, hidden: &mut Hidden, depth: u32) -> Result<usize, Odd> {
    if depth > DEPTH_MAX || !is_jpeg(part) {
        return Err(Odd);
    }
    let mut at = 2;
    let mut more = Vec::new();
    loop {
        if part.byte(at)? != 0xff {
            return Err(Odd);
        }
        while part.byte(at)? == 0xff {
            at += 1;
        }
        let marker = part.byte(at)?;
        at += 1;
        match marker {
            0xd9 => break,
            // No markers, or none that may stand here.
            0x00..=0xbf | 0xd0..=0xd8 => return Err(Odd),
            _ => {}
        }
        let len = part.be16(at)?;
        let body = part.part(at + 2, len.checked_sub(2).ok_or(Odd)?)?;
        at += len;
        match marker {
            0xda => at = end_of_scan(part, at)?,
            0xe1 if body.starts_with(XMP_MORE) => more.push(body),
            0xe0..=0xef | 0xfe => segment(marker, body, hidden, depth)?,
            _ => {}
        }
    }
    more_xmp(&more, hidden)?;
    Ok(at)
}

/// The next marker after entropy-coded bytes.
fn end_of_scan(part: Part<'_>, mut at: usize) -> Result<usize, Odd> {
    loop {
        at += memchr(0xff, part.from(at)?.bytes()).ok_or(Odd)?;
        match part.byte(at + 1)? {
            0x00 | 0xd0..=0xd7 => at += 2,
            0xff => at += 1,
            _ => return Ok(at),
        }
    }
}

fn segment(marker: u8, body: Part<'_>, hidden: &mut Hidden, depth: u32) -> Result<(), Odd> {
    match marker {
        0xe1 if body.starts_with(EXIF) => tiff::exif(body.from(EXIF.len() + 1)?, hidden, depth),
        0xe1 if body.starts_with(XMP) => xmp::packet(body.from(XMP.len())?, hidden),
        0xed if body.starts_with(iptc::SIGNATURE) => {
            iptc::resources(body.from(iptc::SIGNATURE.len())?, hidden)
        }
        // A comment.
        0xfe if !xmp::tells_place(body.bytes()) => Ok(()),
        _ if is_plain(marker, body) => Ok(()),
        _ => hidden.hide(body),
    }
}

fn is_plain(marker: u8, body: Part<'_>) -> bool {
    PLAIN.iter().any(|(plain, start)| *plain == marker && body.starts_with(start))
}

/// A long packet of XMP comes in pieces that may cut any word in two, so it is examined as one.
fn more_xmp(pieces: &[Part<'_>], hidden: &mut Hidden) -> Result<(), Odd> {
    let mut text = Vec::new();
    let mut in_order = true;
    for piece in pieces {
        in_order &= piece.be32(XMP_MORE_HEAD - 4) == Ok(text.len());
        text.extend_from_slice(piece.from(XMP_MORE_HEAD)?.bytes());
    }
    if in_order && !xmp::tells_place(&text) {
        return Ok(());
    }
    pieces.iter().try_for_each(|piece| hidden.hide(piece.from(XMP_MORE_HEAD)?))
}
