//! Bytes as hexadecimal digits.

use std::fmt;

/// Writes bytes as lower-case digits.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Reads digits of either case into the front of `out`; `None` where a character is no digit, their number is odd or they
/// do not fit. Returns how many bytes they are.
pub(crate) fn read(text: &str, out: &mut [u8]) -> Option<usize> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() / 2 > out.len() {
        return None;
    }
    for (pair, byte) in digits.chunks_exact(2).zip(out.iter_mut()) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(digits.len() / 2)
}

const fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
