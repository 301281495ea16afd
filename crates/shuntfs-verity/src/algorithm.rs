//! The two hash algorithms of fs-verity.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A hash algorithm of fs-verity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Algorithm {
    /// SHA-256, the default.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

/// A name or number that is no hash algorithm of fs-verity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("neither sha256 nor sha512")]
pub struct UnknownAlgorithm;

impl Algorithm {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// The name that `fsverity` prints.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// The number in descriptors and ioctls (`FS_VERITY_HASH_ALG_*`).
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    /// The algorithm of a number.
    ///
    /// # Errors
    /// For any number but 1 and 2.
    pub const fn from_number(number: u8) -> Result<Self, UnknownAlgorithm> {
        match number {
            1 => Ok(Self::Sha256),
            2 => Ok(Self::Sha512),
            _ => Err(UnknownAlgorithm),
        }
    }

    /// Bytes in a hash.
    #[must_use]
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Bytes that the algorithm takes in at a time; a salt is padded to it.
    #[must_use]
    pub const fn input_len(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Takes names and, as `fsverity` does, numbers.
    fn from_str(text: &str) -> Result<Self, UnknownAlgorithm> {
        match text {
            "sha256" | "1" => Ok(Self::Sha256),
            "sha512" | "2" => Ok(Self::Sha512),
            _ => Err(UnknownAlgorithm),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_and_numbers_go_both_ways() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            assert_eq!(algorithm.number().to_string().parse(), Ok(algorithm));
            assert_eq!(Algorithm::from_number(algorithm.number()), Ok(algorithm));
            assert_eq!(algorithm.input_len(), 2 * algorithm.digest_len());
        }
        for wrong in ["", "sha1", "SHA256", "sha256 ", "3", "01"] {
            assert_eq!(wrong.parse::<Algorithm>(), Err(UnknownAlgorithm), "{wrong:?}");
        }
        assert!([0, 3, 255].iter().all(|number| Algorithm::from_number(*number).is_err()));
    }
}
