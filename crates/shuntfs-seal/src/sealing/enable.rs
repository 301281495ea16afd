//! Turns the kernel's own fs-verity on for the files of a tree that was just sealed.

use std::path::PathBuf;

use shuntfs_sys::attrs::{TimeSet, set_times};
use shuntfs_sys::verity::{self, DIGEST_LEN_MAX};
use shuntfs_sys::{OsError, stat_of};
use shuntfs_verity::{Algorithm, Digest, Params};

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Enabled {
    /// Files that have it now, and had it not.
    pub now: u64,
    /// Files that had it already, with the digest that was sealed.
    pub before: u64,
    /// Files that have it with another digest: with other parameters.
    pub other: Vec<PathBuf>,
    /// Why others have none: what the kernel said, of how many, the first of them.
    pub refused: Vec<(OsError, u64, PathBuf)>,
}

impl Enabled {
    /// Turns it on for one file, and compares what the kernel measures with what was sealed.
    pub(crate) fn file(
        &mut self,
        file: shuntfs_sys::Result<std::os::fd::OwnedFd>,
        path: PathBuf,
        sealed: (&Params, &Digest),
    ) {
        let (params, digest) = sealed;
        let salt = params.salt();
        let how = verity::Enable {
            algorithm: params.algorithm().number(),
            block_size: params.block_size().bytes(),
            salt: salt.as_bytes(),
        };
        let enabled = file.and_then(|file| {
            let mtime = stat_of(&file)?.mtime;
            match verity::enable(&file, &how) {
                Ok(()) => {
                    // ext4 takes it for a change of the file, and the file would no longer be as sealed.
                    set_times(&file, TimeSet::Omit, TimeSet::At(mtime))?;
                    Ok((measured(&file)?, true))
                }
                Err(OsError::EXIST) => Ok((measured(&file)?, false)),
                Err(error) => Err(error),
            }
        });
        match enabled {
            Ok((found, _)) if found.as_ref() != Some(digest) => self.other.push(path),
            Ok((_, true)) => self.now += 1,
            Ok((_, false)) => self.before += 1,
            Err(error) => match self.refused.iter_mut().find(|(known, ..)| *known == error) {
                Some((_, count, _)) => *count += 1,
                None => self.refused.push((error, 1, path)),
            },
        }
    }
}

/// The digest that the kernel has of a file; `None` where it is of no algorithm that is known.
fn measured(file: &std::os::fd::OwnedFd) -> shuntfs_sys::Result<Option<Digest>> {
    let mut bytes = [0; DIGEST_LEN_MAX];
    let (algorithm, len) = verity::measure(file, &mut bytes)?;
    let algorithm = u8::try_from(algorithm).ok().and_then(|number| Algorithm::from_number(number).ok());
    Ok(algorithm.and_then(|algorithm| Digest::new(algorithm, bytes.split_at(len).0).ok()))
}
