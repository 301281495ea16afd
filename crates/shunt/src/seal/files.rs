//! Keys and signatures as files.

use std::ffi::OsString;
use std::io::Read as _;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use shuntfs_seal::shown;
use shuntfs_sys::regular;
use shuntfs_verity::sign::{KeyPair, Zeroizing, is_encrypted};

use super::passphrase::PassphraseArgs;
use crate::failure::Failure;
use crate::run::complain;

/// The longest file that can be a key or a certificate.
pub(super) const KEY_LEN_MAX: u64 = 64 << 10;

/// A path with something behind it.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Fails with a file's name in front.
pub(super) fn cannot(what: &str, path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("cannot {what} {}: {error}", shown(path)))
}

/// Reads a small text file; it may be a secret.
pub(super) fn read_text(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let mut text = Zeroizing::new(String::new());
    let file = regular::open(path).map_err(|error| cannot("read", path, error))?;
    file.take(KEY_LEN_MAX).read_to_string(&mut text).map_err(|error| cannot("read", path, error))?;
    Ok(text)
}

/// Reads a private key, and its passphrase where it has one.
pub(super) fn private_key(path: &Path, passphrase: &PassphraseArgs) -> Result<KeyPair, Failure> {
    let text = read_text(path)?;
    warn_of_readers(path, &text);
    if is_encrypted(&text) {
        let passphrase = passphrase.of(path)?;
        return KeyPair::from_encrypted_pem(&text, passphrase.as_bytes())
            .map_err(|error| Failure::new(format!("{}: {error}", shown(path))));
    }
    KeyPair::from_pem(&text).map_err(|error| {
        Failure::new(format!("{}: {error}", shown(path))).hint("shunt seal key new KEY makes one")
    })
}

/// Says that everybody can sign, or try passphrases. A group may be meant to.
fn warn_of_readers(path: &Path, text: &str) {
    if let Ok(found) = std::fs::metadata(path)
        && found.mode() & 0o004 != 0
        && text.contains("PRIVATE KEY-----")
    {
        let (path, mode) = (shown(path), found.mode() & 0o7777);
        complain(&format!(
            "shunt: {path}: everybody can read this private key (mode {mode:o}): chmod 600 {path}"
        ));
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
