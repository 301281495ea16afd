//! ed25519 keys and signatures.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{
    DecodePrivateKey as _, DecodePublicKey as _, EncodePrivateKey as _, EncodePublicKey as _, KeypairBytes,
};
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use pkcs8::PrivateKeyInfoRef;
use pkcs8::pkcs5::pbes2::Parameters;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::{Message, Zeroizing};
use crate::{Digest, hex};

/// What a private key is called in PEM where a passphrase protects it.
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
/// What OWASP advises for PBKDF2 with HMAC-SHA-256 (2023): about a quarter of a second for each guess.
const ROUNDS: u32 = 600_000;

/// Whether a text is a private key that a passphrase protects.
#[must_use]
pub fn is_encrypted(text: &str) -> bool {
    text.trim_start().strip_prefix("-----BEGIN ").is_some_and(|rest| rest.starts_with(ENCRYPTED))
}

/// Why a key cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is no such key.
    #[error("not an ed25519 private key in PEM (PKCS #8)")]
    Private,
    /// The text is no such key.
    #[error("not an ed25519 public key in PEM (SubjectPublicKeyInfo)")]
    Public,
    /// The text is a private key that a passphrase protects.
    #[error("the key is encrypted: its passphrase is needed")]
    Encrypted,
    /// The passphrase is another one, or the text was changed.
    #[error("the passphrase is wrong, or the key is encrypted in a way that is not known")]
    Passphrase,
    /// The text is a private key where a public one is wanted.
    #[error("this is a private key; the public one is wanted (KEY.pub)")]
    PrivateForPublic,
    /// A key for which signatures over anything can be made up.
    #[error("a weak key")]
    Weak,
    /// The text is no key id.
    #[error("a key id is 32 hexadecimal digits")]
    Id,
    /// The system has no randomness.
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
}

/// A signature that does not prove what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the signature is not this key's over this")]
pub struct SignatureError;

/// Names a public key: the first 16 bytes of the SHA-256 of its SubjectPublicKeyInfo. Good for finding a key, not for
/// trusting one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 16]);

/// Hexadecimal digits.
impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KeyId {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut id = [0; 16];
        if hex::read(text, &mut id) == Some(id.len()) { Ok(Self(id)) } else { Err(KeyError::Id) }
    }
}

/// An ed25519 signature: 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature(pub [u8; Signature::LEN]);

impl Signature {
    /// Bytes in a signature.
    pub const LEN: usize = 64;
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(f, &self.0)
    }
}

/// Proves that a signature was checked, and says whose it is: only [`PublicKey`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "without it nothing shows that the signature was checked"]
pub struct Signed {
    key: KeyId,
}

impl Signed {
    /// The key that signed.
    #[must_use]
    pub const fn key(&self) -> KeyId {
        self.key
    }
}

/// A private key with its public one. Its memory is overwritten when it goes.
pub struct KeyPair {
    key: SigningKey,
}

