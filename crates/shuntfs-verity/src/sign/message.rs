//! Messages that say what they are for.
//!
//! A message is its context (what it is a signature for) and its parts, each with its length in front (32 bits for the
//! context, 64 for a part, little endian). So no two lists of parts make the same bytes, and none makes a formatted digest:
//! that would be a context of `FSVe` bytes, more than a context can have.

/// The longest context.
const CONTEXT_LEN_MAX: usize = 255;

/// What a signature that is not over a single file is made over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Starts a message, with what it is for: a name, a version, such as `shuntfs manifest 1`.
    ///
    /// # Panics
    /// Where the context is empty or has more than 255 bytes.
    #[must_use]
    pub fn new(context: &str) -> Self {
        assert!((1..=CONTEXT_LEN_MAX).contains(&context.len()), "a context has 1 to 255 bytes");
        let mut bytes = vec![context.len().to_le_bytes()[0], 0, 0, 0];
        bytes.extend_from_slice(context.as_bytes());
        Self { bytes }
    }

    /// Adds a part.
    #[must_use]
    pub fn part(mut self, part: &[u8]) -> Self {
        self.bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(part);
        self
    }

    /// Takes bytes for a message: its context and its parts; `None` where no message has these bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(&str, Vec<&[u8]>)> {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        if !(1..=CONTEXT_LEN_MAX).contains(&len) {
            return None;
        }
        let (context, mut rest) = rest.split_at_checked(len)?;
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let (len, behind) = rest.split_first_chunk::<8>()?;
            let (part, behind) = behind.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
            parts.push(part);
            rest = behind;
        }
        Some((std::str::from_utf8(context).ok()?, parts))
    }

    /// What is signed.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let message = |parts: &[&[u8]]| parts.iter().fold(Message::new("a"), |all, part| all.part(part));
        assert_eq!(message(&[b"bc"]).as_bytes(), b"\x01\0\0\0a\x02\0\0\0\0\0\0\0bc");
        assert_ne!(message(&[b"ab", b"c"]), message(&[b"a", b"bc"]));
        assert_ne!(message(&[b"", b"a"]), message(&[b"a"]));
        assert_ne!(message(&[]), message(&[b""]));
        assert_ne!(Message::new("ab"), Message::new("a").part(b"b"));
    }

    #[test]
    fn a_message_is_taken_apart_as_it_was_made() {
        let message = Message::new("ab").part(b"").part(b"part");
        let bytes = message.as_bytes();
        assert_eq!(Message::parse(bytes), Some(("ab", vec![&b""[..], b"part"])));
        assert_eq!(Message::parse(Message::new("ab").as_bytes()), Some(("ab", Vec::new())));
        let ends = [6, 14, bytes.len()];
        for len in (0..=bytes.len()).filter(|len| !ends.contains(len)) {
            assert_eq!(Message::parse(&bytes[..len]), None, "{len}");
        }
        for wrong in [&[0; 4][..], &[0, 1, 0, 0], &[1, 0, 0, 0, 0xff], &[255; 300]] {
            assert_eq!(Message::parse(wrong), None);
        }
    }

    #[test]
    #[should_panic(expected = "1 to 255")]
    fn a_context_is_not_empty() {
        let _ = Message::new("");
    }
}
