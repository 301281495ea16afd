//! What the paths on a command line stand for: sealed folders and what is in them, files with something beside them.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use shuntfs_seal::{Side, Store, shown};

use super::args::VerifyArgs;
use super::files::{cannot, with_suffix};
use crate::failure::Failure;

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
    let whole = |path: &Path| absolute(path).map_err(|error| cannot("find", path, error));
    let root = whole(path)?;
    let inside = |path: &PathBuf| {
        let path = whole(path)?;
        let below = path.strip_prefix(&root).map(|below| below.as_os_str().as_bytes().to_vec());
        below.map_err(|_| Failure::usage(format!("{} is not in {}", shown(&path), shown(&root))))
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
    let whole = absolute(path).map_err(why)?;
    let is_there = is_there(&whole).map_err(why)?;
    let is_there_at = |path: &Path| self::is_there(path).map_err(|error| format!("{}: {error}", shown(path)));
    if !whole.is_dir() && is_there && is_there_at(&Side::path_of(&whole))? {
        return Ok(What::Side);
    }
    for root in whole.ancestors() {
        if is_there_at(&Store::beside(root).join("seal"))? {
            let below = whole.strip_prefix(root).map(|below| below.as_os_str().as_bytes().to_vec());
            let only = below.ok().filter(|below| !below.is_empty()).into_iter().collect();
            return Ok(What::Tree { root: root.to_owned(), only });
        }
    }
    if !is_there {
        return Err(format!("cannot verify {}: No such file or directory", shown(path)));
    }
    if is_there_at(&with_suffix(&whole, ".sig"))? {
        return Ok(What::Signature);
    }
    let hint = "shunt seal does that; --store DIR says where its store is";
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

/// A path without `..` and links in its folders; what it names itself may be a link, or gone.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    if whole.is_dir() && !whole.is_symlink() {
        return whole.canonicalize();
    }
    let parent = whole.parent().and_then(|parent| parent.canonicalize().ok());
    Ok(match (parent, whole.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => whole,
    })
}
