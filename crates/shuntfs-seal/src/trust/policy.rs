//! What a seal must have to be taken.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::SystemTime;

use shuntfs_verity::Digest;
use shuntfs_verity::sign::{KeyId, PublicKey};

use super::{TreeName, TrustStore};
use crate::{Seal, StoreError};

/// What a seal must have to be taken: everything that is asked for here. Nothing is by default, and then anybody who can write the
/// store can make a seal that is taken.
#[derive(Clone, Debug)]
pub struct Trust {
    keys: Option<Vec<PublicKey>>,
    threshold: NonZeroUsize,
    digest: Option<Digest>,
    tree: Option<TreeName>,
    store: Option<TrustStore>,
}

/// A seal that was taken: only [`Trust::check`] makes it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "what was seen is to be recorded"]
pub struct Accepted {
    signers: Vec<KeyId>,
}

impl Accepted {
    /// The keys that were asked for and have signed.
    #[must_use]
    pub fn signers(&self) -> &[KeyId] {
        &self.signers
    }
}

impl Trust {
    /// Takes any seal.
    #[must_use]
    pub const fn anybody() -> Self {
        Self { keys: None, threshold: NonZeroUsize::MIN, digest: None, tree: None, store: None }
    }

    /// Takes seals that one of these keys has signed.
    #[must_use]
    pub fn keys(keys: Vec<PublicKey>) -> Self {
        let mut distinct: Vec<PublicKey> = Vec::with_capacity(keys.len());
        for key in keys {
            if !distinct.contains(&key) {
                distinct.push(key);
            }
        }
        Self { keys: Some(distinct), ..Self::anybody() }
    }

    /// Takes seals by the keys of a trust store, as many as it asks for, and none that is older than one that was seen.
    ///
    /// # Errors
    /// Fewer keys are there, and have not expired, than it asks for.
    pub fn store(store: TrustStore, now: SystemTime) -> Result<Self, StoreError> {
        let of_store = Self::keys(store.keys_at(now));
        let trust = of_store.with_threshold(store.threshold()).map_err(|why| store.broken(why))?;
        Ok(Self { store: Some(store), ..trust })
    }

    /// The same by the keys that the trust store has now. It is read by the folder that is held, not by its path.
    ///
    /// # Errors
    /// It cannot be read, or fewer keys are there, and have not expired, than it asks for.
    pub fn read_again(&self, now: SystemTime) -> Result<Self, StoreError> {
        let Some(store) = &self.store else { return Ok(self.clone()) };
        let newer = Self::store(store.read_again()?, now)?;
        Ok(Self { digest: self.digest, tree: self.tree.clone(), ..newer })
    }

    /// The same by these keys, of which as many must have signed.
    ///
    /// # Errors
    /// There are fewer different keys.
    pub fn with_keys(self, keys: Vec<PublicKey>) -> Result<Self, String> {
        let threshold = self.threshold;
        Self { keys: Self::keys(keys).keys, ..self }.with_threshold(threshold)
    }

    /// Asks for signatures by so many of the keys.
    ///
    /// # Errors
    /// There are fewer different keys.
    pub fn with_threshold(mut self, threshold: NonZeroUsize) -> Result<Self, String> {
        let count = self.keys.as_ref().map_or(0, Vec::len);
        if threshold.get() > count {
            let have = match count {
                0 => "none is".to_owned(),
                1 => "1 is".to_owned(),
                count => format!("{count} are"),
            };
            return Err(format!("signatures by {threshold} different keys are needed, and {have} trusted"));
        }
        self.threshold = threshold;
        Ok(self)
    }

