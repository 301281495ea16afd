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
    /// The text is not as many hexadecimal digits as any algorithm's hash has.
    #[error("a digest has 64 hexadecimal digits (sha256) or 128 (sha512)")]
    Digits,
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

    /// Reads what [`formatted`](Self::formatted) writes; `None` where the bytes are something else.
    #[must_use]
    pub fn from_formatted(bytes: &[u8]) -> Option<Self> {
        let hash = bytes.get(12..)?;
        Algorithm::ALL
            .into_iter()
            .filter_map(|algorithm| Self::new(algorithm, hash).ok())
            .find(|digest| digest.formatted() == bytes)
    }

    /// Reads a digest as people copy it: `sha256:HEX`, or the digits alone, whose number tells the algorithm.
    ///
    /// # Errors
    /// Where it is neither, or has too many digits or too few.
    pub fn from_text(text: &str) -> Result<Self, DigestError> {
        if text.contains(':') {
            return text.parse();
        }
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| 2 * algorithm.digest_len() == text.len());
        let mut digest = Self::zero(algorithm.ok_or(DigestError::Digits)?);
        hex::read(text, &mut digest.bytes).map(|_| digest).ok_or(DigestError::Digits)
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
    fn digits_alone_tell_their_algorithm() {
        let digest: Digest = EMPTY.parse().unwrap();
        assert_eq!(Digest::from_text(&EMPTY[7..]), Ok(digest));
        assert_eq!(Digest::from_text(EMPTY), Ok(digest));
        assert_eq!(Digest::from_text(&"ab".repeat(64)).unwrap().algorithm(), Algorithm::Sha512);
        for wrong in ["", &EMPTY[8..], &"ab".repeat(33), &"xy".repeat(32), &"é".repeat(32)] {
            assert_eq!(Digest::from_text(wrong), Err(DigestError::Digits), "{wrong}");
        }
        assert!(Digest::from_text(&EMPTY[..70]).is_err());
    }

    #[test]
    fn a_formatted_digest_is_read_back() {
        for digest in [EMPTY.parse().unwrap(), Digest::zero(Algorithm::Sha512)] {
            let bytes = digest.formatted();
            assert_eq!(Digest::from_formatted(&bytes), Some(digest));
            assert_eq!(Digest::from_formatted(&bytes[1..]), None);
            assert_eq!(Digest::from_formatted(&bytes[..bytes.len() - 1]), None);
            assert_eq!(Digest::from_formatted(&[&b"X"[..], &bytes[1..]].concat()), None);
        }
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
