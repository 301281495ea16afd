//! Why callers got ENOSPC, EROFS and EXDEV, in the log: what was asked for, on which branch, and what decided. A program that tries again and again
//! would fill the log, so of each error and branch one is told a minute, and how many were not.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shuntfs::Errno;

use super::queries::{relative, way_of};
use super::relocate::Unmoved;
use crate::branch::Branch;
use crate::guard::Spot;
use crate::node::{Node, Way};
use crate::policy::BranchMode;
use crate::shared::Shared;

/// How long nothing more is told of an error on a branch.
const QUIET: Duration = Duration::from_secs(60);

/// Where nothing but the branch decided.
const BELOW: &str = "the file system of its branch says so";

/// What was told, by error and branch; `None` stands for all branches together.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<(Errno, Option<u16>), Told>>);

#[derive(Debug)]
struct Told {
    last: Instant,
    untold: u64,
}

impl Refusals {
    /// Whether one more must be told; how many were not since the last one.
    fn may_tell(&self, error: Errno, branch: Option<u16>, now: Instant) -> Option<u64> {
        let mut all = self.0.lock();
        match all.get_mut(&(error, branch)) {
            Some(told) if now.duration_since(told.last) < QUIET => {
                told.untold += 1;
                None
            }
            Some(told) => {
                told.last = now;
                Some(std::mem::take(&mut told.untold))
            }
            None => {
                all.insert((error, branch), Told { last: now, untold: 0 });
                Some(0)
            }
        }
    }
}

/// Tells why a caller gets an error, unless that was told not long ago. The path and the reason are only made if it is told.
pub(super) fn tell<W: fmt::Display>(
    shared: &Shared,
    error: Errno,
    branch: Option<u16>,
    what: impl FnOnce() -> (Option<Vec<u8>>, W),
) {
    let is_meant = matches!(error, Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::XDEV);
    let Some(merge) = shared.merge.as_ref().filter(|_| is_meant) else { return };
    let Some(untold) = merge.refusals.may_tell(error, branch, Instant::now()) else { return };
    let (path, why) = what();
    let path = path
        .map_or("a file whose path is not known".into(), |path| String::from_utf8_lossy(&path).into_owned());
    let source = branch.map(|number| shared.branches.at(number).source());
    let branch = source.map_or("all branches".to_owned(), |source| source.display().to_string());
    tracing::warn!(%path, %branch, %error, untold, "refused: {why}");
}

/// The same of a file that found no room on its branch, and was not moved to another.
pub(crate) fn tell_full(shared: &Shared, node: &Arc<Node>, error: Errno, why: &Unmoved) {
    tell(shared, error, Some(node.mount().branch), || {
        (path_of(shared, node), format!("its branch is full, and it is not moved to another: {why}"))
    });
}

/// Nothing may be changed at all.
pub(crate) fn refuse_all(shared: &Shared) -> Errno {
    let why =
        if shared.options.read_only { "the pool is mounted read-only" } else { "every branch is read-only" };
    tell(shared, Errno::ROFS, None, || (None, why));
    Errno::ROFS
}

/// What the pool decided itself of a name: why, and the error to answer with.
pub(crate) fn refuse_at(
    shared: &Shared,
    spot: Spot<'_>,
    (error, branch): (Errno, Option<u16>),
    why: impl fmt::Display,
) -> Errno {
    tell(shared, error, branch, || (path_at(shared, spot.folder, spot.bytes()), why));
    error
}

/// The same of a file.
pub(crate) fn refuse_of(shared: &Shared, node: &Arc<Node>, error: Errno, why: impl fmt::Display) -> Errno {
    tell(shared, error, Some(node.mount().branch), || (path_of(shared, node), why));
    error
}

/// The same of a folder, on one of the branches.
pub(super) fn refuse_folder(
    shared: &Shared,
    folder: &Arc<Node>,
    (error, branch): (Errno, u16),
    why: impl fmt::Display,
) -> Errno {
    tell(shared, error, Some(branch), || (path_of(shared, folder), why));
    error
}

/// An error that a branch gave for a name, passed on to the caller.
pub(crate) fn pass_on_at(shared: &Shared, spot: Spot<'_>, error: Errno) {
    tell(shared, error, Some(spot.mount.branch), || (path_at(shared, spot.folder, spot.bytes()), BELOW));
}

/// The same for a file or a folder.
pub(crate) fn pass_on_of(shared: &Shared, node: &Arc<Node>, error: Errno) {
    tell(shared, error, Some(node.mount().branch), || (path_of(shared, node), BELOW));
}

/// Why a branch takes no changes.
pub(crate) fn why_read_only(branch: &Branch) -> &'static str {
    match branch.terms().mode {
        BranchMode::ReadOnly => "the mode of its branch is RO",
        _ => "its branch is mounted read-only",
    }
}

/// The path of a node in the pool, as far as it is known.
fn path_of(shared: &Shared, node: &Arc<Node>) -> Option<Vec<u8>> {
    let merge = shared.merge.as_ref()?;
    relative(shared, merge, way_of(shared, merge, node).ok()?.as_ref()).ok()
}

/// The path of a name in a folder.
pub(super) fn path_at(shared: &Shared, folder: &Node, name: &[u8]) -> Option<Vec<u8>> {
    let way: Way = (folder.id, CString::new(name).ok()?.into());
    relative(shared, shared.merge.as_ref()?, Some(&way)).ok()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn one_is_told_a_minute_and_how_many_were_not() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let tell = |error, branch, secs| refusals.may_tell(error, branch, start + Duration::from_secs(secs));
        assert_eq!(tell(Errno::NOSPC, Some(0), 0), Some(0));
        assert_eq!(tell(Errno::NOSPC, Some(0), 1), None);
        assert_eq!(tell(Errno::NOSPC, Some(0), 59), None);
        for (error, branch) in [(Errno::NOSPC, Some(1)), (Errno::NOSPC, None), (Errno::ROFS, Some(0))] {
            assert_eq!(tell(error, branch, 1), Some(0), "{error} {branch:?}");
        }
        assert_eq!(tell(Errno::NOSPC, Some(0), 60), Some(2));
        assert_eq!(tell(Errno::NOSPC, Some(0), 61), None);
        assert_eq!(tell(Errno::NOSPC, Some(0), 200), Some(1));
    }
}
