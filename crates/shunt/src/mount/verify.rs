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
use crate::seal::{KeptSeal, SealsInForce, Trusting, advice};
use crate::settings::{
    CacheChoice, FlowChoice, LocksChoice, Settings, TreeReadaheadChoice, VerifyChoice, VerifySettings,
};

/// What a mount checks, and by whose word.
#[derive(Debug)]
pub(super) struct Verifying {
    holder: Holder,
    what: VerifyChoice,
    trusting: Arc<Trusting>,
    /// Where the seal is written down for the next server, if there may be one.
    kept: Option<Arc<KeptSeal>>,
    again: Mutex<Again>,
}

/// What the keeper of a mount has of its seal.
#[derive(Debug)]
pub(super) struct OfKeeper {
    pub(super) kept: Arc<KeptSeal>,
    trusting: Arc<Trusting>,
    what: VerifyChoice,
    is_powerless: bool,
    /// What this process has opened stays open.
    _first: Option<Arc<Seals>>,
}

impl OfKeeper {
    /// Writes down the seal of a mount that begins.
    ///
    /// # Errors
    /// As [`Verifying::open`].
    pub(super) fn open(source: &Path, settings: &Settings) -> Result<Option<Self>, Failure> {
        let Some(verifying) = Verifying::open(source, settings)? else { return Ok(None) };
        let (seals, is_powerless) = (verifying.seals(), verifying.is_powerless());
        let mut trusting = verifying.trusting;
        if let (Some(note), Some(trusting)) = (seals.manifest().note(), Arc::get_mut(&mut trusting)) {
            trusting.notes.push(note.to_owned());
        }
        let kept = Arc::new(KeptSeal::begin(&seals, &trusting)?);
        Ok(Some(Self { kept, trusting, what: verifying.what, is_powerless, _first: Some(seals) }))
    }

    /// What another program had written down until now.
    ///
    /// # Errors
    /// Where it is not that.
    pub(super) fn of(kept: KeptSeal, source: &Path, settings: &Settings) -> Result<Self, Failure> {
        let trusting = Arc::new(kept.trusting(&settings.verify.trust)?);
        let of_keeper = Self {
            kept: Arc::new(kept),
            trusting,
            what: settings.verify.what,
            is_powerless: false,
            _first: None,
        };
        let (verifying, _) = of_keeper.verifying(source, &settings.verify)?;
        Ok(Self { is_powerless: verifying.is_powerless(), ..of_keeper })
    }

    /// What one server checks: by the seal that was in force last.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn verifying(
        &self,
        source: &Path,
        verify: &VerifySettings,
    ) -> Result<(Verifying, SealsInForce), Failure> {
        let in_force = self.kept.open(&(source.to_owned(), verify.store.clone()), &checks(verify))?;
        let verifying = Verifying {
            holder: Holder::Opened(Arc::clone(&in_force.seals)),
            what: self.what,
            trusting: Arc::clone(&self.trusting),
            kept: Some(Arc::clone(&self.kept)),
            again: Mutex::default(),
        };
        Ok((verifying, in_force))
    }

    /// As [`Verifying::is_powerless`].
    pub(super) fn is_powerless(&self) -> bool {
        self.is_powerless
    }
}

fn checks(verify: &VerifySettings) -> CheckOptions {
    let defaults = CheckOptions::default();
    let cache = verify.tree_cache.and_then(|bytes| usize::try_from(bytes).ok());
    CheckOptions {
        tree_cache: cache.unwrap_or(defaults.tree_cache),
        tree_readahead: match verify.tree_readahead {
            TreeReadaheadChoice::On => TreeReadahead::On,
            TreeReadaheadChoice::Off => TreeReadahead::Off,
        },
        ..defaults
    }
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
        options.checks = checks(verify);
        let seals = Seals::open(&options).map_err(|error| refused(&error))?;
        let holder = Holder::Opened(seals);
        let (trusting, again) = (Arc::new(trusting), Mutex::default());
        Ok(Some(Self { holder, what: verify.what, trusting, kept: None, again }))
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
                if let Err(error) = self.keep(control, &seals) {
                    tracing::warn!("the seal stays as it was: {error}");
                    again.error = Some(error.to_string());
                    return;
                }
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

    /// Has the next server go on with another seal, before this one does: none must believe what the one before did not any more.
    fn keep(&self, control: &SealControl, next: &Arc<Seals>) -> Result<(), Failure> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let (number, mut earlier) = control.known();
        earlier.push(control.seals());
        kept.note(&SealsInForce { number: number + 1, seals: Arc::clone(next), earlier })
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

/// Whether files pass by the server where they may.
pub(super) fn lets_pass(settings: &Settings) -> bool {
    matches!(settings.flow, FlowChoice::Auto | FlowChoice::Passthrough)
}

/// What was asked for and changes nothing where the manifest is what is shown.
pub(super) fn without_effect(settings: &Settings) -> impl Iterator<Item = &'static str> {
    let cache = "with --verify=required, --cache none has no effect: what is sealed does not change";
    let locks =
        "with --verify=required, --locks lower has no effect: locks hold between processes on the mount";
    let asked = [(settings.cache == CacheChoice::None, cache), (settings.locks == LocksChoice::Lower, locks)];
    asked.into_iter().filter(|(asked, _)| *asked).map(|(_, note)| note)
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
