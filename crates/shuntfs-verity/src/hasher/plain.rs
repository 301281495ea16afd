//! One block at a time, by the crate `sha2`.

use sha2::{Digest as _, Sha256, Sha512};

use crate::{Algorithm, Digest, Params};

pub(super) fn hash_block(params: &Params, block: &[u8], out: &mut Vec<u8>) {
    let salt = params.salt();
    let mut prefix = [0; 128];
    let prefix_len = if salt.is_empty() { 0 } else { params.algorithm().input_len() };
    prefix[..salt.as_bytes().len()].copy_from_slice(salt.as_bytes());
    let pad = vec![0; params.block_size().len() - block.len()];
    match params.algorithm() {
        Algorithm::Sha256 => out.extend_from_slice(
            &Sha256::new()
                .chain_update(&prefix[..prefix_len])
                .chain_update(block)
                .chain_update(pad)
                .finalize(),
        ),
        Algorithm::Sha512 => out.extend_from_slice(
            &Sha512::new()
                .chain_update(&prefix[..prefix_len])
                .chain_update(block)
                .chain_update(pad)
                .finalize(),
        ),
    }
}

pub(super) fn hash(algorithm: Algorithm, bytes: &[u8]) -> Digest {
    let digest = match algorithm {
        Algorithm::Sha256 => Digest::new(algorithm, &Sha256::digest(bytes)),
        Algorithm::Sha512 => Digest::new(algorithm, &Sha512::digest(bytes)),
    };
    digest.expect("the algorithm's length")
}
