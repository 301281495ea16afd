//! Photoshop's resources, of which one is IPTC, whose data sets have places among them.

use super::Odd;
use super::hidden::Hidden;
use super::part::Part;
use super::xmp;

/// What Photoshop's segments start with.
pub(super) const SIGNATURE: &[u8] = b"Photoshop 3.0\0";

/// Resources by number: IPTC; EXIF (twice) and XMP, which have their own segments and are hidden here.
const IPTC: usize = 0x0404;
const HIDDEN: [usize; 3] = [0x0422, 0x0423, 0x0424];

/// Data sets of IPTC's record 2 that tell a place: content location code and name, city, sublocation, state, country
/// code and name, original transmission reference.
const PLACES: [u8; 8] = [26, 27, 90, 92, 95, 100, 101, 103];

/// A segment's resources, without the signature. What does not add up is hidden as a whole.
pub(super) fn resources(part: Part<'_>, hidden: &mut Hidden) -> Result<(), Odd> {
    let mark = hidden.mark();
    if walk(part, hidden).is_err() {
        hidden.back_to(mark);
        hidden.hide(part)?;
    }
    Ok(())
}

fn walk(part: Part<'_>, hidden: &mut Hidden) -> Result<(), Odd> {
    let mut at = 0;
    while at < part.len() {
        let head = part.from(at)?;
        if !head.starts_with(b"8BIM") {
            return Err(Odd);
        }
        let number = head.be16(4)?;
        // The name with its length's byte is padded to an even length, and so is the data.
        let name_len = (usize::from(head.byte(6)?) + 1).next_multiple_of(2);
        let len = head.be32(6 + name_len)?;
        let data = head.part(10 + name_len, len)?;
        match number {
            IPTC => data_sets(data, hidden)?,
            number if HIDDEN.contains(&number) => hidden.hide(data)?,
            _ => {}
        }
        at += 10 + name_len + len.checked_next_multiple_of(2).ok_or(Odd)?;
    }
    Ok(())
}

fn data_sets(part: Part<'_>, hidden: &mut Hidden) -> Result<(), Odd> {
    let mut at = 0;
    while at < part.len() {
        let head = part.from(at)?;
        if head.byte(0)? == 0 && head.bytes().iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let ([0x1c, record, set], len) = (head.array(0)?, head.be16(3)?) else { return Err(Odd) };
        // The long form, which nothing that is meant to be read here uses.
        if len & 0x8000 != 0 {
            return Err(Odd);
        }
        let value = head.part(5, len)?;
        let hides = match record {
            2 => PLACES.contains(&set),
            1 => false,
            _ => xmp::tells_place(value.bytes()),
        };
        if hides {
            hidden.hide(value)?;
        }
        at += 5 + len;
    }
    Ok(())
}
