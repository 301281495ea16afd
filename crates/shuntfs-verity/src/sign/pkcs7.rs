//! Signatures as `fsverity sign` makes them: PKCS #7 `SignedData` over the formatted digest, detached, without signed attributes.
//!
//! As for the kernel, trust is a certificate that was given beforehand: nothing that a signature carries is trusted. Keys are RSA
//! of 2048 to 4096 bits or P-256. The kernel does not look at a certificate's dates, and neither does [`verify`]; who wants to asks
//! [`Certificate::is_valid_at`].

use std::fmt;
use std::time::SystemTime;

use cms::content_info::ContentInfo;
use cms::der::asn1::ObjectIdentifier;
use cms::der::{Decode as _, Document, Encode as _};
use cms::signed_data::{SignedData, SignerIdentifier, SignerInfo};
use cms::x509_cert::Certificate as X509;
use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use p256::pkcs8::DecodePublicKey as _;
use rsa::traits::PublicKeyParts as _;
use sha2::{Digest as _, Sha256, Sha512};
use thiserror::Error;

use crate::Digest;

/// A signature with more bytes cannot be given to the kernel either (`FS_VERITY_MAX_SIGNATURE_SIZE`).
pub const SIGNATURE_LEN_MAX: usize = 16128;

/// A larger key takes a signature beyond reason long to check.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.1");
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
const SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");
const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const RSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const RSA_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13");
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4");

/// Why a signature or certificate is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Pkcs7Error {
    /// Not a certificate.
    #[error("not an X.509 certificate in PEM or DER")]
    Certificate,
    /// A certificate's key is of a kind that is not used here.
    #[error("the certificate's key is neither RSA of 2048 to 4096 bits nor P-256")]
    Key,
    /// Not a signature.
    #[error("not a PKCS #7 signature in DER")]
    Form,
    /// Longer than [`SIGNATURE_LEN_MAX`].
    #[error("a signature has at most 16128 bytes")]
    TooLong,
    /// It carries content of its own, or what it is over is no plain data.
    #[error("the signature is not a detached one over plain data")]
    NotDetached,
    /// It is over attributes, which `fsverity sign` does not make.
    #[error("the signature is over attributes instead of the digest")]
    Attributes,
    /// A hash or signature algorithm that is not used here.
    #[error("the signature's algorithm is neither RSA (PKCS #1 v1.5) nor ECDSA with SHA-256 or SHA-512")]
    Algorithm,
    /// None of the trusted certificates is the signer's.
    #[error("signed by nobody whose certificate is trusted")]
    UnknownSigner,
    /// The signature is wrong.
    #[error("the signature is not the certificate's over this digest")]
    Signature,
}

/// Proves that a signature was checked: only [`verify`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "without it nothing shows that the signature was checked"]
pub struct SignedBy {
    index: usize,
}

impl SignedBy {
    /// Which of the trusted certificates signed.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }
}

/// A certificate that is trusted.
#[derive(Clone)]
pub struct Certificate {
    x509: X509,
    key: Key,
}

#[derive(Clone)]
enum Key {
    Rsa(Box<rsa::RsaPublicKey>),
    P256(Box<p256::ecdsa::VerifyingKey>),
}

impl Certificate {
    /// Reads a certificate in PEM or DER.
    ///
    /// # Errors
    /// Where the bytes are none, or its key is of a kind that is not used here.
    pub fn parse(bytes: &[u8]) -> Result<Self, Pkcs7Error> {
        let decoded;
        let der = if bytes.trim_ascii_start().starts_with(b"-----BEGIN CERTIFICATE-----") {
            let text = std::str::from_utf8(bytes).map_err(|_| Pkcs7Error::Certificate)?;
            (_, decoded) = Document::from_pem(text.trim()).map_err(|_| Pkcs7Error::Certificate)?;
            decoded.as_bytes()
        } else {
            bytes
        };
        let x509 = X509::from_der(der).map_err(|_| Pkcs7Error::Certificate)?;
        let key =
            x509.tbs_certificate().subject_public_key_info().to_der().map_err(|_| Pkcs7Error::Certificate)?;
        let key = Key::from_der(&key)?;
        Ok(Self { x509, key })
    }

    /// Whom it is for, as in `CN=somebody`.
    #[must_use]
    pub fn subject(&self) -> String {
        self.x509.tbs_certificate().subject().to_string()
    }