impl KeyPair {
    /// Makes a new key.
    ///
    /// # Errors
    /// Where the system has no random numbers.
    pub fn generate() -> Result<Self, KeyError> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(secret.as_mut()).map_err(KeyError::Random)?;
        Ok(Self { key: SigningKey::from_bytes(&secret) })
    }

    /// Reads what [`to_pem`](Self::to_pem), or `openssl genpkey -algorithm ed25519`, writes.
    ///
    /// # Errors
    /// Where the text is no such key, or an encrypted one.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        if is_encrypted(text) {
            return Err(KeyError::Encrypted);
        }
        let key = SigningKey::from_pkcs8_pem(text.trim()).map_err(|_| KeyError::Private)?;
        Ok(Self { key })
    }

    /// Reads what [`to_encrypted_pem`](Self::to_encrypted_pem), or `openssl pkcs8 -topk8`, writes: PBES2 with AES, and scrypt or
    /// PBKDF2 with SHA-2.
    ///
    /// # Errors
    /// Where the text is no such key, or the passphrase is not its.
    pub fn from_encrypted_pem(text: &str, passphrase: &[u8]) -> Result<Self, KeyError> {
        if !is_encrypted(text) {
            return Err(KeyError::Private);
        }
        let key = SigningKey::from_pkcs8_encrypted_pem(text.trim(), passphrase);
        key.map(|key| Self { key }).map_err(|_| KeyError::Passphrase)
    }

    /// Writes the key encrypted: PBES2 with AES-256 in CBC mode and PBKDF2 with HMAC-SHA-256, which every `openssl` reads. With
    /// scrypt of a cost that is advised today `openssl` refuses for the memory it takes.
    ///
    /// # Errors
    /// Where the system has no random numbers.
    ///
    /// # Panics
    /// Never: a key of 32 bytes can be written.
    pub fn to_encrypted_pem(&self, passphrase: &[u8]) -> Result<Zeroizing<String>, KeyError> {
        let (mut salt, mut iv) = ([0; 16], [0; 16]);
        getrandom::fill(&mut salt).and_then(|()| getrandom::fill(&mut iv)).map_err(KeyError::Random)?;
        let how =
            Parameters::generate_pbkdf2_sha256_aes256cbc(ROUNDS, &salt, iv).expect("a salt of 16 bytes");
        let plain = KeypairBytes { secret_key: self.key.to_bytes(), public_key: None };
        let plain = plain.to_pkcs8_der().expect("32 bytes can be written");
        let info = PrivateKeyInfoRef::try_from(plain.as_bytes()).expect("was written just now");
        let secret = info.encrypt_with_params(how, passphrase).expect("so few bytes can be encrypted");
        Ok(secret.to_pem(ENCRYPTED, LineEnding::LF).expect("has a name"))
    }

    /// Writes the key as PKCS #8 version 1, the one that every `openssl` reads.
    ///
    /// # Panics
    /// Never: a key of 32 bytes can be written.
    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        let bytes = KeypairBytes { secret_key: self.key.to_bytes(), public_key: None };
        bytes.to_pkcs8_pem(LineEnding::LF).expect("32 bytes can be written")
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey { key: self.key.verifying_key() }
    }

    /// Signs a file: its formatted digest.
    #[must_use]
    pub fn sign_digest(&self, digest: &Digest) -> Signature {
        Signature(self.key.sign(&digest.formatted()).to_bytes())
    }

    /// Signs a message.
    #[must_use]
    pub fn sign_message(&self, message: &Message) -> Signature {
        Signature(self.key.sign(message.as_bytes()).to_bytes())
    }
}

/// Nothing of the private key.
impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public().id()).finish_non_exhaustive()
    }
}

/// A public key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
}

impl PublicKey {
    /// Reads what [`to_pem`](Self::to_pem), or `openssl pkey -pubout`, writes.
    ///
    /// # Errors
    /// Where the text is no such key, or one with which signatures can be made up.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        if text.starts_with("-----BEGIN PRIVATE KEY-----") || is_encrypted(text) {
            return Err(KeyError::PrivateForPublic);
        }
        let key = VerifyingKey::from_public_key_pem(text).map_err(|_| KeyError::Public)?;
        if key.is_weak() {
            return Err(KeyError::Weak);
        }
        Ok(Self { key })
    }

    /// Writes the key as SubjectPublicKeyInfo.
    ///
    /// # Panics
    /// Never: a key of 32 bytes can be written.
    #[must_use]
    pub fn to_pem(&self) -> String {
        self.key.to_public_key_pem(LineEnding::LF).expect("32 bytes can be written")
    }

    /// The key's name.
    ///
    /// # Panics
    /// Never: a key of 32 bytes can be written.
    #[must_use]
    pub fn id(&self) -> KeyId {
        let info = self.key.to_public_key_der().expect("32 bytes can be written");
        let hash: [u8; 32] = Sha256::digest(info.as_bytes()).into();
        let (id, _) = hash.split_first_chunk().expect("16 of 32 bytes");
        KeyId(*id)
    }

    /// Checks a file's signature.
    ///
    /// # Errors
    /// Where it is not this key's over this digest.
    pub fn verify_digest(&self, digest: &Digest, signature: &Signature) -> Result<Signed, SignatureError> {
        self.verify(&digest.formatted(), signature)
    }

    /// Checks a message's signature.
    ///
    /// # Errors
    /// Where it is not this key's over this message.
    pub fn verify_message(&self, message: &Message, signature: &Signature) -> Result<Signed, SignatureError> {
        self.verify(message.as_bytes(), signature)
    }

    fn verify(&self, bytes: &[u8], signature: &Signature) -> Result<Signed, SignatureError> {
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        // Strict: of one message and key there is one signature, and no weak key passes.
        self.key.verify_strict(bytes, &signature).map_err(|_| SignatureError)?;
        Ok(Signed { key: self.id() })
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PublicKey").field(&self.id()).finish()
    }
}
