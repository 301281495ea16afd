//! Signatures over digests and messages.
//!
//! Keys are ed25519, in the PEM forms that `openssl` reads and writes (PKCS #8 and SubjectPublicKeyInfo), and a signature is
//! its 64 bytes: `openssl pkeyutl -verify -rawin` checks it, too. A file is signed over fs-verity's formatted digest, which binds
//! its bytes, size and parameters, but not its name; a [`Message`] binds whatever its parts say. [`pkcs7`] checks what
//! `fsverity sign` makes.

mod key;
mod mac;
mod message;
pub mod pkcs7;

pub use key::{KeyError, KeyId, KeyPair, PublicKey, Signature, SignatureError, Signed, is_encrypted};
pub use mac::MacKey;
pub use message::Message;
pub use zeroize::Zeroizing;
