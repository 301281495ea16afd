//! The seal: which manifest is the tree's, and who says so.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | `shuntsel` |
//! | 8 | 4 | version, 2 |
//! | 12 | 4 | number of signatures, at most 16 |
//! | 16 | 256 | the manifest's descriptor, as fs-verity has it |
//! | 272 | 64 | the tree's name, zeroes after it |
//! | 336 | 8 | serial, from 1 on |
//! | 344 | 8 | time, in seconds since 1970 |
//! | 352 | 84 each | a signature: its kind, 1 for ed25519 (4 bytes), the key's id (16), the signature (64) |
//!
//! Little endian. A signature is over the message `shuntfs seal 2` whose parts are the formatted digest of the manifest, the tree's
//! name, the serial and the time, so it is valid for nothing else, and nothing else for it.
//!
//! Version 1 has no name, serial and time: its signatures start at 272, and are over the message `shuntfs manifest 1` whose only
//! part is the formatted digest. It is read, and its serial counts as 0. No signature of one version is good in the other.

use std::time::{SystemTime, UNIX_EPOCH};

use shuntfs_verity::sign::{KeyId, KeyPair, Message, PublicKey, Signature};
use shuntfs_verity::{DESCRIPTOR_LEN, Descriptor, Digest};

use crate::TreeName;

const MAGIC: [u8; 8] = *b"shuntsel";
const VERSION: u32 = 2;
const VERSION_WITHOUT_SERIAL: u32 = 1;
const HEAD_LEN: usize = 16 + DESCRIPTOR_LEN;
const NAME_LEN: usize = TreeName::LEN_MAX;
const ISSUE_LEN: usize = NAME_LEN + 16;
const SIGNATURE_LEN: usize = 4 + 16 + Signature::LEN;
const ED25519: u32 = 1;
const CONTEXT: &str = "shuntfs seal 2";
const CONTEXT_WITHOUT_SERIAL: &str = "shuntfs manifest 1";

/// Length of the longest seal.
pub(crate) const SEAL_LEN_MAX: usize = HEAD_LEN + ISSUE_LEN + Seal::SIGNATURES_MAX * SIGNATURE_LEN;

/// A signature of a seal; whether it is good is for [`Trust`](crate::Trust) to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SealSignature {
    /// Names the key; anybody can write any name here.
    pub key: KeyId,
    /// The signature.
    pub signature: Signature,
}

/// Which of a tree's seals one is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(clippy::exhaustive_structs, reason = "what a signature covers is decided with the format")]
pub struct Issue {
    /// The tree.
    pub tree: TreeName,
    /// Greater than that of every seal of the tree before, and not 0.
    pub serial: u64,
    /// When it was made, in seconds since 1970, by the clock of who made it. It informs; serials decide.
    pub time: u64,
}

impl Issue {
    /// The next one of a tree: its serial is that of the seal before plus one, or the time, whichever is greater. So it rises even
    /// where the seal before is lost, or an older one was put in its place.
    #[must_use]
    pub fn next(tree: TreeName, before: Option<u64>, now: SystemTime) -> Self {
        let time = now.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let serial = before.map_or(1, |before| before.saturating_add(1)).max(time).max(1);
        Self { tree, serial, time }
    }

    /// Whether the serial is one that no seal should have yet: those made from the time, or counted on from it, are not a year ahead
    /// of it. After the greatest one there could be no newer seal.
    #[must_use]
    pub fn is_far_ahead_of(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.serial > now.saturating_add(366 * 24 * 60 * 60)
    }
}

/// What a store says is the manifest of its tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seal {
    descriptor: Descriptor,
    issue: Option<Issue>,
    signatures: Vec<SealSignature>,
}

impl Seal {
    /// The most signatures that a seal has.
    pub const SIGNATURES_MAX: usize = 16;

    /// A seal over a manifest, signed by each of these keys, of which the first 16 count. Without an issue it is of the older form.
    #[must_use]
    pub fn new(descriptor: Descriptor, issue: Option<Issue>, keys: &[&KeyPair]) -> Self {
        let mut seal = Self { descriptor, issue, signatures: Vec::new() };
        let message = seal.message();
        let sign =
            |key: &&KeyPair| SealSignature { key: key.public().id(), signature: key.sign_message(&message) };
        seal.signatures = keys.iter().take(Self::SIGNATURES_MAX).map(sign).collect();
        seal
    }

    /// The manifest's descriptor.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Which of the tree's seals it is; `None` of one that an older version made.
    #[must_use]
    pub fn issue(&self) -> Option<&Issue> {
        self.issue.as_ref()
    }

