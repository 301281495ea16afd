//! `shunt digest`: what `fsverity digest` prints.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use shuntfs_verity::{Descriptor, Discard, Params, TreeSink, build_at};

use super::args::DigestArgs;
use super::files::{cannot, jobs};
use crate::failure::Failure;
use crate::run::output_failure;

/// Prints the digests of files.
///
/// # Errors
/// A file that cannot be read, or whose output cannot be written.
pub(crate) fn run(args: &DigestArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let params = args.hash.for_digest()?;
    if args.files.len() > 1 && (args.out_merkle_tree.is_some() || args.out_descriptor.is_some()) {
        return Err(Failure::usage("only of one file can the tree and the descriptor be written"));
    }
    for path in &args.files {
        let descriptor = match &args.out_merkle_tree {
            None => describe(path, &params, Discard)?,
            Some(tree) => {
                let file = File::create(tree).map_err(|error| cannot("write", tree, error))?;
                describe(path, &params, TreeTo(file))?
            }
        };
        if let Some(path) = &args.out_descriptor {
            fs::write(path, descriptor.to_bytes()).map_err(|error| cannot("write", path, error))?;
        }
        print(out, args, path, &descriptor).map_err(|error| output_failure(&error))?;
    }
    Ok(())
}

/// Hashes a whole file.
pub(super) fn describe(
    path: &Path,
    params: &Params,
    sink: impl TreeSink + Send,
) -> Result<Descriptor, Failure> {
    let failed = |error: io::Error| cannot("read", path, error);
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(failed(io::Error::other("it is no regular file")));
    }
    build_at(params, found.len(), &file, sink, jobs(None)).map_err(|error| cannot("hash", path, error))
}

fn print(out: &mut dyn Write, args: &DigestArgs, path: &Path, descriptor: &Descriptor) -> io::Result<()> {
    let digest = descriptor.digest();
    match (args.for_builtin_sig, args.compact) {
        (true, _) => digest.formatted().iter().try_for_each(|byte| write!(out, "{byte:02x}"))?,
        (false, true) => write!(out, "{}", digest.to_hex())?,
        (false, false) => write!(out, "{digest}")?,
    }
    if !args.compact {
        out.write_all(b" ")?;
        out.write_all(path.as_os_str().as_bytes())?;
    }
    out.write_all(b"\n")
}

/// A file that a tree goes to.
struct TreeTo(File);

impl TreeSink for TreeTo {
    fn put(&mut self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        self.0.write_all_at(blocks, offset)
    }
}
