//! A photo is walked, hidden where it tells a place, and read again by another reader.

use std::io::Cursor;

use exif::{Context, Reader};
use memchr::memmem;

use super::hidden::Hidden;
use super::part::{Odd, Part};
use super::{heif, jpeg};
use crate::ranges::Ranges;
use crate::redaction::LOOK_MAX;

/// What to hide of a file, so that it does not tell where it was taken.
pub(crate) fn location(bytes: &[u8]) -> Ranges {
    if bytes.is_empty() {
        return Ranges::none();
    }
    match walk(bytes) {
        Ok(ranges) if !still_tells(bytes, &ranges) => ranges,
        _ => Ranges::whole(),
    }
}

fn walk(bytes: &[u8]) -> Result<Ranges, Odd> {
    if bytes.len() as u64 > LOOK_MAX {
        return Err(Odd);
    }
    let (part, mut hidden) = (Part::of(bytes), Hidden::default());
    if jpeg::is_jpeg(part) {
        jpeg::file(part, &mut hidden)?;
    } else if heif::is_heif(part) {
        heif::file(part, &mut hidden)?;
    } else {
        return Err(Odd);
    }
    Ok(hidden.into_ranges())
}

/// Whether another reader still finds location in what is left.
fn still_tells(bytes: &[u8], hidden: &Ranges) -> bool {
    let mut left = bytes.to_vec();
    hidden.blank(0, &mut left);
    if memmem::find(&left, b"GPSLatitude").is_some() || memmem::find(&left, b"GPSLongitude").is_some() {
        return true;
    }
    let mut reader = Reader::new();
    reader.continue_on_error(true);
    let read = reader.read_from_container(&mut Cursor::new(&left));
    let fields = match read.or_else(|error| error.distill_partial_result(|_| ())) {
        Ok(fields) => fields,
        // Whatever it is, it has no EXIF that could be read.
        Err(exif::Error::NotFound(_) | exif::Error::BlankValue(_)) => return false,
        Err(_) => return true,
    };
    fields.fields().any(|field| field.tag.context() == Context::Gps)
}
