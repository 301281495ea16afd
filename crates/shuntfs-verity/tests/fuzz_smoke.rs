//! The fuzz targets for a short while, without libFuzzer. How long, and which seeds: `shuntfs_testkit::seeded`.

#[path = "../../../fuzz/fuzz_targets/verity/entry.rs"]
mod entry;

use shuntfs_testkit::seeded::{Random, fuzz};
use shuntfs_verity::sign::KeyPair;
use shuntfs_verity::{Algorithm, BlockSize, Descriptor, Digest, Params, Salt};

/// Changes, cuts or repeats a few bytes.
fn spoil(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_within(at..),
            2 => bytes.insert(at, random.byte()),
            _ if bytes.is_empty() => bytes.push(random.byte()),
            3 => bytes[at] = 0,
            4 => bytes[at] = 0xff,
            5 => bytes[at] ^= 1 << random.below(8),
            _ => bytes[at] = random.byte(),
        }
    }
}

#[test]
fn descriptors_with_mistakes() {
    fuzz(entry::descriptor, |random| {
        let algorithm = Algorithm::ALL[random.below(2)];
        let block_size = BlockSize::any(1 << (7 + random.below(24)), algorithm).unwrap();
        let salt = Salt::new(&random.bytes(33)).unwrap();
        let params = Params::new(algorithm, block_size, salt).unwrap();
        let root_hash = vec![random.byte(); algorithm.digest_len()];
        let size = random.number() >> (1 + random.below(63));
        let descriptor = Descriptor::new(&params, size, Digest::new(algorithm, &root_hash).unwrap()).unwrap();
        let mut bytes = descriptor.to_bytes().to_vec();
        spoil(&mut bytes, random);
        bytes
    });
}

#[test]
fn signatures_and_keys_with_mistakes() {
    let pair = KeyPair::from_pem(
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n",
    )
    .unwrap();
    let good: [Vec<u8>; 8] = [
        entry::RSA.to_vec(),
        entry::P256.to_vec(),
        include_bytes!("data/rsa.sig.der").to_vec(),
        include_bytes!("data/p256.sig.der").to_vec(),
        pair.to_pem().as_bytes().to_vec(),
        pair.public().to_pem().into_bytes(),
        Digest::zero(Algorithm::Sha512).to_string().into_bytes(),
        b"00112233445566778899aabbccddeeff".to_vec(),
    ];
    good.iter().for_each(|good| entry::signature(good));
    fuzz(entry::signature, |random| {
        let mut bytes = good[random.below(good.len())].clone();
        spoil(&mut bytes, random);
        bytes
    });
}

#[test]
fn blocks_with_mistakes() {
    fuzz(entry::blocks, |random| {
        let mut bytes: Vec<u8> = (0..8).map(|_| random.byte()).collect();
        bytes.extend(random.bytes(900));
        if random.below(2) == 0 {
            bytes[7] = 0;
        }
        bytes
    });
}

/// The targets reach what they are about: the recorded signatures are good ones, for the digest that they are over.
#[test]
fn the_recorded_signatures_are_good() {
    use shuntfs_verity::sign::pkcs7::{Certificate, Pkcs7Error, verify};
    let trusted = [entry::RSA, entry::P256].map(|bytes| Certificate::parse(bytes).unwrap());
    let digest = Digest::new(Algorithm::Sha256, &[9; 32]).unwrap();
    let signatures: [&[u8]; 2] = [include_bytes!("data/rsa.sig.der"), include_bytes!("data/p256.sig.der")];
    for (index, signature) in signatures.into_iter().enumerate() {
        assert_eq!(verify(signature, &digest, &trusted).unwrap().index(), index);
        let other = Digest::new(Algorithm::Sha256, &[8; 32]).unwrap();
        assert_eq!(verify(signature, &other, &trusted), Err(Pkcs7Error::Signature));
    }
}
