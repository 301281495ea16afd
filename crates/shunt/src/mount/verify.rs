//! The seal of a mount.

use std::path::Path;
use std::sync::Arc;

use shuntfs::{Flow, Reason};
use shuntfs_verified::{
    CheckOptions, CheckedBy, SealNote, Seals, SealsOptions, TreeReadahead, VerifiedError,
};

use crate::control::VerifyStatus;
use crate::failure::Failure;
use crate::seal::{Trusting, advice};
use crate::settings::{Settings, TreeReadaheadChoice, VerifyChoice};

/// What a mount checks, and by whose word.
#[derive(Debug)]
pub(super) struct Verifying {
    pub(super) seals: Arc<Seals>,
    pub(super) what: VerifyChoice,
    notes: Vec<String>,
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
        let trusting = Trusting::read(&verify.trust)?;
        if !trusting.certificates.is_empty() {
            return Err(Failure::new(
                "a certificate is trusted for single files, not for what a folder holds",
            )
            .hint("name an ed25519 key: shunt key new KEY makes KEY.pub"));
        }
        options.trust = trusting.trust;
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
        let seals = Seals::open(&options).map_err(|error| refused(&error))?;
        Ok(Some(Self { seals, what: verify.what, notes: trusting.notes }))
    }

    /// Whether what is shown may have been made up by who can write SRC or its store: names, modes and owners included.
    pub(super) fn is_powerless(&self) -> bool {
        self.what == VerifyChoice::Required && !self.seals.manifest().is_authentic()
    }

    /// What the user should know.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        let manifest = self.seals.manifest();
        notes.extend(manifest.note().map(str::to_owned));
        if !manifest.is_authentic() {
            notes.push(
                "nothing says whose seal it is (--trust KEY.pub, --trust-store DIR, --digest HEX): who can write SRC or its \
                 store can seal something else"
                    .to_owned(),
            );
        }
        if self.is_powerless() {
            notes.push(
                "so what it shows gives nobody a right: mounted nosuid and nodev, without set-uid bits, devices and the \
                 attributes security.* and trusted.*"
                    .to_owned(),
            );
        }
        notes
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
            trusted: manifest.is_authentic(),
            signed_by: manifest.trusted_signers().iter().map(ToString::to_string).collect(),
            tree: manifest.seal().issue().map(|issue| issue.tree.to_string()),
            serial: manifest.seal().serial(),
            facts: self.seals.facts(),
        }
    }
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
        VerifiedError::Store(StoreError::NoTrustStore(path)) => {
            failure.hint(format!("shunt trust add {} KEY.pub makes one", path.display()))
        }
        VerifiedError::Store(error) => match advice(error) {
            Some(advice) => failure.hint(advice),
            None => failure,
        },
        _ => failure,
    }
}