    /// Asks for this manifest and no other.
    #[must_use]
    pub fn with_digest(self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self }
    }

    /// Asks for a seal of this tree.
    #[must_use]
    pub fn with_tree(self, tree: TreeName) -> Self {
        Self { tree: Some(tree), ..self }
    }

    /// Whether a seal that is taken is known to come from who is trusted: keys are asked for, or a digest.
    #[must_use]
    pub fn is_authentic(&self) -> bool {
        self.keys.is_some() || self.digest.is_some()
    }

    /// The digest that is asked for.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// The keys that are asked for.
    #[must_use]
    pub fn trusted_keys(&self) -> Option<&[PublicKey]> {
        self.keys.as_deref()
    }

    /// The trust store that has the keys, where there is one.
    #[must_use]
    pub fn trust_store(&self) -> Option<&TrustStore> {
        self.store.as_ref()
    }

    /// How many of the keys must have signed.
    #[must_use]
    pub fn threshold(&self) -> NonZeroUsize {
        self.threshold
    }

    /// Judges a seal; `path` is for what is said of it. Nothing is recorded.
    ///
    /// # Errors
    /// It has not what is asked for, or a newer one was seen; or the trust store cannot be read.
    pub fn check(&self, seal: &Seal, path: &Path) -> Result<Accepted, StoreError> {
        let found = seal.descriptor().digest();
        if let Some(wanted) = self.digest.filter(|wanted| *wanted != found) {
            let (wanted, found) = (Box::new(wanted), Box::new(found));
            return Err(StoreError::Pinned { path: path.to_owned(), wanted, found });
        }
        let signers = match &self.keys {
            Some(keys) => self.signers(seal, keys, path)?,
            None => Vec::new(),
        };
        if let Some(wanted) = &self.tree {
            let found = seal.issue().map(|issue| &issue.tree);
            if found != Some(wanted) {
                let found = found.map_or_else(|| "no tree by name".to_owned(), |tree| format!("`{tree}`"));
                return Err(StoreError::OtherTree {
                    path: path.to_owned(),
                    wanted: wanted.to_string(),
                    found,
                });
            }
        }
        if let Some(store) = &self.store {
            let issue = seal.issue().ok_or_else(|| StoreError::NoSerial(path.to_owned()))?;
            store.judge(issue, &found, path)?;
        }
        Ok(Accepted { signers })
    }

    /// Judges what has one good signature, no name and no serial.
    pub(crate) fn check_single(&self, path: &Path) -> Result<(), StoreError> {
        let path = path.to_owned();
        if self.threshold > NonZeroUsize::MIN {
            return Err(StoreError::TooFew { path, have: 1, need: self.threshold.get() });
        }
        match (&self.tree, &self.store) {
            (Some(wanted), _) => {
                let (wanted, found) = (wanted.to_string(), "a single file".to_owned());
                Err(StoreError::OtherTree { path, wanted, found })
            }
            (None, Some(_)) => Err(StoreError::NoSerial(path)),
            (None, None) => Ok(()),
        }
    }

    /// Judges a seal that is to take the place of one that was taken: it must be of the same tree and not older, too, where anything
    /// is asked for.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_next(&self, seal: &Seal, current: &Seal, path: &Path) -> Result<Accepted, StoreError> {
        let accepted = self.check(seal, path)?;
        if !self.is_authentic() || seal.descriptor() == current.descriptor() {
            return Ok(accepted);
        }
        match (seal.issue(), current.issue()) {
            (Some(new), Some(old)) if new.tree != old.tree => Err(StoreError::OtherTree {
                path: path.to_owned(),
                wanted: old.tree.to_string(),
                found: format!("`{}`", new.tree),
            }),
            (Some(new), Some(old)) if new.serial == old.serial => Err(StoreError::SameSerial {
                path: path.to_owned(),
                tree: new.tree.to_string(),
                serial: new.serial,
                digest: Box::new(current.descriptor().digest()),
            }),
            (Some(new), Some(old)) if new.serial < old.serial => Err(StoreError::Rollback {
                path: path.to_owned(),
                tree: new.tree.to_string(),
                serial: new.serial,
                seen: old.serial,
            }),
            (None, Some(_)) => Err(StoreError::NoSerial(path.to_owned())),
            _ => Ok(accepted),
        }
    }

    /// Takes note of a seal that was taken, and whose manifest is what it says. Returns what the user should know.
    ///
    /// # Errors
    /// A newer one was seen meanwhile; or the trust store cannot be written for another reason than that it is read-only, or not this
    /// user's to write.
    pub fn record(
        &self,
        seal: &Seal,
        accepted: &Accepted,
        path: &Path,
    ) -> Result<Option<String>, StoreError> {
        match (&self.store, seal.issue()) {
            (Some(store), Some(issue)) => {
                store.record(issue, &seal.descriptor().digest(), accepted.signers(), path)
            }
            _ => Ok(None),
        }
    }

    fn signers(&self, seal: &Seal, keys: &[PublicKey], path: &Path) -> Result<Vec<KeyId>, StoreError> {
        let signers = seal.signers(keys);
        let (have, need) = (signers.good.len(), self.threshold.get());
        if have >= need {
            return Ok(signers.good);
        }
        let path = path.to_owned();
        Err(match signers.wrong.first() {
            _ if have > 0 => StoreError::TooFew { path, have, need },
            Some(key) => StoreError::WrongSignature { path, key: key.to_string() },
            None if seal.signatures().is_empty() => StoreError::Unsigned(path),
            None => {
                let signers: Vec<String> = seal.signatures().iter().map(|one| one.key.to_string()).collect();
                StoreError::Untrusted { path, signers: signers.join(", ") }
            }
        })
    }
}

