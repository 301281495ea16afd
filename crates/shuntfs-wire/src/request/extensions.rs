//! What creations carry at their end: a security context and the folder's group.
//!
//! Each extension starts with its size in bytes, a multiple of 8, and its type; a size covers the whole
//! extension (`struct fuse_ext_header`).

use super::parse::ParseError;

/// Types below this are security contexts: the field counts them.
const MAX_NR_SECCTX: u32 = 31;
/// The folder's group (`FUSE_EXT_GROUPS`).
const EXT_GROUPS: u32 = 32;

/// The extensions of a creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extensions<'a> {
    contexts: &'a [u8],
    groups: &'a [u8],
}

/// Group numbers, one after the other.
#[derive(Clone, Debug)]
pub struct Groups<'a>(std::slice::ChunksExact<'a, u8>);

impl<'a> Extensions<'a> {
    pub(super) fn parse(mut bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut all = Self::default();
        while !bytes.is_empty() {
            let (size, kind) = (word(bytes, 0)?, word(bytes, 4)?);
            let size = size as usize;
            if size < 8 || !size.is_multiple_of(8) || size > bytes.len() {
                return Err(ParseError::Extensions);
            }
            let (one, rest) = bytes.split_at(size);
            let body = one.get(8..).ok_or(ParseError::Extensions)?;
            match kind {
                0..=MAX_NR_SECCTX => {
                    check_contexts(body, kind)?;
                    all.contexts = body;
                }
                EXT_GROUPS => {
                    let count = word(body, 0)? as usize;
                    let len = count.checked_mul(4).ok_or(ParseError::Extensions)?;
                    let groups = body.get(4..).and_then(|groups| groups.get(..len));
                    all.groups = groups.ok_or(ParseError::Extensions)?;
                }
                // One of a newer kernel: it was not agreed to, and says nothing here.
                _ => {}
            }
            bytes = rest;
        }
        Ok(all)
    }

    /// The supplementary groups that the kernel tells of: the folder's, where the caller is a member.
    #[must_use]
    pub fn groups(&self) -> Groups<'a> {
        Groups(self.groups.chunks_exact(4))
    }

    /// The folder's group where the caller has it as supplementary.
    #[must_use]
    pub fn supplementary_group(&self) -> Option<u32> {
        self.groups().next()
    }

    /// The security contexts, as they came: for each `size u32, padding u32, name NUL, context`.
    #[must_use]
    pub const fn security_contexts(&self) -> &'a [u8] {
        self.contexts
    }
}

impl Iterator for Groups<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0.next().and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes)
    }
}

/// Walks `count` contexts: `size u32, padding u32, name NUL, context`, one after the other.
fn check_contexts(mut bytes: &[u8], count: u32) -> Result<(), ParseError> {
    for _ in 0..count {
        let size = word(bytes, 0)? as usize;
        let name = bytes.get(8..).ok_or(ParseError::Extensions)?;
        let end = name.iter().position(|byte| *byte == 0).ok_or(ParseError::Extensions)?;
        let context = name.get(end + 1..).ok_or(ParseError::Extensions)?;
        bytes = context.get(size..).ok_or(ParseError::Extensions)?;
    }
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> Result<u32, ParseError> {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map(|word| u32::from_ne_bytes(*word)).ok_or(ParseError::Extensions)
}
