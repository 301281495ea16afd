//! The fuzz target for a short while, without libFuzzer: manifests, seals and side files with mistakes put in.
//! How long, and which seeds: `shuntfs_testkit::seeded`.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "../../../fuzz/fuzz_targets/entry/seal.rs"]
mod seal;
#[path = "../../../fuzz/fuzz_targets/entry/trust_store.rs"]
mod trust_store;

use std::fs;
use std::num::NonZeroUsize;

use shuntfs_seal::{
    Child, Draft, DraftNode, Issue, NodeIndex, Progress, Seal, Side, Trust, Xattr, seal_file, verify_file,
};
use shuntfs_testkit::seeded::{Random, fuzz};
use shuntfs_verity::sign::KeyPair;
use shuntfs_verity::{Descriptor, Digest, Discard, Params, build};

/// A manifest of a few folders, files, links and symlinks.
fn manifest(random: &mut Random) -> Vec<u8> {
    let params = Params::default();
    let folder = DraftNode { mode: 0o040_755, ..DraftNode::default() };
    let mut draft = Draft::new(params, folder.clone()).unwrap();
    let mut folders = vec![NodeIndex::ROOT];
    while let Some(at) = folders.pop() {
        let count = random.below(6);
        let mut children = Vec::new();
        for index in 0..count {
            let mut node = folder.clone();
            let mut link = None;
            match random.below(4) {
                0 if folders.len() < 8 => {}
                1 => (node.mode, node.target) = (0o120_777, b"../x".to_vec()),
                kind => {
                    (node.mode, node.size) = (0o100_644, random.number() >> 20);
                    link = (kind == 2).then(|| (shuntfs_sys::Device::default(), random.number() % 3));
                }
            }
            if random.below(3) == 0 {
                node.xattrs.push(Xattr { name: b"user.a".to_vec(), value: random.bytes(9) });
            }
            children.push(Child { name: vec![b'a' + u8::try_from(index).unwrap()], node, link });
        }
        let is_folder: Vec<bool> = children.iter().map(|child| child.node.mode == folder.mode).collect();
        let placed = draft.fill(at, children).unwrap();
        folders.extend(placed.iter().zip(is_folder).filter(|(_, is)| *is).map(|(placed, _)| placed.node));
    }
    let mut bytes = Vec::new();
    draft.write(&mut bytes).unwrap();
    bytes
}