    /// The serial; 0 of a seal that has none.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.issue.as_ref().map_or(0, |issue| issue.serial)
    }

    /// The signatures, unchecked.
    #[must_use]
    pub fn signatures(&self) -> &[SealSignature] {
        &self.signatures
    }

    /// What is signed.
    #[must_use]
    pub fn message(&self) -> Message {
        message(&self.descriptor.digest(), self.issue.as_ref())
    }

    /// Adds a signature that was made elsewhere, instead of another one by the same key.
    ///
    /// # Errors
    /// It is not this key's over this seal, or there are 16 by other keys.
    pub fn attach(&mut self, key: &PublicKey, signature: Signature) -> Result<(), String> {
        let signed = key.verify_message(&self.message(), &signature).map_err(|error| error.to_string())?;
        let made = SealSignature { key: signed.key(), signature };
        if let Some(known) = self.signatures.iter_mut().find(|known| known.key == made.key) {
            *known = made;
        } else if self.signatures.len() < Self::SIGNATURES_MAX {
            self.signatures.push(made);
        } else {
            return Err(format!("the seal has {} signatures, and no room for more", Self::SIGNATURES_MAX));
        }
        Ok(())
    }

    /// Reads a seal.
    ///
    /// # Errors
    /// A sentence that says why it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (head, behind) = bytes.split_first_chunk::<HEAD_LEN>().ok_or("the seal is truncated")?;
        let (magic, rest) = head.split_first_chunk::<8>().ok_or("the seal is truncated")?;
        let (version, rest) = rest.split_first_chunk::<4>().ok_or("the seal is truncated")?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or("the seal is truncated")?;
        let descriptor = rest.first_chunk::<DESCRIPTOR_LEN>().ok_or("the seal is truncated")?;
        if *magic != MAGIC {
            return Err("it does not start as a seal".into());
        }
        let (issue, signatures) = match u32::from_le_bytes(*version) {
            VERSION => {
                let (issue, rest) = behind.split_first_chunk::<ISSUE_LEN>().ok_or("the seal is truncated")?;
                (Some(parse_issue(issue)?), rest)
            }
            VERSION_WITHOUT_SERIAL => (None, behind),
            version => {
                return Err(format!(
                    "the seal has version {version} of the format, and only versions 1 and 2 are known"
                ));
            }
        };
        let count = usize::try_from(u32::from_le_bytes(*count)).unwrap_or(usize::MAX);
        if count > Self::SIGNATURES_MAX || signatures.len() != count * SIGNATURE_LEN {
            return Err(format!("the seal is not as long as one with {count} signatures"));
        }
        let descriptor =
            Descriptor::parse(descriptor).map_err(|error| format!("the manifest's descriptor: {error}"))?;
        if !descriptor.params().block_size().is_for_sealing() {
            return Err("the manifest's descriptor: a block size that is not offered".into());
        }
        let signatures =
            signatures.chunks_exact(SIGNATURE_LEN).map(parse_signature).collect::<Result<_, _>>()?;
        Ok(Self { descriptor, issue, signatures })
    }

    /// The bytes of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = u32::try_from(self.signatures.len()).expect("at most 16");
        let version = if self.issue.is_some() { VERSION } else { VERSION_WITHOUT_SERIAL };
        let mut bytes = Vec::with_capacity(SEAL_LEN_MAX);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&self.descriptor.to_bytes());
        if let Some(Issue { tree, serial, time }) = &self.issue {
            let mut name = [0; NAME_LEN];
            name.iter_mut().zip(tree.as_str().bytes()).for_each(|(to, from)| *to = from);
            bytes.extend_from_slice(&name);
            bytes.extend_from_slice(&serial.to_le_bytes());
            bytes.extend_from_slice(&time.to_le_bytes());
        }
        for SealSignature { key, signature } in &self.signatures {
            bytes.extend_from_slice(&ED25519.to_le_bytes());
            bytes.extend_from_slice(&key.0);
            bytes.extend_from_slice(&signature.0);
        }
        bytes
    }

    /// Which of these keys have signed, each once, and which have a signature here that is not theirs over this.
    pub(crate) fn signers(&self, keys: &[PublicKey]) -> Signers {
        let message = self.message();
        let mut signers = Signers { good: Vec::new(), wrong: Vec::new() };
        for SealSignature { key: id, signature } in &self.signatures {
            for key in keys.iter().filter(|key| key.id() == *id) {
                let (list, id) = match key.verify_message(&message, signature) {
                    Ok(signed) => (&mut signers.good, signed.key()),
                    Err(_) => (&mut signers.wrong, *id),
                };
                if !list.contains(&id) {
                    list.push(id);
                }
            }
        }
        signers
    }
}

