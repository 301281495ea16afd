//! The seal: which manifest is the tree's, and who says so.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | `shuntsel` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | number of signatures, at most 16 |
//! | 16 | 256 | the manifest's descriptor, as fs-verity has it |
//! | 272 | 84 each | a signature: its kind, 1 for ed25519 (4 bytes), the key's id (16), the signature (64) |
//!
//! Little endian. A signature is over the message `shuntfs manifest 1` whose only part is the formatted digest of the
//! manifest, so it is valid for nothing else, and nothing else for it.

use std::path::Path;

use shuntfs_verity::sign::{KeyId, KeyPair, Message, PublicKey, Signature};
use shuntfs_verity::{DESCRIPTOR_LEN, Descriptor};

use crate::StoreError;

const MAGIC: [u8; 8] = *b"shuntsel";
const VERSION: u32 = 1;
const HEAD_LEN: usize = 16 + DESCRIPTOR_LEN;
const SIGNATURE_LEN: usize = 4 + 16 + Signature::LEN;
const SIGNATURES_MAX: usize = 16;
const ED25519: u32 = 1;
const CONTEXT: &str = "shuntfs manifest 1";

/// Length of the longest seal.
pub(crate) const SEAL_LEN_MAX: usize = HEAD_LEN + SIGNATURES_MAX * SIGNATURE_LEN;

/// A signature of a seal; whether it is good is for [`Seal::check`] to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SealSignature {
    /// Names the key; anybody can write any name here.
    pub key: KeyId,
    /// The signature.
    pub signature: Signature,
}

/// What a store says is the manifest of its tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seal {
    descriptor: Descriptor,
    signatures: Vec<SealSignature>,
}

impl Seal {
    /// A seal over a manifest, signed by each of these keys, of which the first 16 count.
    #[must_use]
    pub fn new(descriptor: Descriptor, keys: &[&KeyPair]) -> Self {
        let message = message(&descriptor);
        let sign =
            |key: &&KeyPair| SealSignature { key: key.public().id(), signature: key.sign_message(&message) };
        Self { descriptor, signatures: keys.iter().take(SIGNATURES_MAX).map(sign).collect() }
    }

    /// The manifest's descriptor.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The signatures, unchecked.
    #[must_use]
    pub fn signatures(&self) -> &[SealSignature] {
        &self.signatures
    }

    /// Reads a seal.
    ///
    /// # Errors
    /// A sentence that says why it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (head, signatures) = bytes.split_first_chunk::<HEAD_LEN>().ok_or("the seal is truncated")?;
        let (magic, rest) = head.split_first_chunk::<8>().ok_or("the seal is truncated")?;
        let (version, rest) = rest.split_first_chunk::<4>().ok_or("the seal is truncated")?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or("the seal is truncated")?;
        let descriptor = rest.first_chunk::<DESCRIPTOR_LEN>().ok_or("the seal is truncated")?;
        if *magic != MAGIC {
            return Err("it does not start as a seal".into());
        }
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(format!("the seal has version {version} of the format, and only version 1 is known"));
        }
        let count = usize::try_from(u32::from_le_bytes(*count)).unwrap_or(usize::MAX);
        if count > SIGNATURES_MAX || signatures.len() != count * SIGNATURE_LEN {
            return Err(format!("the seal is not as long as one with {count} signatures"));
        }
        let descriptor =
            Descriptor::parse(descriptor).map_err(|error| format!("the manifest's descriptor: {error}"))?;
        if !descriptor.params().block_size().is_for_sealing() {
            return Err("the manifest's descriptor: a block size that is not offered".into());
        }
        let signatures =
            signatures.chunks_exact(SIGNATURE_LEN).map(parse_signature).collect::<Result<_, _>>()?;
        Ok(Self { descriptor, signatures })
    }

    /// The bytes of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = u32::try_from(self.signatures.len()).expect("at most 16");
        let mut bytes = Vec::with_capacity(SEAL_LEN_MAX);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&self.descriptor.to_bytes());
        for SealSignature { key, signature } in &self.signatures {
            bytes.extend_from_slice(&ED25519.to_le_bytes());
            bytes.extend_from_slice(&key.0);
            bytes.extend_from_slice(&signature.0);
        }
        bytes
    }

    /// Finds a good signature of one of these keys; `path` is for what is said otherwise.
    ///
    /// # Errors
    /// There is no signature, none of these keys', or one of theirs over something else.
    pub fn check(&self, keys: &[PublicKey], path: &Path) -> Result<KeyId, StoreError> {
        let message = message(&self.descriptor);
        let mut wrong = None;
        for SealSignature { key: id, signature } in &self.signatures {
            for key in keys.iter().filter(|key| key.id() == *id) {
                match key.verify_message(&message, signature) {
                    Ok(signed) => return Ok(signed.key()),
                    Err(_) => wrong = Some(id.to_string()),
                }
            }
        }
        let path = path.to_owned();
        match wrong {
            Some(key) => Err(StoreError::WrongSignature { path, key }),
            None if self.signatures.is_empty() => Err(StoreError::Unsigned(path)),
            None => {
                let signers: Vec<String> = self.signatures.iter().map(|one| one.key.to_string()).collect();
                Err(StoreError::Untrusted { path, signers: signers.join(", ") })
            }
        }
    }
}