fn make(random: &mut Random, key: &KeyPair) -> Vec<u8> {
    let mut bytes = if random.below(8) == 0 {
        let serial = random.number() % 1000;
        let line = format!("tree{} {} {serial} sha256:{}\n", serial % 3, key.public().id(), "ab".repeat(32));
        let count = random.below(3);
        format!("shunt serials 1\n{}end {count}\n", line.repeat(count)).into_bytes()
    } else if random.below(8) == 0 {
        let issue = Issue { tree: "a".parse().unwrap(), serial: 1 + random.number() % 3, time: 7 };
        let none = Digest::zero(Params::default().algorithm());
        let descriptor = Descriptor::new(&Params::default(), 999, none).unwrap();
        Seal::new(descriptor, Some(issue), &[]).message().as_bytes().to_vec()
    } else if random.below(8) == 0 {
        let descriptor =
            Descriptor::new(&Params::default(), 999, Digest::zero(Params::default().algorithm()));
        let issue =
            Issue { tree: "a".parse().unwrap(), serial: 1 + random.number() % 3, time: random.number() };
        Seal::new(descriptor.unwrap(), (random.below(4) > 0).then_some(issue), &[key]).to_bytes()
    } else {
        manifest(random)
    };
    for _ in 0..random.below(4) {
        // Numbers are at multiples of 4 bytes, and small ones mean something.
        let at = random.below(bytes.len()) & !3;
        let number = [0, 1, 2, 3, 0xff, 0x100, 0x4000, u32::MAX][random.below(8)];
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            _ => {
                let room = bytes.iter_mut().skip(at);
                room.zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// Found by libFuzzer: two entries of one name, a folder's and that of a file whose home is elsewhere. A search for the name finds
/// the file, of which nobody can tell the folder; the target took it for the folder.
#[test]
fn two_nodes_of_one_name() {
    seal::run(include_bytes!("data/two_nodes_of_one_name.manifest"));
}

#[test]
fn manifests_and_seals_with_mistakes_put_in() {
    let key = KeyPair::generate().unwrap();
    fuzz(seal::run, |random| make(random, &key));
}

/// The bytes of the file beside which side files of any bytes are put.
fn beside() -> Vec<u8> {
    (0..9000_u32).map(|at| at.to_le_bytes()[0]).collect()
}

struct Nobody;

impl Progress for Nobody {
    fn found(&self, _: u64) {}
    fn to_hash(&self, _: u64, _: u64) {}
    fn hashed(&self, _: u64) {}
    fn file_done(&self) {}
}

/// A side file: refused, or another than the one that was signed, or the file is as it says.
fn side(bytes: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    let data = beside();
    fs::write(&file, &data).unwrap();
    fs::write(Side::path_of(&file), bytes).unwrap();
    let Ok(side) = Side::open(&file) else { return };
    let of = |params: &Params| {
        build(params, data.len() as u64, &data[..], Discard, NonZeroUsize::MIN).unwrap().digest()
    };
    if side.check(&Trust::keys(vec![KeyPair::from_pem(trust_store::KEY).unwrap().public()])).is_ok() {
        assert_eq!(side.descriptor.digest(), of(&Params::default()), "never signed");
    }
    if let Ok(None) = verify_file(&file, &side, NonZeroUsize::MIN, &Nobody) {
        assert_eq!(side.descriptor.digest(), of(side.descriptor.params()), "other bytes than these");
    }
}

#[test]
fn side_files_with_mistakes_put_in() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, beside()).unwrap();
    let key = KeyPair::from_pem(trust_store::KEY).unwrap();
    seal_file(&file, &Params::default(), Some(&key), NonZeroUsize::MIN, &Nobody).unwrap();
    let good = fs::read(Side::path_of(&file)).unwrap();
    side(&good);
    fuzz(side, |random| {
        let mut bytes = good.clone();
        for _ in 0..random.below(4) {
            // As a rule in the head, where numbers are.
            let len = bytes.len().max(1);
            let most = if random.below(4) == 0 { len } else { len.min(340) };
            let at = random.below(most);
            match random.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.extend_from_within(at.min(bytes.len())..),
                2 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = 0xff),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            }
        }
        bytes
    });
}

/// The public key of the first example of RFC 8032.
const OTHER: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";

/// The files of a trust store, as a rule good ones, and seals that are recorded.
fn store(random: &mut Random, key: &KeyPair) -> Vec<u8> {
    let config = ["", "threshold = 1\n", "threshold = 2\n", "# none\n"][random.below(4)];
    let mut serials = Vec::new();
    for tree in 0..3 {
        if random.below(2) == 0 {
            let (serial, digest) = (1 + random.number() % 300, ["00", "01", "ab"][random.below(3)]);
            let line = format!("tree{tree} {} {serial} sha256:{}\n", key.public().id(), digest.repeat(32));
            serials.push(line);
        }
    }
    serials.push(format!("end {}\n", serials.len()));
    let seen =
        if random.below(4) == 0 { String::new() } else { format!("shunt serials 1\n{}", serials.concat()) };
    let other = match random.below(3) {
        0 => format!("expires = 2{}27-12-31\n{OTHER}", random.below(10)),
        1 => OTHER.to_owned(),
        _ => String::new(),
    };
    let mut bytes = [config, &seen, &other].join("\0").into_bytes();
    if random.below(3) == 0 && !bytes.is_empty() {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
    bytes.push(0);
    bytes.extend(random.bytes(30));
    bytes
}

#[test]
fn trust_stores_with_mistakes_put_in() {
    let key = KeyPair::from_pem(trust_store::KEY).unwrap();
    fuzz(trust_store::run, |random| store(random, &key));
}
