//! Taking bytes apart: names, structs and records, each checked.

use std::ffi::CStr;

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::parse::ParseError;
use crate::Name;

/// The fixed struct, all of it.
pub(super) fn fixed<T: FromBytes>(bytes: &[u8]) -> Result<T, ParseError> {
    T::read_from_bytes(bytes).map_err(|_| ParseError::Fixed { got: bytes.len(), needed: size_of::<T>() })
}

/// A C string at the start, and what follows its NUL.
pub(super) fn string(bytes: &[u8]) -> Result<(&CStr, &[u8]), ParseError> {
    let text = CStr::from_bytes_until_nul(bytes).map_err(|_| ParseError::NoNul)?;
    let rest = bytes.get(text.to_bytes_with_nul().len()..).unwrap_or_default();
    Ok((text, rest))
}

/// A C string and nothing else.
pub(super) fn only_string(bytes: &[u8]) -> Result<&CStr, ParseError> {
    let (text, rest) = string(bytes)?;
    nothing(rest)?;
    Ok(text)
}

/// A name at the start, and what follows its NUL.
pub(super) fn name(bytes: &[u8]) -> Result<(Name<'_>, &[u8]), ParseError> {
    let (text, rest) = string(bytes)?;
    Ok((Name::new(text).ok_or(ParseError::Name)?, rest))
}

/// A name and nothing else.
pub(super) fn only_name(bytes: &[u8]) -> Result<Name<'_>, ParseError> {
    let (name, rest) = name(bytes)?;
    nothing(rest)?;
    Ok(name)
}

/// Two names and nothing else.
pub(super) fn two_names(bytes: &[u8]) -> Result<(Name<'_>, Name<'_>), ParseError> {
    let (first, rest) = name(bytes)?;
    Ok((first, only_name(rest)?))
}

/// Data of exactly the length that was announced.
pub(super) fn data(bytes: &[u8], announced: u32) -> Result<&[u8], ParseError> {
    if bytes.len() == announced as usize {
        return Ok(bytes);
    }
    Err(ParseError::Data { got: bytes.len(), announced })
}

/// Exactly `count` records.
pub(super) fn records<T>(bytes: &[u8], count: u32) -> Result<&[T], ParseError>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let all = <[T]>::ref_from_bytes(bytes).ok().filter(|all| all.len() == count as usize);
    all.ok_or(ParseError::Data { got: bytes.len(), announced: count })
}

/// Nothing more.
pub(super) fn nothing(bytes: &[u8]) -> Result<(), ParseError> {
    if bytes.is_empty() { Ok(()) } else { Err(ParseError::Trailing { got: bytes.len() }) }
}
