//! XMP: text whose names say whether it tells a place.

use memchr::memmem;

use super::Odd;
use super::hidden::Hidden;
use super::part::Part;

/// Parts of names by which XMP tells a place; names of properties are fixed, their prefixes are not.
const WORDS: [&[u8]; 9] =
    [b"gps", b"location", b"latitude", b"longitude", b"geotag", b"wgs84", b":city", b":country", b":state"];

/// Hides a packet that tells a place, or that is no text that could be read here.
pub(super) fn packet(part: Part<'_>, hidden: &mut Hidden) -> Result<(), Odd> {
    if tells_place(part.bytes()) { hidden.hide(part) } else { Ok(()) }
}

/// Whether text names a place. UTF-16 and UTF-32 have NULs and count as if they did.
pub(super) fn tells_place(text: &[u8]) -> bool {
    if memchr::memchr(0, text).is_some() {
        return true;
    }
    let lower = text.to_ascii_lowercase();
    WORDS.iter().any(|word| memmem::find(&lower, word).is_some())
}
