//! What is read of sealed files, from any bytes. Runs under libFuzzer and in the tests of `shuntfs-verity`.

use std::num::NonZeroUsize;

use shuntfs_verity::sign::pkcs7::{self, Certificate};
use shuntfs_verity::sign::{KeyId, KeyPair, PublicKey};
use shuntfs_verity::{
    Algorithm, BlockSize, Descriptor, Digest, Level, Params, Salt, Shape, Verifier, build_at,
};

pub(crate) const RSA: &[u8] = include_bytes!("../../../crates/shuntfs-verity/tests/data/rsa.cert.der");
pub(crate) const P256: &[u8] = include_bytes!("../../../crates/shuntfs-verity/tests/data/p256.cert.der");

/// A descriptor: refused, or written again as it was, and its shape is one or none.
pub(crate) fn descriptor(bytes: &[u8]) {
    let Some(first) = bytes.first_chunk() else { return };
    let Ok(descriptor) = Descriptor::parse(first) else { return };
    assert_eq!(descriptor.to_bytes(), *first);
    let digest = descriptor.digest();
    assert!(Verifier::new(descriptor, &Digest::zero(digest.algorithm())).is_err());
    let Ok(verifier) = Verifier::new(descriptor, &digest) else { return };
    let shape: &Shape = verifier.shape();
    let blocks = shape.blocks(Level::Data);
    for block in [0, blocks / 2, blocks.saturating_sub(1), blocks, u64::MAX] {
        assert_eq!(
            shape.path_of(Level::Data, block).count(),
            if block < blocks { shape.levels() } else { 0 }
        );
        let _ = verifier.check(Level::Data, block, bytes, &bytes[..32]);
        let _ = verifier.check(Level::Tree(bytes[0]), block, bytes, bytes);
    }
}

/// Signatures, certificates, keys and the texts of digests: refused, or written again as they mean.
pub(crate) fn signature(bytes: &[u8]) {
    let _ = Certificate::parse(bytes).map(|certificate| certificate.subject());
    let trusted = [RSA, P256].map(|bytes| Certificate::parse(bytes).expect("a certificate"));
    // Their keys are gone: nobody signed this.
    let never_signed = Digest::zero(Algorithm::Sha256);
    assert!(pkcs7::verify(bytes, &never_signed, &trusted).is_err());
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = PublicKey::from_pem(text) {
        assert_eq!(PublicKey::from_pem(&key.to_pem()), Ok(key));
    }
    if let Ok(pair) = KeyPair::from_pem(text) {
        assert_eq!(KeyPair::from_pem(&pair.to_pem()).map(|pair| pair.public()), Ok(pair.public()));
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string(), text.to_lowercase());
    }
    if let Ok(salt) = text.parse::<Salt>() {
        assert_eq!(salt.to_string(), text.to_lowercase());
    }
    let _ = text.parse::<KeyId>();
}

/// A small file and its tree, and blocks that claim to be of them: what passes is what was there.
pub(crate) fn blocks(bytes: &[u8]) {
    let Some((&[kind, size, level, first, from, len, at, xor], data)) = bytes.split_first_chunk() else {
        return;
    };
    let algorithm = Algorithm::ALL[usize::from(kind & 1)];
    let block_size = BlockSize::any(128 << (kind >> 1 & 3), algorithm).expect("128 to 1024");
    let params = Params::new(
        algorithm,
        block_size,
        Salt::new(&data[..data.len().min(usize::from(kind >> 3))]).expect("at most 31"),
    );
    let params = params.expect("two hashes fit");
    let data: Vec<u8> =
        data.iter().copied().cycle().take(if data.is_empty() { 0 } else { 33 * usize::from(size) }).collect();
    let mut tree = Vec::new();
    let descriptor =
        build_at(&params, data.len() as u64, &data[..], &mut tree, NonZeroUsize::MIN).expect("a tree");
    let verifier = Verifier::new(descriptor, &descriptor.digest()).expect("its own digest");
    let shape = verifier.shape();
    let level = if level & 3 == 3 { Level::Data } else { Level::Tree(level & 3) };
    let source = if level == Level::Data { &data } else { &tree };
    if shape.blocks(level) == 0 {
        return;
    }
    let first = u64::from(first);
    let start = usize::try_from(shape.bytes_of(level, first..first + 1).start).expect("small");
    let end = (start + usize::from(len) * 16 + usize::from(from)).min(source.len()).max(start);
    let mut claimed = source.get(start..end).unwrap_or_default().to_vec();
    if let Some(byte) = claimed.get_mut(usize::from(at)) {
        *byte ^= xor;
    }
    let count = claimed.len().div_ceil(block_size.len());
    let hashes: Vec<u8> =
        (first..).take(count).flat_map(|block| hash_of(&verifier, &tree, level, block)).collect();
    if verifier.check(level, first, &claimed, &hashes).is_ok() {
        assert!(claimed.iter().eq(&source[start..start + claimed.len()]), "other bytes passed");
        assert!(verifier.mismatches(level, first, &claimed, &hashes).is_ok_and(|all| all.is_empty()));
    } else if let Ok(all) = verifier.mismatches(level, first, &claimed, &hashes) {
        assert!(all.iter().all(|mismatch| mismatch.expected != mismatch.found));
    }
}

fn hash_of(verifier: &Verifier, tree: &[u8], level: Level, block: u64) -> Vec<u8> {
    let shape = verifier.shape();
    let Some(place) = shape.place_of(level, block) else {
        return if block == 0 { verifier.root_hash().to_vec() } else { Vec::new() };
    };
    let above =
        usize::try_from(shape.bytes_of(place.level, place.index..place.index + 1).start).expect("small");
    tree[above + place.offset..][..verifier.root_hash().len()].to_vec()
}
