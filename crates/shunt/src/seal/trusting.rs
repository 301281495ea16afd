//! Whose word a command takes for a seal: what was typed, and what comes of it.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use serde::{Deserialize, Serialize};
use shuntfs_seal::{Day, StoreError, TreeName, Trust, TrustStore, shown, split_key_file};
use shuntfs_sys::regular;
use shuntfs_verity::Digest;
use shuntfs_verity::sign::PublicKey;
use shuntfs_verity::sign::pkcs7::{Certificate, Pkcs7Error};

use super::files::{KEY_LEN_MAX, cannot};
use crate::failure::Failure;
use crate::settings::TrustSettings;

/// Whose seals are accepted.
#[derive(Clone, Debug, Default, Args)]
pub struct TrustArgs {
    /// Requires a signature by this key; if repeated, by one of the keys, or as many as --threshold says. For a FILE.sig, an X.509
    /// certificate is also accepted.
    #[arg(long, value_name = "KEY.pub", value_hint = clap::ValueHint::FilePath)]
    pub trust: Vec<PathBuf>,
    /// Requires signatures by at least this many of the keys given with --trust [default: 1].
    #[arg(long, value_name = "N")]
    pub threshold: Option<NonZeroUsize>,
    /// Accepts only the seal with this digest; no key is needed then.
    #[arg(long, value_name = "HEX", value_parser = Digest::from_text)]
    pub digest: Option<Digest>,
    /// Accepts only a seal of the tree with this name, so that another tree by the same key is refused.
    #[arg(long, value_name = "NAME")]
    pub tree: Option<TreeName>,
    /// Reads keys and threshold from this folder, created by `shunt seal trust`, and refuses seals older than one that was seen.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub trust_store: Option<PathBuf>,
}

impl TrustArgs {
    /// Puts what was typed over what is set.
    pub(crate) fn settle(&self, settings: &mut TrustSettings) {
        if !self.trust.is_empty() {
            settings.keys.clone_from(&self.trust);
        }
        settings.threshold = self.threshold.or(settings.threshold);
        settings.digest = self.digest.or(settings.digest);
        if self.tree.is_some() {
            settings.tree.clone_from(&self.tree);
        }
        if self.trust_store.is_some() {
            settings.store.clone_from(&self.trust_store);
        }
    }

    /// The same as words of a command line, with absolute paths.
    pub(crate) fn words(&self) -> std::io::Result<Vec<OsString>> {
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |flag: &str, value: OsString| words.extend([flag.into(), value]);
        for key in &self.trust {
            add("--trust", std::path::absolute(key)?.into());
        }
        if let Some(threshold) = self.threshold {
            add("--threshold", threshold.to_string().into());
        }
        if let Some(digest) = &self.digest {
            add("--digest", digest.to_string().into());
        }
        if let Some(tree) = &self.tree {
            add("--tree", tree.as_str().into());
        }
        if let Some(store) = &self.trust_store {
            add("--trust-store", std::path::absolute(store)?.into());
        }
        Ok(words)
    }

    /// What is asked for.
    ///
    /// # Errors
    /// As [`Trusting::read`].
    pub(super) fn read(&self) -> Result<Trusting, Failure> {
        let mut settings = TrustSettings::default();
        self.settle(&mut settings);
        Trusting::read(&settings)
    }
}

/// What is asked of a seal, or of a file's signature.
#[derive(Debug)]
pub(crate) struct Trusting {
    /// What a seal must have.
    pub(crate) trust: Trust,
    /// Who else may have signed a single file.
    pub(crate) certificates: Vec<Certificate>,
    /// What the user should know.
    pub(crate) notes: Vec<String>,
    /// The keys that were named, with the last day on which each is trusted.
    keys: Vec<(PublicKey, Option<Day>)>,
}

/// A key that was named, as it is written down for another program: in PEM, and the last day on which it is trusted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct KeptKey {
    pem: String,
    expires: Option<String>,
}

impl Trusting {
    /// The keys that were named.
    pub(super) fn kept_keys(&self) -> Vec<KeptKey> {
        let kept = |(key, expires): &(PublicKey, Option<Day>)| KeptKey {
            pem: key.to_pem(),
            expires: expires.map(|day| day.to_string()),
        };
        self.keys.iter().map(kept).collect()
    }

