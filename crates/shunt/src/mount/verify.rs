//! The seal of a mount.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shuntfs::{Flow, Reason};
use shuntfs_verified::{
    CheckOptions, CheckedBy, SealNote, Seals, SealsOptions, TreeReadahead, VerifiedError,
};

use shuntfs_verity::sign::PublicKey;

use crate::control::VerifyStatus;
use crate::failure::Failure;
use crate::seal;
use crate::settings::{Settings, TreeReadaheadChoice, VerifyChoice};

/// What a mount checks, and by whose word.
#[derive(Debug)]
pub(super) struct Verifying {
    pub(super) seals: Arc<Seals>,
    pub(super) what: VerifyChoice,
    is_trusted: bool,
}

impl Verifying {
    /// Opens the seal of SRC, where one is asked for.
    ///
    /// # Errors
    /// There is none, or it is not what it must be, or not signed by who is trusted.
    pub(super) fn open(source: &Path, settings: &Settings) -> Result<Option<Self>, Failure> {
        let verify = &settings.verify;
        if verify.what == VerifyChoice::Off {
            return Ok(None);
        }
        let mut options = SealsOptions::new(source);
        options.store.clone_from(&verify.store);
        options.trust = keys(&verify.trust)?;
        let defaults = CheckOptions::default();
        let cache = verify.tree_cache_mib.and_then(|mib| usize::try_from(mib).ok());
        options.checks = CheckOptions {
            tree_cache: cache.map_or(defaults.tree_cache, |mib| mib.saturating_mul(1 << 20)),
            tree_readahead: match verify.tree_readahead {
                TreeReadaheadChoice::On => TreeReadahead::On,
                TreeReadaheadChoice::Off => TreeReadahead::Off,
            },
            ..defaults
        };
        let is_trusted = options.trust.is_some();
        let seals = Seals::open(&options).map_err(|error| refused(&error))?;
        Ok(Some(Self { seals, what: verify.what, is_trusted }))
    }

    /// What the user should know.
    pub(super) fn note(&self) -> Option<String> {
        (!self.is_trusted).then(|| {
            "no key is asked for (--trust KEY.pub): who can write SRC or its store can seal something else".to_owned()
        })
    }

    /// As the status shows it.
    pub(super) fn status(&self) -> VerifyStatus {
        let manifest = self.seals.manifest();
        VerifyStatus {
            what: match self.what {
                VerifyChoice::Required => "required",
                VerifyChoice::IfSealed => "if-sealed",
                VerifyChoice::Off => "off",
            }
            .into(),
            manifest: manifest.digest().to_string(),
            files: manifest.counts().files,
            trusted: self.is_trusted,
            facts: self.seals.facts(),
        }
    }
}

/// The keys of which one must have signed; `None` where none is asked for.
fn keys(paths: &[PathBuf]) -> Result<Option<Vec<PublicKey>>, Failure> {
    let Some(trust) = seal::Trust::read(paths)? else { return Ok(None) };
    if !trust.certificates.is_empty() {
        return Err(Failure::new("a certificate is trusted for single files, not for what a folder holds")
            .hint("name an ed25519 key: shunt key new KEY makes KEY.pub"));
    }
    Ok(Some(trust.keys))
}

/// The flow that an open of a sealed file would get; `passed` is that of one whose bytes the kernel may move.
pub(super) fn expected(note: &SealNote, passed: (Flow, Reason)) -> (Flow, Reason) {
    match note.checked_by {
        CheckedBy::LowerFileSystem if passed.0 == Flow::Passthrough => passed,
        CheckedBy::LowerFileSystem => (Flow::Verified, passed.1),
        _ => (Flow::Verified, Reason::Wished),
    }
}

fn refused(error: &VerifiedError) -> Failure {
    use shuntfs_seal::StoreError;
    let failure = Failure::new(format!("SRC cannot be verified: {error}"));
    match error {
        VerifiedError::Store(StoreError::NotSealed(_)) => {
            failure.hint("seal it first: shunt seal SRC --key KEY")
        }
        VerifiedError::Store(StoreError::Unsigned(_)) => failure.hint("sign it: shunt seal SRC --key KEY"),
        VerifiedError::Store(StoreError::Untrusted { .. }) => failure.hint("who signed it: shunt show SRC"),
        VerifiedError::Store(
            StoreError::WrongSignature { .. } | StoreError::Broken { .. } | StoreError::Manifest { .. },
        ) => failure.hint("what is wrong: shunt verify SRC"),
        _ => failure,
    }
}
