//! The seal of a mount that survives its servers, and whom it trusts: in memory that the keeper holds, and not read again from the folder, the
//! store or the files of keys.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shuntfs_pool::Slots;
use shuntfs_sys::memory::file_in_memory;
use shuntfs_sys::spawn::inherited_fd;
use shuntfs_verified::{CheckOptions, Seals, TakenSeal};

use super::trusting::{KeptKey, Trusting};
use crate::failure::Failure;
use crate::settings::TrustSettings;

/// Enough for eight seals with 16 signatures each, and hundreds of keys.
const SLOT: u32 = 1 << 20;

/// Where it is written down.
#[derive(Debug)]
pub(crate) struct KeptSeal(Slots);

/// What is written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Text {
    /// The keys that were named.
    keys: Vec<KeptKey>,
    /// The folder of the trust store, where there is one.
    trust_store: Option<RawFd>,
    /// How many seals were in force before the one that is.
    number: u64,
    /// The one in force, and in front of it those before it of which something may still be known.
    seals: Vec<TakenSeal>,
}

/// The seals that were in force.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) number: u64,
    pub(crate) seals: Arc<Seals>,
    pub(crate) earlier: Vec<Arc<Seals>>,
}

impl KeptSeal {
    /// Writes down the seal of a mount that begins.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit, ENOMEM.
    pub(crate) fn begin(seals: &Seals, trusting: &Trusting) -> Result<Self, Failure> {
        let file = file_in_memory(c"shunt-seal").map_err(|error| kept(&std::io::Error::from(error)))?;
        let this = Self(Slots::of(file, SLOT));
        let text = Text {
            keys: trusting.kept_keys(),
            trust_store: trusting.trust.trust_store().map(|store| store.as_fd().as_raw_fd()),
            number: 0,
            seals: vec![seals.taken()],
        };
        this.put(&text).map(|()| this)
    }

    /// What the program before has handed over.
    pub(crate) fn of(file: OwnedFd) -> Self {
        Self(Slots::of(File::from(file), SLOT))
    }

    /// The file.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    /// The descriptors by which seals and trust store are read, as they are now; none if they cannot be read.
    pub(crate) fn descriptors(&self) -> BTreeSet<RawFd> {
        let of = |text: Text| {
            let seals = text.seals.iter().flat_map(TakenSeal::descriptors);
            seals.chain(text.trust_store).collect()
        };
        self.found().map_or_else(|_| BTreeSet::new(), of)
    }

    /// The seals that were in force, of a folder and a store at these paths. Of those before the last, the ones that can still be read.
    ///
    /// # Errors
    /// The last one cannot be read.
    pub(crate) fn open(
        &self,
        paths: &(PathBuf, Option<PathBuf>),
        checks: &CheckOptions,
    ) -> Result<InForce, Failure> {
        let Text { number, seals: mut taken, .. } = self.found()?;
        let last = taken.pop().ok_or_else(|| kept(&"there is none"))?;
        let seals = Seals::of_taken(&last, paths.clone(), Err(checks));
        let seals = seals.map_err(|error| kept(&error))?;
        let earlier =
            taken.iter().rev().map_while(|one| Seals::of_taken(one, paths.clone(), Ok(&seals)).ok());
        let mut earlier: Vec<_> = earlier.collect();
        earlier.reverse();
        Ok(InForce { number, seals, earlier })
    }

    /// Notes which seals are in force: for whoever comes next, and before this process goes by them.
    ///
    /// # Errors
    /// ENOMEM; what was noted before stays.
    pub(crate) fn note(&self, in_force: &InForce) -> Result<(), Failure> {
        let InForce { number, seals, earlier } = in_force;
        let seals = earlier.iter().chain([seals]).map(|seals| seals.taken()).collect();
        self.put(&Text { number: *number, seals, ..self.found()? })
    }

    /// Whom the mount trusts.
    ///
    /// # Errors
    /// What was written down cannot be read, or the trust store cannot.
    pub(crate) fn trusting(&self, settings: &TrustSettings) -> Result<Trusting, Failure> {
        let Text { keys, trust_store, .. } = self.found()?;
        let store = trust_store.map(inherited_fd).transpose();
        Trusting::of_kept(settings, &keys, store.map_err(|error| kept(&std::io::Error::from(error)))?)
    }

    fn put(&self, text: &Text) -> Result<(), Failure> {
        let last = self.0.newest().map_or(0, |(version, _)| version);
        let text = serde_json::to_vec(text).expect("numbers and texts are JSON");
        self.0.put(last + 1, &text).map_err(|error| kept(&error))
    }

    fn found(&self) -> Result<Text, Failure> {
        let text = self.0.newest().and_then(|(_, text)| serde_json::from_slice(&text).ok());
        text.ok_or_else(|| kept(&"it is not what was written"))
    }
}

fn kept(why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("the seal in force cannot be kept for the next server: {why}"))
}
