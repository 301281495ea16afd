//! Keys, trusted keys and signatures as files.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use shuntfs_verity::sign::pkcs7::{Certificate, Pkcs7Error};
use shuntfs_verity::sign::{KeyPair, PublicKey, Zeroizing};

use super::expiry;
use crate::failure::Failure;

/// The longest file that can be a key or a certificate.
const KEY_LEN_MAX: u64 = 64 << 10;

/// A path with something behind it.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Fails with a file's name in front.
pub(super) fn cannot(what: &str, path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot {what} {}: {error}", path.display()))
}

/// Reads a small text file; it may be a secret.
pub(super) fn read_text(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let mut text = Zeroizing::new(String::new());
    let file = fs::File::open(path).map_err(|error| cannot("read", path, error))?;
    file.take(KEY_LEN_MAX).read_to_string(&mut text).map_err(|error| cannot("read", path, error))?;
    Ok(text)
}

/// Reads a private key.
pub(super) fn private_key(path: &Path) -> Result<KeyPair, Failure> {
    KeyPair::from_pem(&read_text(path)?).map_err(|error| {
        Failure::new(format!("{}: {error}", path.display())).hint("shunt key new KEY makes one")
    })
}

/// Whose signatures count.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    /// For everything that shunt signs.
    pub(crate) keys: Vec<PublicKey>,
    /// For what `fsverity sign` signs.
    pub(crate) certificates: Vec<Certificate>,
}

impl Trust {
    /// Reads public keys and certificates; each file must be one. `None` where none is asked for.
    ///
    /// # Errors
    /// A file that cannot be read, is neither, or one whose time is over; a certificate whose time has not come.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Option<Self>, Failure> {
        let mut trust = Self::default();
        for path in paths {
            trust.add(path)?;
        }
        Ok((!paths.is_empty()).then_some(trust))
    }

    fn add(&mut self, path: &Path) -> Result<(), Failure> {
        let refused = |why: &dyn std::fmt::Display| Failure::new(format!("{}: {why}", path.display()));
        let mut bytes = Vec::new();
        let file = fs::File::open(path).map_err(|error| cannot("read", path, error))?;
        file.take(KEY_LEN_MAX).read_to_end(&mut bytes).map_err(|error| cannot("read", path, error))?;
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("-----BEGIN ") {
            let (block, expires) = expiry::split(&text).map_err(|why| refused(&why))?;
            if let Some(day) = expires.filter(|day| day.is_over(SystemTime::now())) {
                return Err(refused(&format!("it expired, {day} was its last day"))
                    .hint("trust another key, or write a later day on its line `expires = ..`"));
            }
            if !block.starts_with("-----BEGIN CERTIFICATE-----") {
                self.keys.push(PublicKey::from_pem(&block).map_err(|error| refused(&error))?);
                return Ok(());
            }
            bytes = block.into_bytes();
        }
        let neither = "neither an ed25519 public key in PEM nor an X.509 certificate";
        let certificate = Certificate::parse(&bytes).map_err(|error| match error {
            Pkcs7Error::Certificate => refused(&neither),
            error => refused(&error),
        })?;
        // The kernel does not look at the dates; who says whom to trust today wants them looked at.
        if !certificate.is_valid_at(SystemTime::now()) {
            return Err(refused(&"the certificate has expired, or is not valid yet"));
        }
        self.certificates.push(certificate);
        Ok(())
    }
}

/// How many threads hash.
pub(super) fn jobs(asked: Option<NonZeroUsize>) -> NonZeroUsize {
    asked.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// `1 file`, `2 files`.
pub(super) fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}
