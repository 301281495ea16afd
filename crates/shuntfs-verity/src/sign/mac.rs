//! Tags by which whoever wrote something down knows it again: HMAC-SHA-256, of which 16 bytes are kept.
//!
//! Unlike a signature a tag is made and checked with the same secret, so it is for one's own notes alone.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::{KeyPair, Message, Zeroizing};

/// A secret that tags are made with.
#[derive(Clone)]
pub struct MacKey {
    keyed: Hmac<Sha256>,
}

impl MacKey {
    /// Bytes in a tag.
    pub const TAG_LEN: usize = 16;

    /// Takes a secret.
    ///
    /// # Panics
    /// Never: a key of HMAC may have any length.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        Self { keyed: Hmac::new_from_slice(secret).expect("a key of any length is taken") }
    }

    /// Derives a secret from a private key, another one for each purpose. It is the hash of a signature over the purpose, which
    /// ed25519 makes equal each time and which nobody else can make; so a purpose must never be signed for anybody.
    #[must_use]
    pub fn derived(from: &KeyPair, purpose: &Message) -> Self {
        let signature = Zeroizing::new(from.sign_message(purpose).0);
        let secret: Zeroizing<[u8; 32]> = Zeroizing::new(Sha256::digest(signature.as_slice()).into());
        Self::new(&secret)
    }

    /// The tag of some bytes.
    #[must_use]
    pub fn tag(&self, bytes: &[u8]) -> [u8; Self::TAG_LEN] {
        let whole = self.keyed.clone().chain_update(bytes).finalize().into_bytes();
        *whole.first_chunk().expect("SHA-256 has 32 bytes")
    }

    /// Whether a tag is that of some bytes; takes the same time whichever byte differs.
    #[must_use]
    pub fn is_tag_of(&self, bytes: &[u8], tag: &[u8; Self::TAG_LEN]) -> bool {
        self.keyed.clone().chain_update(bytes).verify_truncated_left(tag).is_ok()
    }
}

/// Nothing of the secret.
impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MacKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn tags_are_those_of_hmac_sha256() {
        // RFC 4231, test case 1, whose key of 20 bytes HMAC pads with zeroes as it does ours.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let wanted =
            [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53, 0x5c, 0xa8, 0xaf, 0xce, 0xaf, 0x0b, 0xf1, 0x2b];
        assert_eq!(MacKey::new(&key).tag(b"Hi There"), wanted);
    }

    #[test]
    fn a_tag_is_of_one_secret_and_of_one_text() {
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let purpose = |text: &str| Message::new("test").part(text.as_bytes());
        let key = MacKey::derived(&one, &purpose("a"));
        let tag = key.tag(b"text");
        assert!(MacKey::derived(&one, &purpose("a")).is_tag_of(b"text", &tag));
        assert!(!MacKey::derived(&one, &purpose("b")).is_tag_of(b"text", &tag));
        assert!(!MacKey::derived(&other, &purpose("a")).is_tag_of(b"text", &tag));
        assert!(!key.is_tag_of(b"texts", &tag));
        for bit in 0..MacKey::TAG_LEN * 8 {
            let mut tag = tag;
            tag[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.is_tag_of(b"text", &tag), "bit {bit}");
        }
    }
}