impl Default for Trust {
    fn default() -> Self {
        Self::anybody()
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::Issue;
    use shuntfs_verity::sign::KeyPair;
    use shuntfs_verity::{Algorithm, Descriptor, Params};

    fn descriptor(byte: u8) -> Descriptor {
        Descriptor::new(&Params::default(), 300, Digest::new(Algorithm::Sha256, &[byte; 32]).unwrap())
            .unwrap()
    }

    fn seal(byte: u8, serial: u64, keys: &[&KeyPair]) -> Seal {
        let issue = Issue { tree: "photos".parse().unwrap(), serial, time: 0 };
        Seal::new(descriptor(byte), Some(issue), keys)
    }

    fn path() -> &'static Path {
        Path::new("seal")
    }

    #[test]
    fn a_signature_is_the_keys_and_over_this_manifest() {
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let check = |seal: &Seal, keys: &[&KeyPair]| {
            Trust::keys(keys.iter().map(|key| key.public()).collect()).check(seal, path())
        };
        for sealed in [seal(1, 1, &[&one]), Seal::new(descriptor(1), None, &[&one])] {
            assert_eq!(check(&sealed, &[&other, &one]).unwrap().signers(), [one.public().id()]);
            assert!(matches!(check(&sealed, &[&other]), Err(StoreError::Untrusted { .. })));
            assert!(matches!(check(&sealed, &[]), Err(StoreError::Untrusted { .. })));
        }
        assert!(matches!(check(&seal(1, 1, &[]), &[&one]), Err(StoreError::Unsigned(_))));
        let mut bytes = seal(1, 1, &[&one]).to_bytes();
        *bytes.last_mut().unwrap() ^= 1;
        let wrong = Seal::parse(&bytes).unwrap();
        assert!(matches!(check(&wrong, &[&one]), Err(StoreError::WrongSignature { .. })));
        // A wrong one beside a good one takes nothing away.
        let mut bytes = seal(1, 1, &[&one, &other]).to_bytes();
        *bytes.last_mut().unwrap() ^= 1;
        let half = Seal::parse(&bytes).unwrap();
        assert_eq!(check(&half, &[&other, &one]).unwrap().signers(), [one.public().id()]);
    }

