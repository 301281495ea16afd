//! Takes any bytes for the files of a trust store, separated by NUL: `config`, `seen`, the key `other.pub`; and what follows for
//! seals that are judged and recorded, three bytes each. A store that is refused is left as it was. One that is taken goes on
//! being taken, says the same when it is read again, and no serial in it ever goes down. Runs under libFuzzer and in the tests of
//! `shuntfs-seal`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use shuntfs_seal::{Issue, Seal, Trust, TrustStore};
use shuntfs_verity::sign::KeyPair;
use shuntfs_verity::{Algorithm, Descriptor, Digest, Params};

/// The key that is always trusted, and signs.
pub(crate) const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
/// Seals of one run: each that is recorded is made durable.
const STEPS_MAX: usize = 16;

type Files = BTreeMap<String, Vec<u8>>;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(key) = KeyPair::from_pem(KEY) else { return };
    // Where making durable costs nothing.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let Ok(folder) = tempfile::tempdir_in(place) else { return };
    let mut parts = bytes.splitn(4, |byte| *byte == 0);
    for name in ["config", "seen", "other.pub"] {
        if let Some(part) = parts.next().filter(|part| !part.is_empty()) {
            put(folder.path(), name, part);
        }
    }
    put(folder.path(), "own.pub", key.public().to_pem().as_bytes());
    let before = files(folder.path());
    let opened = TrustStore::open(folder.path());
    assert!(files(folder.path()) == before, "what is only read is left as it was");
    let Ok(store) = opened else { return };
    assert!(store.keys().iter().any(|one| one.key == key.public()));
    let again = store.read_again().expect("what was read is read again");
    assert!(again.keys() == store.keys() && again.threshold() == store.threshold());
    let Ok(trust) = Trust::store(store, SystemTime::now()) else { return };
    for step in parts.next().unwrap_or_default().chunks_exact(3).take(STEPS_MAX) {
        see(folder.path(), &trust, &key, step);
    }
    let after = files(folder.path());
    for (name, bytes) in &before {
        assert!(name == "seen" || after.get(name) == Some(bytes), "{name} is nobody's to write here");
    }
}

/// Judges a seal and records it where it is taken.
fn see(folder: &Path, trust: &Trust, key: &KeyPair, step: &[u8]) {
    let (tree, serial, digest) = (step[0] % 3, u64::from(step[1]) + 1, step[2] % 4);
    let params = Params::default();
    let root = Digest::new(Algorithm::Sha256, &[digest; 32]).expect("of its length");
    let descriptor = Descriptor::new(&params, 999, root).expect("is one");
    let tree = format!("tree{tree}").parse().expect("a name");
    let issue = Issue { tree, serial, time: 7 };
    let seal = Seal::new(descriptor, Some(issue.clone()), &[key]);
    let digest = seal.descriptor().digest();
    let path = Path::new("seal");
    let serials = |why: &str| {
        let store = TrustStore::open(folder).unwrap_or_else(|error| panic!("{why}: {error}"));
        (store.serials().expect("was read at its opening"), store)
    };
    let (before, store) = serials("it was taken before");
    let taken = trust.check(&seal, path);
    let is_stale = before.iter().any(|one| {
        let counts = one.tree == issue.tree && store.keys().iter().any(|key| key.key.id() == one.key);
        counts && (one.serial > serial || one.serial == serial && one.digest != digest)
    });
    assert!(!is_stale || taken.is_err(), "serial {serial} of {} is older than what was seen", issue.tree);
    if let Ok(accepted) = &taken {
        let noted = trust.record(&seal, accepted, path);
        assert!(matches!(noted, Ok(None)), "{noted:?}");
    }
    let (after, _) = serials("we have written it");
    for one in &before {
        let now = after.iter().find(|now| (&now.tree, now.key) == (&one.tree, one.key));
        let now = now.unwrap_or_else(|| panic!("{one:?} is gone"));
        assert!(now.serial >= one.serial, "{one:?} fell to {}", now.serial);
        assert!(now.serial > one.serial || now == one, "{one:?} is {now:?}");
    }
    let is_seen = || {
        after.iter().any(|one| one.tree == issue.tree && one.key == key.public().id() && one.serial >= serial)
    };
    assert!(taken.is_err() || is_seen(), "what was taken is seen");
}

fn put(folder: &Path, name: &str, bytes: &[u8]) {
    let made = File::options().write(true).create_new(true).mode(0o644).open(folder.join(name));
    made.and_then(|mut file| file.write_all(bytes)).expect("the folder is ours");
}

fn files(folder: &Path) -> Files {
    let entries = fs::read_dir(folder).expect("the folder is ours").flatten();
    let named = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    named.map(|name| (name.clone(), fs::read(folder.join(name)).expect("is ours"))).collect()
}
