//! Everything that `fsverity` 1.5 makes of 257 files, compared with what is made here.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

use std::collections::HashMap;
use std::num::NonZeroUsize;

use serde_json::Value;
use sha2::Digest as _;
use shuntfs_verity::{
    Algorithm, BlockHasher, BlockSize, Descriptor, Kernel, Level, Params, Salt, TreeBuilder, Verifier, build,
    build_at,
};

const VECTORS: &str = include_str!("data/fsverity-vectors.json");

struct Vector {
    size: usize,
    params: Params,
    value: Value,
}

impl Vector {
    fn text(&self, field: &str) -> &str {
        self.value[field].as_str().unwrap()
    }

    fn number(&self, field: &str) -> u64 {
        self.value[field].as_u64().unwrap()
    }

    fn name(&self) -> String {
        format!("{} bytes, {:?}", self.size, self.params)
    }
}

/// All vectors, the largest files last.
fn vectors() -> Vec<Vector> {
    let all: Value = serde_json::from_str(VECTORS).unwrap();
    let vector = |value: &Value| {
        let algorithm: Algorithm = value["alg"].as_str().unwrap().parse().unwrap();
        let block_size = u32::try_from(value["block_size"].as_u64().unwrap()).unwrap();
        let salt: Salt = value["salt"].as_str().unwrap().parse().unwrap();
        let params = Params::new(algorithm, BlockSize::any(block_size, algorithm).unwrap(), salt).unwrap();
        let size = usize::try_from(value["size"].as_u64().unwrap()).unwrap();
        Vector { size, params, value: value.clone() }
    };
    let mut vectors: Vec<Vector> = all["vectors"].as_array().unwrap().iter().map(vector).collect();
    assert_eq!(vectors.len() as u64, all["count"].as_u64().unwrap());
    assert_eq!(vectors.len(), 257);
    vectors.sort_by_key(|vector| vector.size);
    vectors
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from((7 * at + 13) % 251).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The content of the largest file; those of the others are its beginnings.
fn largest(vectors: &[Vector]) -> Vec<u8> {
    content(vectors.last().unwrap().size)
}

#[test]
fn digests_trees_and_descriptors_are_those_of_fsverity() {
    let vectors = vectors();
    let content = largest(&vectors);
    let two = NonZeroUsize::new(2).unwrap();
    for vector in &vectors {
        let (name, data) = (vector.name(), &content[..vector.size]);
        let mut tree = Vec::new();
        let descriptor = build_at(&vector.params, data.len() as u64, data, &mut tree, two).unwrap();
        assert_eq!(descriptor.digest().to_hex(), vector.text("digest"), "{name}");
        assert_eq!(descriptor.root_hash().to_hex(), vector.text("root_hash"), "{name}");
        assert_eq!(tree.len() as u64, vector.number("tree_size"), "{name}");
        assert_eq!(hex(&sha2::Sha256::digest(&tree)), vector.text("tree_sha256"), "{name}");
        let bytes = descriptor.to_bytes();
        assert_eq!(hex(&sha2::Sha256::digest(bytes)), vector.text("descriptor_sha256"), "{name}");
        assert_eq!(Descriptor::parse(&bytes), Ok(descriptor), "{name}");
        let verifier = Verifier::new(descriptor, &descriptor.digest()).unwrap();
        assert_eq!(verifier.shape().levels() as u64, vector.number("levels"), "{name}");
        assert_eq!(verifier.shape().tree_len(), vector.number("tree_size"), "{name}");
    }
}

#[test]
fn salts_are_generated_as_the_readme_says() {
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for vector in vectors() {
        let salt = vector.params.salt();
        let generated: Vec<u8> =
            (0..salt.as_bytes().len()).map(|at| u8::try_from((11 * at + 5) % 256).unwrap()).collect();
        assert_eq!(salt.as_bytes(), generated);
        *lengths.entry(generated.len()).or_default() += 1;
    }
    assert!([0, 1, 8, 16, 31, 32].iter().all(|len| lengths[len] > 0), "{lengths:?}");
}

#[test]
fn streams_and_single_hashes_make_the_same() {
    let vectors = vectors();
    // Those of a few blocks; the large ones take the same ways.
    for vector in vectors.iter().filter(|vector| vector.size <= 600_000) {
        let data = content(vector.size);
        let (size, name) = (data.len() as u64, vector.name());
        let mut streamed = Vec::new();
        let threads = NonZeroUsize::new(3).unwrap();
        let descriptor = build(&vector.params, size, &data[..], &mut streamed, threads).unwrap();
        assert_eq!(descriptor.digest().to_hex(), vector.text("digest"), "{name}");

        let mut tree = Vec::new();
        let mut builder = TreeBuilder::new(&vector.params, size, &mut tree).unwrap();
        let hasher = BlockHasher::with_kernel(&vector.params, Kernel::Plain).unwrap();
        for block in data.chunks(vector.params.block_size().len()) {
            let mut hash = Vec::new();
            hasher.hash_blocks(block, &mut hash);
            builder.push_hashes(&hash).unwrap();
        }
        assert_eq!(builder.finish().unwrap(), descriptor, "{name}");
        assert_eq!(tree, streamed, "{name}");
    }
}

/// Climbs from every block to the root hash, which proves every block of data and tree.
#[test]
fn every_block_of_every_vector_is_proved() {
    let vectors = vectors();
    for vector in vectors.iter().filter(|vector| vector.size <= 600_000) {
        let data = content(vector.size);
        let mut tree = Vec::new();
        let one = NonZeroUsize::MIN;
        let descriptor = build_at(&vector.params, data.len() as u64, &data[..], &mut tree, one).unwrap();
        let verifier = Verifier::new(descriptor, &descriptor.digest()).unwrap();
        let shape = verifier.shape();
        let mut level = Level::Data;
        for _ in 0..=shape.levels() {
            for block in 0..shape.blocks(level) {
                let source = if level == Level::Data { &data } else { &tree };
                let of = |level, block| {
                    let bytes = shape.bytes_of(level, block..block + 1);
                    usize::try_from(bytes.start).unwrap()..usize::try_from(bytes.end).unwrap()
                };
                let hash = match shape.place_of(level, block) {
                    Some(place) => {
                        let above = &tree[of(place.level, place.index)];
                        &above[place.offset..place.offset + vector.params.algorithm().digest_len()]
                    }
                    None => verifier.root_hash(),
                };
                let checked = verifier.check(level, block, &source[of(level, block)], hash);
                assert!(
                    checked.is_ok_and(|checked| checked.blocks() == 1),
                    "{}: {level}, {block}",
                    vector.name()
                );
            }
            level = level.above();
        }
    }
}