/// Whose signatures a seal has, of keys that are asked for.
pub(crate) struct Signers {
    pub(crate) good: Vec<KeyId>,
    pub(crate) wrong: Vec<KeyId>,
}

/// What is carried to another machine to be signed there: the message itself.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ToSign {
    /// The manifest's digest.
    pub digest: Digest,
    /// Which of the tree's seals it is.
    pub issue: Issue,
}

impl ToSign {
    /// The most bytes that it can have.
    pub const LEN_MAX: usize = 512;

    /// Reads a message of a seal.
    ///
    /// # Errors
    /// A sentence that says why it is none. What this gives makes the same message again, byte for byte.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let none = || "it is not what `shunt seal show --to-sign` writes".to_owned();
        let (context, parts) = Message::parse(bytes).ok_or_else(none)?;
        let [digest, tree, serial, time] = parts.as_slice() else { return Err(none()) };
        let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        let issue = || {
            let tree = std::str::from_utf8(tree).ok()?.parse().ok()?;
            Some(Issue { tree, serial: number(serial).filter(|serial| *serial > 0)?, time: number(time)? })
        };
        let digest = Digest::from_formatted(digest).ok_or_else(none)?;
        let all = Self { digest, issue: issue().ok_or_else(none)? };
        if context == CONTEXT && all.message().as_bytes() == bytes { Ok(all) } else { Err(none()) }
    }

    /// What is signed.
    #[must_use]
    pub fn message(&self) -> Message {
        message(&self.digest, Some(&self.issue))
    }
}

fn message(digest: &Digest, issue: Option<&Issue>) -> Message {
    let Some(Issue { tree, serial, time }) = issue else {
        return Message::new(CONTEXT_WITHOUT_SERIAL).part(&digest.formatted());
    };
    let message = Message::new(CONTEXT).part(&digest.formatted()).part(tree.as_str().as_bytes());
    message.part(&serial.to_le_bytes()).part(&time.to_le_bytes())
}

fn parse_issue(bytes: &[u8; ISSUE_LEN]) -> Result<Issue, String> {
    let (name, rest) = bytes.split_first_chunk::<NAME_LEN>().ok_or("the seal is truncated")?;
    let (serial, rest) = rest.split_first_chunk::<8>().ok_or("the seal is truncated")?;
    let time = rest.first_chunk::<8>().ok_or("the seal is truncated")?;
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_LEN);
    let (name, zeroes) = name.split_at(len);
    let name = std::str::from_utf8(name).ok().filter(|_| zeroes.iter().all(|byte| *byte == 0));
    let tree = name.ok_or("the tree's name is none")?.parse().map_err(|error| format!("{error}"))?;
    let issue = Issue { tree, serial: u64::from_le_bytes(*serial), time: u64::from_le_bytes(*time) };
    if issue.serial == 0 { Err("the seal has serial 0".into()) } else { Ok(issue) }
}