    #[test]
    fn a_threshold_counts_different_keys_once() {
        let keys: Vec<KeyPair> = (0..3).map(|_| KeyPair::generate().unwrap()).collect();
        let two = NonZeroUsize::new(2).unwrap();
        let publics = || keys.iter().map(KeyPair::public).collect::<Vec<_>>();
        let trust = Trust::keys(publics()).with_threshold(two).unwrap();
        assert_eq!(trust.check(&seal(1, 1, &[&keys[0], &keys[2]]), path()).unwrap().signers().len(), 2);
        let twice = seal(1, 1, &[&keys[0], &keys[0]]);
        let error = trust.check(&twice, path()).unwrap_err();
        assert!(matches!(error, StoreError::TooFew { have: 1, need: 2, .. }), "{error}");
        assert!(error.to_string().contains("1 of 2"), "{error}");
        // Neither the same key given twice, nor more keys than there are.
        let same = Trust::keys(vec![keys[0].public(), keys[0].public()]);
        assert!(same.with_threshold(two).unwrap_err().contains("1 is trusted"));
        assert!(Trust::keys(publics()).with_threshold(NonZeroUsize::new(4).unwrap()).is_err());
        assert!(Trust::anybody().with_threshold(NonZeroUsize::MIN).is_err());
    }

    #[test]
    fn a_pin_is_for_one_manifest_and_needs_no_key() {
        let trust = Trust::anybody().with_digest(descriptor(1).digest());
        assert!(trust.is_authentic() && !Trust::anybody().is_authentic());
        trust.check(&seal(1, 1, &[]), path()).map(drop).unwrap();
        let error = trust.check(&seal(2, 1, &[]), path()).unwrap_err().to_string();
        for digest in [descriptor(1).digest(), descriptor(2).digest()] {
            assert!(error.contains(&digest.to_string()), "{error}");
        }
        // With keys, both count.
        let key = KeyPair::generate().unwrap();
        let both = Trust::keys(vec![key.public()]).with_digest(descriptor(1).digest());
        assert!(matches!(both.check(&seal(1, 1, &[]), path()), Err(StoreError::Unsigned(_))));
        assert!(matches!(both.check(&seal(2, 1, &[&key]), path()), Err(StoreError::Pinned { .. })));
    }

    #[test]
    fn one_tree_is_not_taken_for_another() {
        let trust = Trust::anybody().with_tree("music".parse().unwrap());
        let error = trust.check(&seal(1, 1, &[]), path()).unwrap_err().to_string();
        assert!(error.contains("`photos`") && error.contains("music"), "{error}");
        assert!(trust.check(&Seal::new(descriptor(1), None, &[]), path()).is_err());
        Trust::anybody()
            .with_tree("photos".parse().unwrap())
            .check(&seal(1, 1, &[]), path())
            .map(drop)
            .unwrap();
    }

    #[test]
    fn a_seal_in_the_place_of_another_is_not_older() {
        let key = KeyPair::generate().unwrap();
        let trust = Trust::keys(vec![key.public()]);
        let next = |new: &Seal, old: &Seal| trust.check_next(new, old, path());
        let (old, new) = (seal(1, 5, &[&key]), seal(2, 6, &[&key]));
        assert!(next(&new, &old).is_ok() && next(&old, &old).is_ok());
        assert!(matches!(next(&old, &new), Err(StoreError::Rollback { serial: 5, seen: 6, .. })));
        assert!(matches!(next(&seal(3, 5, &[&key]), &old), Err(StoreError::SameSerial { .. })));
        let without = Seal::new(descriptor(3), None, &[&key]);
        assert!(next(&new, &without).is_ok());
        assert!(matches!(next(&without, &new), Err(StoreError::NoSerial(_))));
        let music = Issue { tree: "music".parse().unwrap(), serial: 9, time: 0 };
        let other = Seal::new(descriptor(4), Some(music), &[&key]);
        assert!(matches!(next(&other, &new), Err(StoreError::OtherTree { .. })));
        // Where nobody is trusted, there is nothing to hold on to.
        assert!(Trust::anybody().check_next(&old, &new, path()).is_ok());
    }
}
