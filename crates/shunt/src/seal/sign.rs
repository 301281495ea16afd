//! `shunt seal sign`: a raw ed25519 signature over what fs-verity's signatures are over.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use shuntfs_seal::{Named, shown};
use shuntfs_verity::Discard;

use super::args::SignArgs;
use super::detached;
use super::digest::{describe, find, write};
use super::files::{cannot, private_key, with_suffix};
use crate::failure::Failure;
use crate::run::output_failure;

/// Signs a file.
///
/// # Errors
/// The file or the key cannot be read, the signature cannot be written.
pub(super) fn run(args: &SignArgs, out: &mut dyn Write) -> Result<(), Failure> {
    if args.seal {
        return detached::sign(args, out);
    }
    let key = private_key(&args.key, &args.passphrase)?;
    let (named, file) = open(args)?;
    let digest = describe(&args.file, &file, &args.hash.for_digest()?, Discard)?.digest();
    if let Some(told) = args.digest.filter(|told| *told != digest) {
        let why = format!("{}: it is of {digest}, and not of {told}; nothing is signed", shown(&args.file));
        return Err(Failure::new(why));
    }
    let (place, path) = place_of(args, &named)?;
    write(&place, &path, &file, &key.sign_digest(&digest).0)?;
    writeln!(out, "{}: key {} over {digest}", shown(&path), key.public().id())
        .map_err(|error| output_failure(&error))
}

/// Opens what must be signed.
pub(super) fn open(args: &SignArgs) -> Result<(Named, File), Failure> {
    let failed = |error| cannot("read", &args.file, error);
    let named = Named::find(&args.file).map_err(failed)?;
    let file = named.open().map_err(|error| failed(error.into()))?;
    Ok((named, file))
}

/// Where the signature goes: where it was told, or beside the file, in the folder in which that was found.
pub(super) fn place_of(args: &SignArgs, named: &Named) -> Result<(Named, PathBuf), Failure> {
    const SUFFIX: &str = ".sig";
    match &args.out {
        Some(path) => Ok((find(path)?, path.clone())),
        None => Ok((named.with_suffix(SUFFIX), with_suffix(&args.file, SUFFIX))),
    }
}