fn message(descriptor: &Descriptor) -> Message {
    Message::new(CONTEXT).part(&descriptor.digest().formatted())
}

fn parse_signature(bytes: &[u8]) -> Result<SealSignature, String> {
    let (kind, rest) = bytes.split_first_chunk::<4>().ok_or("a signature is truncated")?;
    let (key, rest) = rest.split_first_chunk::<16>().ok_or("a signature is truncated")?;
    let signature = rest.first_chunk::<{ Signature::LEN }>().ok_or("a signature is truncated")?;
    match u32::from_le_bytes(*kind) {
        ED25519 => Ok(SealSignature { key: KeyId(*key), signature: Signature(*signature) }),
        kind => Err(format!("a signature of kind {kind}, and only kind 1 is known")),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_verity::{Algorithm, Digest, Params};

    fn descriptor() -> Descriptor {
        Descriptor::new(&Params::default(), 300, Digest::new(Algorithm::Sha256, &[7; 32]).unwrap()).unwrap()
    }

    #[test]
    fn a_seal_is_read_as_it_was_written() {
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        for keys in [&[][..], &[&one], &[&one, &other]] {
            let seal = Seal::new(descriptor(), keys);
            assert_eq!(Seal::parse(&seal.to_bytes()), Ok(seal));
        }
    }

    #[test]
    fn what_is_no_seal_is_refused() {
        let key = KeyPair::generate().unwrap();
        let bytes = Seal::new(descriptor(), &[&key]).to_bytes();
        for len in 0..bytes.len() {
            Seal::parse(&bytes[..len]).unwrap_err();
        }
        Seal::parse(&[&bytes[..], &[0]].concat()).unwrap_err();
        for at in [0, 8, 12, 272] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x40;
            Seal::parse(&bytes).unwrap_err();
        }
    }

    #[test]
    fn a_signature_is_the_keys_and_over_this_manifest() {
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let path = Path::new("seal");
        let seal = Seal::new(descriptor(), &[&one]);
        assert_eq!(seal.check(&[other.public(), one.public()], path).unwrap(), one.public().id());
        assert!(matches!(seal.check(&[other.public()], path), Err(StoreError::Untrusted { .. })));
        assert!(matches!(seal.check(&[], path), Err(StoreError::Untrusted { .. })));
        let unsigned = Seal::new(descriptor(), &[]);
        assert!(matches!(unsigned.check(&[one.public()], path), Err(StoreError::Unsigned(_))));
        // Every bit of key, signature and descriptor counts.
        let bytes = seal.to_bytes();
        for bit in [16 * 8 + 80, (16 + 8) * 8, 276 * 8, 292 * 8, bytes.len() * 8 - 1] {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let refused = Seal::parse(&bytes).map(|seal| seal.check(&[one.public()], path).is_err());
            assert_ne!(refused, Ok(false), "bit {bit}");
        }
    }
}
