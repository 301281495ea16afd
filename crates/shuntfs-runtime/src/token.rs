//! What a completion belongs to, as it travels in a submission's `user_data`.

/// Whose completion it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token {
    /// The transport's entry in this slot.
    Entry(u32),
    /// The read that the entry in this slot is linked behind.
    Link(u32),
    /// An operation that a future awaits.
    Op(u32),
    /// The queue's bell.
    Bell,
    /// The device that requests are read from.
    Device,
    /// The end of the device's connection.
    End,
    /// An attempt to end an operation early, which failed.
    Cancel,
}

const KIND_SHIFT: u32 = 32;

impl Token {
    /// The token as `user_data`.
    #[must_use]
    pub fn encode(self) -> u64 {
        let (kind, index) = match self {
            Self::Entry(index) => (0, index),
            Self::Link(index) => (1, index),
            Self::Op(index) => (2, index),
            Self::Bell => (3_u64, 0),
            Self::Device => (4, 0),
            Self::Cancel => (5, 0),
            Self::End => (6, 0),
        };
        (kind << KIND_SHIFT) | u64::from(index)
    }

    /// The token in `user_data`; `None` for what [`Token::encode`] never made.
    #[must_use]
    pub fn decode(user_data: u64) -> Option<Self> {
        let index = u32::try_from(user_data & u64::from(u32::MAX)).ok()?;
        let of_slot = [Self::Entry(index), Self::Link(index), Self::Op(index)];
        let all = of_slot.into_iter().chain([Self::Bell, Self::Device, Self::Cancel, Self::End]);
        all.into_iter().find(|token| token.encode() == user_data)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn tokens_survive_the_ring() {
        let entries = [Token::Entry(0), Token::Entry(u32::MAX), Token::Link(7), Token::Op(9)];
        for token in entries.into_iter().chain([Token::Bell, Token::Device, Token::Cancel, Token::End]) {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(u64::MAX), None);
        assert_eq!(Token::decode((3 << 32) | 1), None);
    }
}
