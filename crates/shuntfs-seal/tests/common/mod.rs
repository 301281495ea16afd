//! Trees to seal, and somebody who watches.
#![allow(dead_code, reason = "each test program uses some of it")]
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{self, Permissions};
use std::num::NonZeroUsize;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use shuntfs_seal::{
    Checking, Manifest, Progress, Report, SealError, SealOptions, Store, StoreError, Trust, Verified,
    seal_tree, verify_tree,
};
use shuntfs_verity::sign::{KeyPair, PublicKey};

/// Watches, and does something once when so many bytes were hashed.
pub(crate) struct Watch<'a> {
    pub(crate) hashed: AtomicU64,
    pub(crate) after: u64,
    pub(crate) then: Box<dyn Fn() + Sync + 'a>,
}

impl Watch<'_> {
    pub(crate) fn quiet() -> Self {
        Self { hashed: AtomicU64::new(0), after: u64::MAX, then: Box::new(|| {}) }
    }
}

impl Progress for Watch<'_> {
    fn found(&self, _names: u64) {}
    fn to_hash(&self, _files: u64, _bytes: u64) {}
    fn hashed(&self, bytes: u64) {
        let before = self.hashed.fetch_add(bytes, Ordering::SeqCst);
        if (before..before + bytes).contains(&self.after) {
            (self.then)();
        }
    }
    fn file_done(&self) {}
}

/// Bytes that are not alike.
pub(crate) fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from((index * 7 + seed * 31 + index / 4096) % 251).unwrap()).collect()
}

/// Folders, files of no, one and many blocks, two that are equal, a hard link, a symlink.
pub(crate) fn plant(at: &Path) {
    fs::create_dir_all(at.join("a/b")).unwrap();
    fs::write(at.join("big"), bytes(900_000, 1)).unwrap();
    fs::write(at.join("a/two"), bytes(5000, 2)).unwrap();
    fs::write(at.join("a/same"), bytes(5000, 2)).unwrap();
    fs::write(at.join("a/b/small"), "small").unwrap();
    fs::write(at.join("empty"), "").unwrap();
    fs::hard_link(at.join("a/two"), at.join("linked")).unwrap();
    symlink("../big", at.join("a/link")).unwrap();
    fs::set_permissions(at.join("a/b/small"), Permissions::from_mode(0o600)).unwrap();
}

pub(crate) fn options<'a>(keys: &[&'a KeyPair]) -> SealOptions<'a> {
    let jobs = NonZeroUsize::new(2).unwrap();
    SealOptions { keys: keys.to_vec(), ..SealOptions::new(jobs) }
}

pub(crate) fn seal(at: &Path) -> Result<Report, SealError> {
    seal_tree(at, &options(&[]), &Watch::quiet())
}

pub(crate) fn open(at: &Path, trust: Option<&[PublicKey]>) -> Result<Manifest, StoreError> {
    let trust = trust.map_or_else(Trust::anybody, |keys| Trust::keys(keys.to_vec()));
    Manifest::open(&Store::open(&Store::beside(at))?, &trust)
}

pub(crate) fn verify(at: &Path) -> Result<Verified, StoreError> {
    let jobs = NonZeroUsize::new(2).unwrap();
    verify_tree(
        &Checking { folder: at, store: None, trust: &Trust::anybody(), only: Vec::new(), jobs },
        &Watch::quiet(),
    )
}

/// What differs, a line each.
pub(crate) fn findings(at: &Path) -> Vec<String> {
    let verified = verify(at).unwrap();
    let line = |finding: &shuntfs_seal::Finding| {
        format!("{}: {}", String::from_utf8_lossy(&finding.path), finding.fault)
    };
    verified.findings.iter().map(line).collect()
}

/// Turns one bit of a file over.
pub(crate) fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 1;
    file.write_all_at(&byte, at).unwrap();
}