    /// The same as another program has read it, whatever is in the files of keys by now; a trust store is read again from its folder.
    ///
    /// # Errors
    /// The trust store cannot be read; what was written down is none of this.
    pub(super) fn of_kept(
        settings: &TrustSettings,
        keys: &[KeptKey],
        store: Option<OwnedFd>,
    ) -> Result<Self, Failure> {
        let damaged = |_| Failure::new("a key that the mount trusts was not handed over whole");
        let read = |key: &KeptKey| {
            let expires = key.expires.as_deref().map(str::parse).transpose().map_err(damaged)?;
            Ok((PublicKey::from_pem(&key.pem).map_err(|error| damaged(error.to_string()))?, expires))
        };
        let keys = keys.iter().map(read).collect::<Result<Vec<(PublicKey, Option<Day>)>, Failure>>()?;
        let trust = match (store, &settings.store) {
            (Some(folder), Some(path)) => TrustStore::of_folder(path, folder)
                .and_then(|store| Trust::store(store, SystemTime::now()))
                .map_err(|error| of_store(&error))?,
            _ if keys.is_empty() && settings.keys.is_empty() => Trust::anybody(),
            // All that were read: whether they have expired is asked when another seal comes.
            _ => Trust::keys(keys.iter().map(|(key, _)| *key).collect())
                .with_threshold(settings.threshold.unwrap_or(NonZeroUsize::MIN))
                .map_err(Failure::new)?,
        };
        let trusting = Self { trust, certificates: Vec::new(), notes: Vec::new(), keys };
        Ok(trusting.narrowed(settings))
    }

    /// Reads keys, certificates and the trust store.
    ///
    /// # Errors
    /// Words that do not go together; a file that cannot be read, or is neither a key nor a certificate; none is left that has not
    /// expired, or fewer than are needed.
    pub(crate) fn read(settings: &TrustSettings) -> Result<Self, Failure> {
        check(settings)?;
        let now = SystemTime::now();
        let mut trusting =
            Self { trust: Trust::anybody(), certificates: Vec::new(), notes: Vec::new(), keys: Vec::new() };
        if let Some(path) = &settings.store {
            trusting.open_store(path, now)?;
        } else if !settings.keys.is_empty() {
            trusting.read_keys(&settings.keys, settings.threshold, now)?;
        }
        Ok(trusting.narrowed(settings))
    }

    /// The same for one digest and one tree, where they are named.
    fn narrowed(mut self, settings: &TrustSettings) -> Self {
        if let Some(digest) = settings.digest {
            self.trust = self.trust.with_digest(digest);
        }
        if let Some(tree) = &settings.tree {
            self.trust = self.trust.with_tree(tree.clone());
        }
        self
    }

    /// What is asked of a seal now: the trust store is read again, and keys that were named are those that were read, as long as they
    /// have not expired. No path is walked, because a mount may lie over it by now.
    ///
    /// # Errors
    /// The trust store cannot be read; fewer keys are left than are needed.
    pub(crate) fn again(&self) -> Result<Trust, Failure> {
        let now = SystemTime::now();
        let is_over = |expires: &Option<Day>| expires.is_some_and(|day| day.is_over(now));
        if self.keys.iter().any(|(_, expires)| is_over(expires)) {
            let valid = self.keys.iter().filter(|(_, expires)| !is_over(expires)).map(|(key, _)| *key);
            let trust = self.trust.clone().with_keys(valid.collect());
            return trust.map_err(|why| Failure::new(format!("{why}: others have expired since the mount")));
        }
        self.trust.read_again(now).map_err(|error| of_store(&error))
    }

    fn open_store(&mut self, path: &std::path::Path, now: SystemTime) -> Result<(), Failure> {
        let store = TrustStore::open(path).map_err(|error| of_store(&error))?;
        for key in store.keys() {
            if let Some(day) = key.expires.filter(|day| day.is_over(now)) {
                let file = path.join(&key.name);
                self.notes.push(format!("{}: it expired, {day} was its last day", shown(&file)));
            }
        }
        let expired = self.notes.join("; ");
        self.trust = Trust::store(store, now).map_err(|error| {
            let failure = of_store(&error);
            if expired.is_empty() { failure } else { failure.hint(expired) }
        })?;
        Ok(())
    }

    fn read_keys(
        &mut self,
        paths: &[PathBuf],
        threshold: Option<NonZeroUsize>,
        now: SystemTime,
    ) -> Result<(), Failure> {
        let mut keys = Vec::new();
        let mut expired = None;
        for path in paths {
            match read_signer(path, now)? {
                Signer::Key(key, expires) => {
                    keys.push(key);
                    self.keys.push((key, expires));
                }
                Signer::Certificate(certificate) => self.certificates.push(*certificate),
                Signer::Expired(why) => {
                    self.notes.push(format!("{}: {why}", shown(path)));
                    expired = Some(format!("{}: {why}", shown(path)));
                }
            }
        }
        let hint = "trust another key, or write a later day on its line `expires = ..`";
        match expired {
            Some(why) if keys.is_empty() && self.certificates.is_empty() => {
                return Err(Failure::new(why).hint(hint));
            }
            _ => {}
        }
        let trust = Trust::keys(keys);
        self.trust = match threshold {
            None => trust,
            Some(threshold) => trust.with_threshold(threshold).map_err(|why| {
                let details = std::mem::take(&mut self.notes);
                Failure::new(why).details(details)
            })?,
        };
        Ok(())
    }
}

