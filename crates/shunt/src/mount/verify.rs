//! The seal of a mount, and another one in its place.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shuntfs::{Flow, Reason};
use shuntfs_pool::SealControl;
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
    holder: Holder,
    what: VerifyChoice,
    trusting: Trusting,
    again: Mutex<Again>,
}

/// Who has the seal that holds.
#[derive(Debug)]
enum Holder {
    /// Nobody changes it.
    Opened(Arc<Seals>),
    /// The pool, where another one may take its place.
    Pool(SealControl),
}

/// What came of reading the seal again.
#[derive(Default, Debug)]
struct Again {
    /// How often another one was taken.
    reloads: u64,
    /// Why none was taken the last time.
    error: Option<String>,
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
            .hint("name an ed25519 key: shunt seal key new KEY makes KEY.pub"));
        }
        options.trust = trusting.trust.clone();
        let defaults = CheckOptions::default();
        let cache = verify.tree_cache.and_then(|bytes| usize::try_from(bytes).ok());
        options.checks = CheckOptions {
            tree_cache: cache.unwrap_or(defaults.tree_cache),
            tree_readahead: match verify.tree_readahead {
                TreeReadaheadChoice::On => TreeReadahead::On,
                TreeReadaheadChoice::Off => TreeReadahead::Off,
            },
            ..defaults
        };
        let seals = Seals::open(&options).map_err(|error| refused(&error))?;
        let holder = Holder::Opened(seals);
        Ok(Some(Self { holder, what: verify.what, trusting, again: Mutex::default() }))
    }

    /// Whether what is shown may have been made up by who can write SRC or its store: names, modes and owners included.
    pub(super) fn is_powerless(&self) -> bool {
        self.is_required() && !self.seals().manifest().is_authentic()
    }

    /// Whether the manifest is what is shown.
    pub(super) fn is_required(&self) -> bool {
        self.what == VerifyChoice::Required
    }

    /// The seal that holds.
    pub(super) fn seals(&self) -> Arc<Seals> {
        match &self.holder {
            Holder::Opened(seals) => Arc::clone(seals),
            Holder::Pool(control) => control.seals(),
        }
    }

    /// The pool has the seal from now on.
    pub(super) fn hand_over(&mut self, control: SealControl) {
        self.holder = Holder::Pool(control);
    }

    /// Reads the seal again. One that is not acceptable changes nothing, and is told of.
    pub(super) fn read_again(&self) {
        let Holder::Pool(control) = &self.holder else {
            tracing::warn!(
                "SIGHUP: with --verify=required a new seal needs a new mount: umount and mount again"
            );
            return;
        };
        let next = self.next(&control.seals());
        let mut again = self.again();
        match next {
            Ok(None) => {
                again.error = None;
                tracing::info!("the seal was read again, and is the same");
            }
            Ok(Some(seals)) => {
                let manifest = seals.manifest();
                let (digest, files, serial) =
                    (manifest.digest(), manifest.counts().files, manifest.seal().serial());
                manifest.note().iter().for_each(|note| tracing::warn!("{note}"));
                control.replace(Arc::clone(&seals));
                *again = Again { reloads: again.reloads + 1, error: None };
                tracing::info!(%digest, files, serial, "another seal was taken");
            }
            Err(error) => {
                tracing::warn!("the seal stays as it was: {error}");
                again.error = Some(error.to_string());
            }
        }
    }

    fn again(&self) -> MutexGuard<'_, Again> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seal that is to take the place of this one, by the same trust; `None` where it is the same.
    fn next(&self, seals: &Seals) -> Result<Option<Arc<Seals>>, Failure> {
        use shuntfs_seal::StoreError;
        let trust = self.trusting.again()?;
        let next = seals.open_next(&trust).map_err(|error| match error {
            VerifiedError::Store(StoreError::Pinned { .. }) => Failure::new(error.to_string())
                .hint("--digest takes no other seal: mount again with the new digest"),
            error => refused(&error),
        })?;
        Ok((!next.is_same(seals)).then_some(next))
    }

    /// What the user should know.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.trusting.notes.clone();
        let seals = self.seals();
        let manifest = seals.manifest();
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
        let (seals, again) = (self.seals(), self.again());
        let manifest = seals.manifest();
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
            reloads: again.reloads,
            error: again.error.clone(),
            facts: seals.facts(),
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
        VerifiedError::Store(StoreError::Untrusted { .. }) => {
            failure.hint("who signed it: shunt seal show SRC")
        }
        VerifiedError::Store(
            StoreError::WrongSignature { .. } | StoreError::Broken { .. } | StoreError::Manifest { .. },
        ) => failure.hint("what is wrong: shunt seal verify SRC"),
        VerifiedError::Store(StoreError::NoTrustStore(path)) => {
            failure.hint(format!("shunt seal trust add {} KEY.pub makes one", path.display()))
        }
        VerifiedError::Store(error) => match advice(error) {
            Some(advice) => failure.hint(advice),
            None => failure,
        },
        _ => failure,
    }
}
