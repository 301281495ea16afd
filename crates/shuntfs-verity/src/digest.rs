//! Digests of files, and hashes of blocks.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::{Algorithm, hex};

/// A hash and its algorithm: a file's digest, a root hash, or the hash of one block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    /// Zero after the algorithm's length.
    bytes: [u8; 64],
}

/// Why a text or bytes are no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DigestError {
    /// The text is not `ALGORITHM:HEX`.
    #[error("a digest is written sha256:HEX or sha512:HEX")]
    Form,
    /// The number of bytes is not the algorithm's.
    #[error("a digest of {algorithm} has {} bytes, not {len}", .algorithm.digest_len())]
    Len {
        /// The algorithm named.
        algorithm: Algorithm,
        /// The bytes given.
        len: usize,
    },
}

impl Digest {
    /// Takes a hash's bytes.
    ///
    /// # Errors
    /// Where their number is not the algorithm's.
    pub fn new(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, DigestError> {
        if bytes.len() != algorithm.digest_len() {
            return Err(DigestError::Len { algorithm, len: bytes.len() });
        }
        let mut digest = Self::zero(algorithm);
        digest.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(digest)
    }

    /// All zeroes: the root hash of an empty file.
    #[must_use]
    pub const fn zero(algorithm: Algorithm) -> Self {
        Self { algorithm, bytes: [0; 64] }
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hash: 32 or 64 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.digest_len()]
    }

    /// What fs-verity's signatures are made over: `FSVerity`, algorithm and length (16 bits each, little endian), and the
    /// hash; 44 or 76 bytes (`struct fsverity_formatted_digest`).
    #[must_use]
    pub fn formatted(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12 + 64);
        out.extend_from_slice(b"FSVerity");
        out.extend_from_slice(&u16::from(self.algorithm.number()).to_le_bytes());
        let len: u16 = match self.algorithm {
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        };
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(self.as_bytes());
        out
    }

    /// The hash as hexadecimal digits, without the algorithm's name.
    #[must_use]
    pub fn to_hex(&self) -> String {
        format!("{:x}", self)
    }
}

impl fmt::LowerHex for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, self.as_bytes())
    }
}

/// `sha256:HEX`, as `fsverity` prints it.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.algorithm)?;
        hex::write(f, self.as_bytes())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let (name, digits) = text.split_once(':').ok_or(DigestError::Form)?;
        // By name only: `1:HEX` is nothing that anybody prints.
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        let algorithm = algorithm.ok_or(DigestError::Form)?;
        let mut digest = Self::zero(algorithm);
        let len = hex::read(digits, &mut digest.bytes).ok_or(DigestError::Form)?;
        if len != algorithm.digest_len() {
            return Err(DigestError::Len { algorithm, len });
        }
        Ok(digest)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const EMPTY: &str = "sha256:3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";

    #[test]
    fn what_is_printed_is_read() {
        let digest: Digest = EMPTY.parse().unwrap();
        assert_eq!(digest.to_string(), EMPTY);
        assert_eq!(EMPTY.replace("3d", "3D").parse(), Ok(digest));
        assert_eq!(Digest::new(Algorithm::Sha256, digest.as_bytes()), Ok(digest));
        let long = format!("sha512:{}", "ab".repeat(64));
        assert_eq!(long.parse::<Digest>().unwrap().to_string(), long);
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        let form = ["", "sha256", ":", "sha1:00", "1:00", "sha256:0", "sha256:xx", "sha256:é0"];
        for wrong in form {
            assert_eq!(wrong.parse::<Digest>(), Err(DigestError::Form), "{wrong:?}");
        }
        let len = |text: &str| matches!(text.parse::<Digest>(), Err(DigestError::Len { .. }));
        assert!(len("sha256:"));
        assert!(len(&format!("sha256:{}", "00".repeat(64))));
        assert!(len(&format!("sha512:{}", "00".repeat(32))));
        assert!(format!("sha512:{}", "00".repeat(65)).parse::<Digest>().is_err());
    }

    #[test]
    fn the_formatted_digest_is_the_kernels() {
        let digest: Digest = EMPTY.parse().unwrap();
        let formatted = digest.formatted();
        assert_eq!(&formatted[..12], b"FSVerity\x01\0\x20\0");
        assert_eq!(&formatted[12..], digest.as_bytes());
        let formatted = Digest::zero(Algorithm::Sha512).formatted();
        assert_eq!((&formatted[..12], formatted.len()), (&b"FSVerity\x02\0\x40\0"[..], 76));
    }
}
