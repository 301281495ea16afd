//! The 256 bytes whose hash is a file's digest (`struct fsverity_descriptor`).
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 1 | algorithm, 1 or 2 |
//! | 2 | 1 | log2 of the block size |
//! | 3 | 1 | length of the salt |
//! | 4 | 4 | 0 (on disk the kernel keeps the length of a signature here, and hashes it as 0) |
//! | 8 | 8 | file size, little endian |
//! | 16 | 64 | root hash, zeroes after it |
//! | 80 | 32 | salt, zeroes after it |
//! | 112 | 144 | zeroes |

use thiserror::Error;

use crate::{Algorithm, BlockSize, Digest, FILE_SIZE_MAX, Params, SALT_LEN_MAX, Salt, hasher};

/// Bytes in a descriptor.
pub const DESCRIPTOR_LEN: usize = 256;

const VERSION: u8 = 1;

/// What a file's digest is the hash of: its size, how its tree is made, and the root hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    params: Params,
    file_size: u64,
    root_hash: Digest,
}

/// Why bytes are no descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// Of another version.
    #[error("version {0} of the descriptor is unknown")]
    Version(u8),
    /// Another algorithm.
    #[error("hash algorithm {0} is unknown")]
    Algorithm(u8),
    /// A block size that nobody has.
    #[error("a block size of 2^{0} is out of range")]
    BlockSize(u8),
    /// A salt beyond its field.
    #[error("a salt of {0} bytes is too long")]
    SaltLen(u8),
    /// A file larger than files can be.
    #[error("a file size of {0} is out of range")]
    FileSize(u64),
    /// Bytes that must be zero are not.
    #[error("the byte at {0} must be zero")]
    NotZero(usize),
    /// The root hash is of another algorithm than the parameters.
    #[error("the root hash is of another algorithm")]
    RootHash,
}

impl Descriptor {
    /// Puts a descriptor together.
    ///
    /// # Errors
    /// Where the root hash is of another algorithm than `params`, or the size beyond [`FILE_SIZE_MAX`].
    pub fn new(params: &Params, file_size: u64, root_hash: Digest) -> Result<Self, DescriptorError> {
        if root_hash.algorithm() != params.algorithm() {
            return Err(DescriptorError::RootHash);
        }
        if file_size > FILE_SIZE_MAX {
            return Err(DescriptorError::FileSize(file_size));
        }
        Ok(Self { params: *params, file_size, root_hash })
    }

    /// Reads a descriptor. Nothing of it can be trusted before its [`digest`](Self::digest) was compared.
    ///
    /// # Errors
    /// Where [`to_bytes`](Self::to_bytes) could not have made the bytes.
    pub fn parse(bytes: &[u8; DESCRIPTOR_LEN]) -> Result<Self, DescriptorError> {
        if bytes[0] != VERSION {
            return Err(DescriptorError::Version(bytes[0]));
        }
        let algorithm = Algorithm::from_number(bytes[1]).map_err(|_| DescriptorError::Algorithm(bytes[1]))?;
        let block_size = 1_u32.checked_shl(u32::from(bytes[2])).unwrap_or(0);
        let block_size =
            BlockSize::any(block_size, algorithm).map_err(|_| DescriptorError::BlockSize(bytes[2]))?;
        let salt_len = usize::from(bytes[3]);
        if salt_len > SALT_LEN_MAX {
            return Err(DescriptorError::SaltLen(bytes[3]));
        }
        let salt = Salt::new(&bytes[80..80 + salt_len]).expect("the length was checked");
        let digest_len = algorithm.digest_len();
        let zero = [4..8, 16 + digest_len..80, 80 + salt_len..DESCRIPTOR_LEN];
        if let Some(at) = zero.into_iter().flatten().find(|at| bytes[*at] != 0) {
            return Err(DescriptorError::NotZero(at));
        }
        let params = Params::new(algorithm, block_size, salt).expect("the block size was checked");
        let root_hash = Digest::new(algorithm, &bytes[16..16 + digest_len]).expect("the algorithm's length");
        let file_size = u64::from_le_bytes(bytes[8..16].try_into().expect("8 bytes"));
        Self::new(&params, file_size, root_hash)
    }

