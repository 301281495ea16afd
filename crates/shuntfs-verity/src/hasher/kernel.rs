//! Ways of hashing, and which one is taken.

use std::fmt;
use std::str::FromStr;

use crate::Algorithm;

/// A way of hashing blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// One block at a time, by the crate `sha2`, which uses SHA instructions, too, where the processor has them.
    Plain,
    /// Two blocks at a time by SHA-NI. SHA-256 only.
    ShaNi,
    /// 16 blocks at a time (SHA-512: 8) by AVX-512; what is left over by the next best.
    Avx512,
}

impl Kernel {
    /// All of them, the fastest first.
    pub const ALL: &[Self] = &[Self::Avx512, Self::ShaNi, Self::Plain];

    /// Whether this processor has it for the algorithm.
    #[must_use]
    pub fn is_available(self, algorithm: Algorithm) -> bool {
        match (self, algorithm) {
            (Self::Plain, _) => true,
            #[cfg(target_arch = "x86_64")]
            (Self::ShaNi, Algorithm::Sha256) => super::sha256_ni::Cpu::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            (Self::Avx512, Algorithm::Sha256) => super::sha256_avx512::Cpu::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            (Self::Avx512, Algorithm::Sha512) => super::sha512_avx512::Cpu::detect().is_some(),
            _ => false,
        }
    }

    /// The fastest that this processor has.
    #[must_use]
    pub fn best(algorithm: Algorithm) -> Self {
        Self::ALL.iter().copied().find(|kernel| kernel.is_available(algorithm)).unwrap_or(Self::Plain)
    }

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::ShaNi => "sha-ni",
            Self::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kernel {
    type Err = UnknownKernel;

    fn from_str(text: &str) -> Result<Self, UnknownKernel> {
        Self::ALL.iter().copied().find(|kernel| kernel.name() == text).ok_or(UnknownKernel)
    }
}

/// A name that is no kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("none of avx512, sha-ni, plain")]
pub struct UnknownKernel;
