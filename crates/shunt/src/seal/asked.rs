//! What the paths on a command line stand for: sealed folders and what is in them, files with something beside them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use shuntfs_seal::{Side, Store, shown};
use shuntfs_sys::OsError;

use super::args::VerifyArgs;
use super::files::{cannot, with_suffix};
use crate::failure::Failure;

/// Links that are followed in a path, as by the kernel.
const LINKS_MAX: usize = 40;

/// What is asked for, and the path that stands for it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) path: PathBuf,
    pub(super) what: What,
}

/// What a path on the command line stands for.
#[derive(Debug)]
pub(super) enum What {
    /// A sealed folder, and what is asked for in it; nothing for all.
    Tree { root: PathBuf, only: Vec<Vec<u8>> },
    /// A file with a side file.
    Side,
    /// A file with a signature.
    Signature,
    /// Nothing that can be verified, and why.
    Nothing(String),
}

/// Sorts what was asked for. Paths in one sealed folder go together, but in JSON, where each has a document.
pub(super) fn asked(args: &VerifyArgs) -> Result<Vec<Asked>, Failure> {
    if args.store.is_some() {
        return of_store(args);
    }
    let mut all: Vec<Asked> = Vec::new();
    for path in &args.paths {
        let what = find(path).unwrap_or_else(What::Nothing);
        match what {
            What::Tree { root, only } if !args.json => add(&mut all, path, root, only),
            what => all.push(Asked { path: path.clone(), what }),
        }
    }
    Ok(all)
}

/// The first path is the folder, the others are in it.
fn of_store(args: &VerifyArgs) -> Result<Vec<Asked>, Failure> {
    let (path, rest) = args.paths.split_first().ok_or_else(|| Failure::usage("no folder"))?;
    let root = path.canonicalize().or_else(|_| std::path::absolute(path));
    let root = root.map_err(|error| cannot("find", path, error))?;
    let inside = |path: &PathBuf| {
        let found = walk(path, |at| (at == root).then_some(Ok(())));
        let found = found.map_err(|error| cannot("find", path, error))?;
        found
            .map(|found| found.below)
            .ok_or_else(|| Failure::usage(format!("{} is not in {}", shown(path), shown(&root))))
    };
    let only = rest.iter().map(inside).collect::<Result<Vec<_>, _>>()?;
    let tree =
        |path: &PathBuf, only| Asked { path: path.clone(), what: What::Tree { root: root.clone(), only } };
    if args.json && !rest.is_empty() {
        return Ok(rest.iter().zip(only).map(|(path, below)| tree(path, vec![below])).collect());
    }
    Ok(vec![tree(path, only)])
}

/// What a path stands for, or why it can be nothing.
fn find(path: &Path) -> Result<What, String> {
    let why = |error: io::Error| format!("cannot verify {}: {error}", shown(path));
    // Without a slash at the end, which would follow a link.
    let whole: PathBuf = std::path::absolute(path).map_err(why)?.components().collect();
    let is_there = is_there(&whole).map_err(why)?;
    let is_there_at = |path: &Path| self::is_there(path).map_err(|error| format!("{}: {error}", shown(path)));
    // The folder's seal first: what lies beside a file in it anybody may have put there who could change the file.
    let sealed = |at: &Path| match is_there_at(&Store::beside(at).join("seal")) {
        Ok(is_sealed) => is_sealed.then_some(Ok(())),
        Err(why) => Some(Err(why)),
    };
    if let Some(Found { root, below, said }) = walk(path, sealed).map_err(why)? {
        said?;
        let only = Some(below).filter(|below| !below.is_empty()).into_iter().collect();
        return Ok(What::Tree { root, only });
    }
    if !whole.is_dir() && is_there && is_there_at(&Side::path_of(&whole))? {
        return Ok(What::Side);
    }
    if !is_there {
        return Err(format!("cannot verify {}: No such file or directory", shown(path)));
    }
    if is_there_at(&with_suffix(&whole, ".sig"))? {
        return Ok(What::Signature);
    }
    let hint = "shunt seal does that; --seal-store DIR says where its store is";
    Err(format!("{} is not sealed ({hint})", shown(path)))
}

/// Whether a path leads to anything; that nobody may say is an error.
fn is_there(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Adds something of a sealed folder to what is asked of it already.
fn add(all: &mut Vec<Asked>, path: &Path, folder: PathBuf, below: Vec<Vec<u8>>) {
    let known = all.iter_mut().find_map(|asked| match &mut asked.what {
        What::Tree { root, only } if *root == folder => Some(only),
        _ => None,
    });
    match known {
        // All of it was asked for before.
        Some(only) if only.is_empty() => {}
        Some(only) if below.is_empty() => only.clear(),
        Some(only) => only.extend(below),
        None => all.push(Asked { path: path.to_owned(), what: What::Tree { root: folder, only: below } }),
    }
}

/// A sealed folder on the way to something.
struct Found {
    root: PathBuf,
    /// What is asked for, below it; empty for all.
    below: Vec<u8>,
    /// Whether it can be told that the folder is sealed, or why not.
    said: Result<(), String>,
}

/// Looks from the top for the sealed folder that a path is in: the nearest one. Links are followed down to the first one, and
/// none behind it: who can write a sealed folder must not decide which part of it is examined.
fn walk(path: &Path, is_sealed: impl Fn(&Path) -> Option<Result<(), String>>) -> io::Result<Option<Found>> {
    let mut rest = names(&std::path::absolute(path)?);
    let (mut at, mut roots) = (PathBuf::from("/"), Vec::new());
    let (mut links, mut is_behind_link) = (0, false);
    roots.extend(is_sealed(&at).map(|said| (at.clone(), said)));
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            if is_behind_link || !at.symlink_metadata()?.is_dir() {
                return Err(io::Error::other("its `..` is behind what is no folder"));
            }
            roots.pop_if(|(root, _)| *root == at && at.parent().is_some());
            at.pop();
            continue;
        }
        at.push(&name);
        if is_behind_link {
            continue;
        }
        if !at.is_symlink() {
            roots.extend(is_sealed(&at).map(|said| (at.clone(), said)));
        } else if roots.is_empty() {
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::from_raw_os_error(OsError::LOOP.raw_os_error()));
            }
            let target = at.read_link()?;
            at.pop();
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            let mut target = names(&target);
            target.append(&mut rest);
            rest = target;
        } else {
            is_behind_link = true;
        }
    }
    Ok(roots.pop().map(|(root, said)| {
        let below = at.strip_prefix(&root).unwrap_or(Path::new("")).as_os_str().as_bytes().to_vec();
        Found { root, below, said }
    }))
}

/// The names in a path, `..` among them.
fn names(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    });
    named.collect()
}
