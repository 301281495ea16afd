//! What a tree is made with: algorithm, block size, salt.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::{Algorithm, hex};

/// The longest salt.
pub const SALT_LEN_MAX: usize = 32;

/// Why parameters are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// Files are sealed in blocks of 1 KiB to 64 KiB.
    #[error("a block size of {bytes} is no power of two from 1024 to 65536")]
    BlockSize {
        /// The size given.
        bytes: u32,
    },
    /// Not even the digest of a file is computed with such blocks.
    #[error("a block size of {bytes} is no power of two from {min} to 1073741824")]
    AnyBlockSize {
        /// The size given.
        bytes: u32,
        /// The least: two hashes.
        min: u32,
    },
    /// The salt is too long.
    #[error("a salt has at most 32 bytes, not {len}")]
    SaltLen {
        /// The bytes given.
        len: usize,
    },
    /// The salt is not written as hexadecimal digits.
    #[error("a salt is an even number of hexadecimal digits")]
    SaltDigits,
}

/// The size of a block, of data and tree alike: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize(u32);

impl BlockSize {
    /// The default: 4096 bytes.
    pub const DEFAULT: Self = Self(4096);
    const SEALED: std::ops::RangeInclusive<u32> = 1 << 10..=1 << 16;
    const ANY_MAX: u32 = 1 << 30;

    /// A size that files are sealed with: 1 KiB to 64 KiB.
    ///
    /// # Errors
    /// For every other number.
    pub fn new(bytes: u32) -> Result<Self, ParamsError> {
        let size = Self(bytes);
        if bytes.is_power_of_two() && size.is_for_sealing() {
            Ok(size)
        } else {
            Err(ParamsError::BlockSize { bytes })
        }
    }

    /// A size that `fsverity digest` takes: two hashes to 1 GiB.
    ///
    /// # Errors
    /// For every other number.
    pub fn any(bytes: u32, algorithm: Algorithm) -> Result<Self, ParamsError> {
        let min = if algorithm == Algorithm::Sha256 { 64 } else { 128 };
        if bytes.is_power_of_two() && (min..=Self::ANY_MAX).contains(&bytes) {
            Ok(Self(bytes))
        } else {
            Err(ParamsError::AnyBlockSize { bytes, min })
        }
    }

    /// Whether files are sealed, and verified while they are read, with this size.
    #[must_use]
    pub fn is_for_sealing(self) -> bool {
        Self::SEALED.contains(&self.0)
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// The size in bytes, as lengths of slices are counted.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0 as usize
    }

    /// Never: there are no empty blocks.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
    }

    /// The power of two.
    #[must_use]
    pub const fn log2(self) -> u8 {
        // At most 30.
        self.0.trailing_zeros().to_le_bytes()[0]
    }
}

impl Default for BlockSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Bytes that every block is hashed with: none, or up to 32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Salt {
    /// Zero after `len`.
    bytes: [u8; SALT_LEN_MAX],
    len: u8,
}

impl Salt {
    /// No salt.
    pub const NONE: Self = Self { bytes: [0; SALT_LEN_MAX], len: 0 };

    /// Takes a salt's bytes.
    ///
    /// # Errors
    /// Where they are more than [`SALT_LEN_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Self, ParamsError> {
        let mut salt = Self::NONE;
        let room = salt.bytes.get_mut(..bytes.len()).ok_or(ParamsError::SaltLen { len: bytes.len() })?;
        room.copy_from_slice(bytes);
        salt.len = bytes.len().to_le_bytes()[0];
        Ok(salt)
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Hexadecimal digits.
impl fmt::Display for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, self.as_bytes())
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Salt {
    type Err = ParamsError;

    fn from_str(text: &str) -> Result<Self, ParamsError> {
        if text.len() / 2 > SALT_LEN_MAX {
            return Err(ParamsError::SaltLen { len: text.len() / 2 });
        }
        let mut bytes = [0; SALT_LEN_MAX];
        let len = hex::read(text, &mut bytes).ok_or(ParamsError::SaltDigits)?;
        Self::new(&bytes[..len])
    }
}

/// What a tree is made with. The default is SHA-256, 4096 bytes, no salt, as `fsverity` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Params {
    algorithm: Algorithm,
    block_size: BlockSize,
    salt: Salt,
}

impl Params {
    /// Puts the three together.
    ///
    /// # Errors
    /// [`ParamsError::AnyBlockSize`] where a block does not hold two hashes.
    pub fn new(algorithm: Algorithm, block_size: BlockSize, salt: Salt) -> Result<Self, ParamsError> {
        let block_size = BlockSize::any(block_size.bytes(), algorithm)?;
        Ok(Self { algorithm, block_size, salt })
    }

    /// The algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The size of a block.
    #[must_use]
    pub const fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// The salt.
    #[must_use]
    pub const fn salt(&self) -> Salt {
        self.salt
    }

    /// Hashes in a block of the tree: at least two.
    #[must_use]
    pub const fn arity(&self) -> usize {
        self.block_size.len() / self.algorithm.digest_len()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn sealing_takes_1_to_64_kib() {
        let sealed: Vec<u32> =
            (0..32).map(|log2| 1 << log2).filter(|size| BlockSize::new(*size).is_ok()).collect();
        assert_eq!(sealed, [1024, 2048, 4096, 8192, 16384, 32768, 65536]);
        assert!([0, 1, 1025, 4095, 65535].iter().all(|size| BlockSize::new(*size).is_err()));
        assert_eq!(BlockSize::DEFAULT.log2(), 12);
    }

    #[test]
    fn the_digest_tool_takes_what_fsverity_takes() {
        let least =
            |algorithm| (0..32).map(|log2| 1 << log2).find(|size| BlockSize::any(*size, algorithm).is_ok());
        assert_eq!((least(Algorithm::Sha256), least(Algorithm::Sha512)), (Some(64), Some(128)));
        assert!(BlockSize::any(1 << 30, Algorithm::Sha256).is_ok());
        assert!(BlockSize::any(1 << 31, Algorithm::Sha256).is_err());
        let narrow = BlockSize::any(64, Algorithm::Sha256).unwrap();
        assert_eq!(Params::new(Algorithm::Sha256, narrow, Salt::NONE).unwrap().arity(), 2);
        assert!(Params::new(Algorithm::Sha512, narrow, Salt::NONE).is_err());
    }

    #[test]
    fn salts_are_at_most_32_bytes() {
        assert_eq!("".parse(), Ok(Salt::NONE));
        let salt: Salt = "00ff0A".parse().unwrap();
        assert_eq!((salt.as_bytes(), salt.to_string().as_str()), (&[0, 255, 10][..], "00ff0a"));
        assert_ne!(Salt::new(&[0]).unwrap(), Salt::NONE, "a salt of zeroes is a salt");
        assert_eq!(Salt::new(&[1; 33]), Err(ParamsError::SaltLen { len: 33 }));
        assert_eq!("11".repeat(33).parse::<Salt>(), Err(ParamsError::SaltLen { len: 33 }));
        assert!("11".repeat(32).parse::<Salt>().is_ok());
        for wrong in ["1", "0x", "zz"] {
            assert_eq!(wrong.parse::<Salt>(), Err(ParamsError::SaltDigits), "{wrong}");
        }
    }
}