/// What would be ignored is refused: a mount must not look safer than it is.
fn check(settings: &TrustSettings) -> Result<(), Failure> {
    let has_keys = !settings.keys.is_empty();
    if settings.store.is_some() && (has_keys || settings.threshold.is_some()) {
        return Err(Failure::usage("a trust store has the keys, and says how many of them must sign")
            .hint("add a key to it: shunt seal trust add DIR KEY.pub"));
    }
    if settings.threshold.is_some() && !has_keys {
        return Err(
            Failure::usage("--threshold counts the keys that --trust names").hint("add --trust KEY.pub")
        );
    }
    if settings.tree.is_some() && !has_keys && settings.store.is_none() {
        return Err(Failure::usage(
            "--tree is for seals that are signed: without a key, anybody can write any name",
        )
        .hint("add --trust KEY.pub or --trust-store DIR"));
    }
    Ok(())
}

/// What a file with a key or certificate turned out to be.
enum Signer {
    Key(PublicKey, Option<Day>),
    Certificate(Box<Certificate>),
    Expired(String),
}

fn read_signer(path: &std::path::Path, now: SystemTime) -> Result<Signer, Failure> {
    let refused = |why: &dyn std::fmt::Display| Failure::new(format!("{}: {why}", shown(path)));
    let mut bytes = regular::read_to_end(path, KEY_LEN_MAX).map_err(|error| cannot("read", path, error))?;
    let text = String::from_utf8_lossy(&bytes);
    if text.contains("-----BEGIN ") {
        let (block, expires) = split_key_file(&text).map_err(|why| refused(&why))?;
        if let Some(day) = expires.filter(|day| day.is_over(now)) {
            return Ok(Signer::Expired(format!("it expired, {day} was its last day")));
        }
        if !block.starts_with("-----BEGIN CERTIFICATE-----") {
            let key = PublicKey::from_pem(&block).map_err(|error| refused(&error))?;
            return Ok(Signer::Key(key, expires));
        }
        bytes = block.into_bytes();
    }
    let neither = "neither an ed25519 public key in PEM nor an X.509 certificate";
    let certificate = Certificate::parse(&bytes).map_err(|error| match error {
        Pkcs7Error::Certificate => refused(&neither),
        error => refused(&error),
    })?;
    // The kernel does not look at the dates; who says whom to trust today wants them looked at.
    if !certificate.is_valid_at(now) {
        return Ok(Signer::Expired("the certificate has expired, or is not valid yet".to_owned()));
    }
    Ok(Signer::Certificate(Box::new(certificate)))
}

/// What is wrong with a trust store.
pub(super) fn of_store(error: &StoreError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        StoreError::NoTrustStore(path) => {
            failure.hint(format!("shunt seal trust add {} KEY.pub makes one", shown(path)))
        }
        _ => failure,
    }
}

/// What to do about a seal that is refused, where that is not plain.
pub(crate) fn advice(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::Rollback { .. } | StoreError::SameSerial { .. } => {
            Some("if it is meant: shunt seal trust forget DIR TREE")
        }
        StoreError::NoSerial(_) => Some("seal it again"),
        StoreError::OtherTree { .. } => Some("what is there: shunt seal show SRC"),
        _ => None,
    }
}

/// How a seal came to be taken, in a few words; `None` where nothing was asked for.
pub(crate) fn taken(trust: &Trust, signers: usize) -> Option<String> {
    if !trust.is_authentic() {
        return None;
    }
    Some(match signers {
        0 => "of the digest that is asked for".to_owned(),
        1 => "signed by a trusted key".to_owned(),
        count => format!("signed by {count} trusted keys"),
    })
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_verity::sign::KeyPair;

    #[test]
    fn a_key_that_has_expired_since_the_mount_is_trusted_no_more() {
        let (one, two) = (KeyPair::generate().unwrap().public(), KeyPair::generate().unwrap().public());
        let over: Option<Day> = Some("2024-01-01".parse().unwrap());
        let at_the_mount = |keys: Vec<(PublicKey, Option<Day>)>| {
            let trust = Trust::keys(keys.iter().map(|(key, _)| *key).collect());
            Trusting { trust, certificates: Vec::new(), notes: Vec::new(), keys }
        };
        let left = at_the_mount(vec![(one, over), (two, None)]).again().unwrap();
        assert_eq!(left.trusted_keys(), Some(&[two][..]));
        // The same key is in another file, which says of no day.
        let left = at_the_mount(vec![(one, over), (one, None)]).again().unwrap();
        assert_eq!(left.trusted_keys(), Some(&[one][..]));
        let error = at_the_mount(vec![(one, over)]).again().unwrap_err().to_string();
        assert!(
            error.contains("none is trusted") && error.contains("have expired since the mount"),
            "{error}"
        );
    }
}
