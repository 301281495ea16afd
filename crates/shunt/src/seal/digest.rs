//! `shunt seal digest`: what `fsverity digest` prints.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt;
use std::path::Path;

use shuntfs_seal::{Named, Progress as _};
use shuntfs_sys::regular;
use shuntfs_verity::{Descriptor, Discard, Params, ReadAt, TreeSink, build_at};

use super::args::DigestArgs;
use super::files::{cannot, jobs};
use crate::bar::Bar;
use crate::failure::Failure;
use crate::mounts::shown;
use crate::run::output_failure;

/// Prints the digests of files.
///
/// # Errors
/// A file that cannot be read, or whose output cannot be written.
pub(super) fn run(args: &DigestArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let params = args.hash.for_digest()?;
    if args.files.len() > 1 && (args.out_merkle_tree.is_some() || args.out_descriptor.is_some()) {
        return Err(Failure::usage("only of one file can the tree and the descriptor be written"));
    }
    for path in &args.files {
        let file = open(path)?;
        let descriptor = match &args.out_merkle_tree {
            None => describe(path, &file, &params, Discard)?,
            Some(tree) => {
                let failed = |error| cannot("write", tree, error);
                let mut beside = Named::find(tree).and_then(|tree| tree.start(&file)).map_err(failed)?;
                let descriptor = describe(path, &file, &params, &mut beside)?;
                beside.keep().map_err(failed)?;
                descriptor
            }
        };
        if let Some(path) = &args.out_descriptor {
            write(&find(path)?, path, &file, &descriptor.to_bytes())?;
        }
        print(out, args, path, &descriptor).map_err(|error| output_failure(&error))?;
    }
    Ok(())
}

/// Opens a file that must be hashed.
pub(super) fn open(path: &Path) -> Result<File, Failure> {
    regular::open(path).map_err(|error| cannot("read", path, error))
}

/// Takes hold of the folder of a file that must be written.
pub(super) fn find(path: &Path) -> Result<Named, Failure> {
    Named::find(path).map_err(|error| cannot("write", path, error))
}

/// Hashes a whole file.
pub(super) fn describe(
    path: &Path,
    file: &File,
    params: &Params,
    sink: impl TreeSink + Send,
) -> Result<Descriptor, Failure> {
    let found = file.metadata().map_err(|error| cannot("read", path, error))?;
    let bar = Bar::start("hashing");
    bar.to_hash(1, found.len());
    let counted = Counted { file, bar: &bar };
    build_at(params, found.len(), &counted, sink, jobs(None)).map_err(|error| cannot("hash", path, error))
}

/// A file whose reading is seen.
struct Counted<'a> {
    file: &'a File,
    bar: &'a Bar,
}

impl ReadAt for Counted<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = FileExt::read_at(self.file, buffer, offset)?;
        self.bar.hashed(len as u64);
        Ok(len)
    }
}

/// Writes a file that tells of some data, whole or not at all. `path` is for words only.
pub(super) fn write(place: &Named, path: &Path, data: &File, bytes: &[u8]) -> Result<(), Failure> {
    let written = place.start(data).and_then(|beside| {
        beside.file().write_all_at(bytes, 0)?;
        beside.keep()
    });
    written.map_err(|error| cannot("write", path, error))
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
        // Programs get the name as it is, as from fsverity; a terminal would obey it.
        match io::stdout().is_terminal() {
            true => out.write_all(shown(path).as_bytes())?,
            false => out.write_all(path.as_os_str().as_bytes())?,
        }
    }
    out.write_all(b"\n")
}
