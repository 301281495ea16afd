//! `shunt sign`: a raw ed25519 signature over what fs-verity's signatures are over.

use std::io::Write;

use shuntfs_seal::shown;
use shuntfs_verity::Discard;

use super::args::SignArgs;
use super::detached;
use super::digest::{describe, open, write};
use super::files::{private_key, with_suffix};
use crate::failure::Failure;
use crate::run::output_failure;

/// Signs a file.
///
/// # Errors
/// The file or the key cannot be read, the signature cannot be written.
pub(crate) fn run(args: &SignArgs, out: &mut dyn Write) -> Result<(), Failure> {
    if args.seal {
        return detached::sign(args, out);
    }
    let key = private_key(&args.key, &args.passphrase)?;
    let file = open(&args.file)?;
    let digest = describe(&args.file, &file, &args.hash.for_digest()?, Discard)?.digest();
    if let Some(told) = args.digest.filter(|told| *told != digest) {
        let why = format!("{}: it is of {digest}, and not of {told}; nothing is signed", shown(&args.file));
        return Err(Failure::new(why));
    }
    let path = args.out.clone().unwrap_or_else(|| with_suffix(&args.file, ".sig"));
    write(&path, &file, &key.sign_digest(&digest).0)?;
    writeln!(out, "{}: key {} over {digest}", shown(&path), key.public().id())
        .map_err(|error| output_failure(&error))
}