    /// The bytes, as `fsverity digest --out-descriptor` writes them.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; DESCRIPTOR_LEN] {
        let salt = self.params.salt();
        let mut out = [0; DESCRIPTOR_LEN];
        out[0] = VERSION;
        out[1] = self.params.algorithm().number();
        out[2] = self.params.block_size().log2();
        out[3] = salt.as_bytes().len().to_le_bytes()[0];
        out[8..16].copy_from_slice(&self.file_size.to_le_bytes());
        out[16..16 + self.root_hash.as_bytes().len()].copy_from_slice(self.root_hash.as_bytes());
        out[80..80 + salt.as_bytes().len()].copy_from_slice(salt.as_bytes());
        out
    }

    /// The file's digest: the unsalted hash of the bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        hasher::hash(self.params.algorithm(), &self.to_bytes())
    }

    /// The file's size in bytes.
    #[must_use]
    pub const fn file_size(&self) -> u64 {
        self.file_size
    }

    /// How the tree is made.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// The hash of the tree's first block; of the only data block where there is no tree; zeroes for an empty file.
    #[must_use]
    pub const fn root_hash(&self) -> &Digest {
        &self.root_hash
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const EMPTY: &str = "sha256:3d248ca542a24fc62d1c43b916eae5016878e2533c88238480b26128a1f1af95";

    fn descriptor() -> Descriptor {
        let salt = Salt::new(&[1, 2, 3]).unwrap();
        let params = Params::new(Algorithm::Sha256, BlockSize::new(65536).unwrap(), salt).unwrap();
        Descriptor::new(&params, 0x1234_5678_9abc, Digest::new(Algorithm::Sha256, &[7; 32]).unwrap()).unwrap()
    }

    #[test]
    fn the_empty_file_has_the_digest_that_is_known_by_heart() {
        let descriptor = Descriptor::new(&Params::default(), 0, Digest::zero(Algorithm::Sha256)).unwrap();
        assert_eq!(descriptor.digest().to_string(), EMPTY);
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = descriptor().to_bytes();
        assert_eq!(&bytes[..16], &[1, 1, 16, 3, 0, 0, 0, 0, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, 0, 0]);
        assert_eq!((&bytes[16..48], &bytes[80..83]), (&[7; 32][..], &[1, 2, 3][..]));
        assert_eq!(Descriptor::parse(&bytes), Ok(descriptor()));
    }

    #[test]
    fn every_field_is_checked() {
        let with = |at: usize, byte: u8| {
            let mut bytes = descriptor().to_bytes();
            bytes[at] = byte;
            Descriptor::parse(&bytes)
        };
        assert_eq!(with(0, 2), Err(DescriptorError::Version(2)));
        assert_eq!(with(1, 3), Err(DescriptorError::Algorithm(3)));
        for log2 in [0, 5, 31, 32, 255] {
            assert_eq!(with(2, log2), Err(DescriptorError::BlockSize(log2)));
        }
        assert_eq!(with(3, 33), Err(DescriptorError::SaltLen(33)));
        assert_eq!(with(3, 2), Err(DescriptorError::NotZero(82)));
        assert!(matches!(with(15, 0x80), Err(DescriptorError::FileSize(_))));
        for at in [4, 7, 48, 79, 83, 111, 112, 255] {
            assert_eq!(with(at, 1), Err(DescriptorError::NotZero(at)));
        }
    }

    #[test]
    fn a_root_hash_is_of_the_parameters_algorithm() {
        let refused = Descriptor::new(&Params::default(), 0, Digest::zero(Algorithm::Sha512));
        assert_eq!(refused, Err(DescriptorError::RootHash));
        let refused = Descriptor::new(&Params::default(), u64::MAX, Digest::zero(Algorithm::Sha256));
        assert_eq!(refused, Err(DescriptorError::FileSize(u64::MAX)));
    }
}