fn parse_signature(bytes: &[u8]) -> Result<SealSignature, String> {
    let (kind, rest) = bytes.split_first_chunk::<4>().ok_or("a signature is truncated")?;
    let (key, rest) = rest.split_first_chunk::<16>().ok_or("a signature is truncated")?;
    let signature = rest.first_chunk::<{ Signature::LEN }>().ok_or("a signature is truncated")?;
    match u32::from_le_bytes(*kind) {
        ED25519 => Ok(SealSignature { key: KeyId(*key), signature: Signature(*signature) }),
        kind => Err(format!("a signature of kind {kind}, and only kind 1 is known")),
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_verity::{Algorithm, Params};

    fn descriptor() -> Descriptor {
        Descriptor::new(&Params::default(), 300, Digest::new(Algorithm::Sha256, &[7; 32]).unwrap()).unwrap()
    }

    fn issue() -> Issue {
        Issue { tree: "photos".parse().unwrap(), serial: 7, time: 1_700_000_000 }
    }

    #[test]
    fn a_seal_is_read_as_it_was_written() {
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        for keys in [&[][..], &[&one], &[&one, &other]] {
            for issue in [None, Some(issue())] {
                let seal = Seal::new(descriptor(), issue, keys);
                assert_eq!(Seal::parse(&seal.to_bytes()), Ok(seal));
            }
        }
        let longest = Issue { tree: "x".repeat(NAME_LEN).parse().unwrap(), ..issue() };
        let keys = vec![&one; 20];
        let seal = Seal::new(descriptor(), Some(longest), &keys);
        assert_eq!((seal.to_bytes().len(), seal.signatures().len()), (SEAL_LEN_MAX, 16));
        assert_eq!(Seal::parse(&seal.to_bytes()), Ok(seal));
    }

    #[test]
    fn what_is_no_seal_is_refused() {
        let key = KeyPair::generate().unwrap();
        for (issue, places) in [(None, &[0, 8, 12, 272][..]), (Some(issue()), &[0, 8, 12, 280, 335, 352])] {
            let bytes = Seal::new(descriptor(), issue, &[&key]).to_bytes();
            for len in 0..bytes.len() {
                Seal::parse(&bytes[..len]).unwrap_err();
            }
            Seal::parse(&[&bytes[..], &[0]].concat()).unwrap_err();
            for at in places {
                let mut bytes = bytes.clone();
                bytes[*at] ^= 0x40;
                Seal::parse(&bytes).unwrap_err();
            }
        }
        let none = Issue { serial: 0, ..issue() };
        Seal::parse(&Seal::new(descriptor(), Some(none), &[]).to_bytes()).unwrap_err();
    }

    #[test]
    fn every_bit_that_is_signed_counts() {
        let key = KeyPair::generate().unwrap();
        let good = |bytes: &[u8]| {
            Seal::parse(bytes).is_ok_and(|seal| !seal.signers(&[key.public()]).good.is_empty())
        };
        for issue in [None, Some(issue())] {
            let bytes = Seal::new(descriptor(), issue, &[&key]).to_bytes();
            assert!(good(&bytes));
            for bit in 0..bytes.len() * 8 {
                let mut bytes = bytes.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(!good(&bytes), "bit {bit}");
            }
        }
        // Neither form can be made of the other.
        let (new, old) =
            (Seal::new(descriptor(), Some(issue()), &[&key]), Seal::new(descriptor(), None, &[&key]));
        let swapped = |seal: &Seal, issue| Seal { issue, ..seal.clone() };
        assert!(!good(&swapped(&new, None).to_bytes()) && !good(&swapped(&old, Some(issue())).to_bytes()));
    }

    #[test]
    fn a_signature_that_was_made_elsewhere_is_attached() {
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut seal = Seal::new(descriptor(), Some(issue()), &[]);
        let carried = ToSign::parse(seal.message().as_bytes()).unwrap();
        assert_eq!((carried.digest, &carried.issue), (descriptor().digest(), &issue()));
        seal.attach(&one.public(), one.sign_message(&carried.message())).unwrap();
        seal.attach(&one.public(), other.sign_message(&carried.message())).unwrap_err();
        seal.attach(&one.public(), one.sign_message(&carried.message())).unwrap();
        seal.attach(&other.public(), other.sign_message(&carried.message())).unwrap();
        assert_eq!(seal, Seal::new(descriptor(), Some(issue()), &[&one, &other]));
        let bytes = carried.message().as_bytes().to_vec();
        for len in 0..bytes.len() {
            ToSign::parse(&bytes[..len]).unwrap_err();
        }
        ToSign::parse(Seal::new(descriptor(), None, &[]).message().as_bytes()).unwrap_err();
        ToSign::parse(Message::new("shuntfs seal 3").part(&bytes).as_bytes()).unwrap_err();
        assert!(bytes.len() <= ToSign::LEN_MAX);
    }

    #[test]
    fn serials_rise_whatever_the_clock_says() {
        let at = |secs: u64| UNIX_EPOCH + std::time::Duration::from_secs(secs);
        let next = |before, now| Issue::next(issue().tree, before, now).serial;
        assert_eq!(next(None, at(100)), 100);
        assert_eq!(next(Some(7), at(100)), 100);
        assert_eq!(next(Some(100), at(100)), 101);
        assert_eq!(next(Some(500), at(100)), 501);
        assert_eq!(next(Some(500), UNIX_EPOCH - std::time::Duration::from_secs(9)), 501);
        assert_eq!(next(None, at(0)), 1);
        assert_eq!(next(Some(u64::MAX), at(0)), u64::MAX);
        let ahead = |serial| Issue { serial, ..issue() }.is_far_ahead_of(at(1_800_000_000));
        assert!(!ahead(1) && !ahead(1_800_000_500) && ahead(1_900_000_000) && ahead(u64::MAX));
    }
}