    /// Whether a moment is between the certificate's dates.
    #[must_use]
    pub fn is_valid_at(&self, moment: SystemTime) -> bool {
        let validity = self.x509.tbs_certificate().validity();
        (validity.not_before.to_system_time()..=validity.not_after.to_system_time()).contains(&moment)
    }

    fn is_named_by(&self, signer: &SignerIdentifier) -> bool {
        let certificate = self.x509.tbs_certificate();
        match signer {
            SignerIdentifier::IssuerAndSerialNumber(named) => {
                named.issuer == *certificate.issuer() && named.serial_number == *certificate.serial_number()
            }
            SignerIdentifier::SubjectKeyIdentifier(_) => *signer == SignerIdentifier::from(&self.x509),
        }
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("subject", &self.subject()).finish_non_exhaustive()
    }
}

impl Key {
    fn from_der(info: &[u8]) -> Result<Self, Pkcs7Error> {
        if let Ok(key) = p256::ecdsa::VerifyingKey::from_public_key_der(info) {
            return Ok(Self::P256(Box::new(key)));
        }
        let key = rsa::RsaPublicKey::from_public_key_der(info).map_err(|_| Pkcs7Error::Key)?;
        if !RSA_BITS.contains(&(8 * key.size())) {
            return Err(Pkcs7Error::Key);
        }
        Ok(Self::Rsa(Box::new(key)))
    }
}

/// Checks a signature that `fsverity sign` made over a file's digest.
///
/// # Errors
/// Where it is not one of these certificates' over this digest.
pub fn verify(signature: &[u8], digest: &Digest, trusted: &[Certificate]) -> Result<SignedBy, Pkcs7Error> {
    if signature.len() > SIGNATURE_LEN_MAX {
        return Err(Pkcs7Error::TooLong);
    }
    let outer = ContentInfo::from_der(signature).map_err(|_| Pkcs7Error::Form)?;
    if outer.content_type != SIGNED_DATA {
        return Err(Pkcs7Error::Form);
    }
    let signed: SignedData = outer.content.decode_as().map_err(|_| Pkcs7Error::Form)?;
    if signed.encap_content_info.econtent_type != DATA || signed.encap_content_info.econtent.is_some() {
        return Err(Pkcs7Error::NotDetached);
    }
    let mut refused = Pkcs7Error::UnknownSigner;
    for signer in signed.signer_infos.0.iter() {
        let named =
            trusted.iter().enumerate().filter(|(_, certificate)| certificate.is_named_by(&signer.sid));
        let mut checked = named.map(|(index, certificate)| (index, check(signer, digest, &certificate.key)));
        let found = checked.find_map(|(index, checked)| match checked {
            Ok(()) => Some(index),
            Err(error) => {
                refused = error;
                None
            }
        });
        if let Some(index) = found {
            return Ok(SignedBy { index });
        }
    }
    Err(refused)
}

fn check(signer: &SignerInfo, digest: &Digest, key: &Key) -> Result<(), Pkcs7Error> {
    if signer.signed_attrs.is_some() {
        return Err(Pkcs7Error::Attributes);
    }
    let message = digest.formatted();
    let (hash, padding, algorithms) = match signer.digest_alg.oid {
        SHA256 => {
            let padding = rsa::Pkcs1v15Sign::new::<Sha256>();
            (Sha256::digest(&message).to_vec(), padding, [RSA, RSA_SHA256, ECDSA_SHA256])
        }
        SHA512 => {
            let padding = rsa::Pkcs1v15Sign::new::<Sha512>();
            (Sha512::digest(&message).to_vec(), padding, [RSA, RSA_SHA512, ECDSA_SHA512])
        }
        _ => return Err(Pkcs7Error::Algorithm),
    };
    let [rsa_alone, rsa_hash, ecdsa] = algorithms;
    let (oid, bytes) = (signer.signature_algorithm.oid, signer.signature.as_bytes());
    match key {
        Key::Rsa(key) if oid == rsa_alone || oid == rsa_hash => {
            key.verify(padding, &hash, bytes).map_err(|_| Pkcs7Error::Signature)
        }
        Key::P256(key) if oid == ecdsa => {
            let signature = p256::ecdsa::Signature::from_der(bytes).map_err(|_| Pkcs7Error::Signature)?;
            key.verify_prehash(&hash, &signature).map_err(|_| Pkcs7Error::Signature)
        }
        _ => Err(Pkcs7Error::Algorithm),
    }
}
