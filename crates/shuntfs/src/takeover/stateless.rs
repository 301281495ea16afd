//! Which file systems can be taken over.

use crate::args::OpSet;
use crate::filesystem::Filesystem;

/// A file system of which nothing must survive its server; [`Surviving`](super::Surviving) is for the others. To implement it is a promise: a new value of the type, made in another
/// process as the first one was made, answers as that one would have.
///
/// - A node's number and what it stands for follow from its name and place alone, or from what is kept elsewhere. Nodes are asked
///   for that this value never met.
/// - No operation needs what an earlier one left in memory. FORGETs may be missing.
/// - An operation may be carried out twice: the server died after it had done it and before it answered. Reading does not mind.
///   Where a name is made, removed or moved, [`Cx::is_resent`](crate::Cx::is_resent) tells that it may be done.
///
/// Operations whose answers are numbers that the kernel comes back with (OPEN, OPENDIR, TMPFILE, locks, POLL) are refused
/// ([`TakeoverError::Keeps`](super::TakeoverError::Keeps)): without OPEN and OPENDIR among its operations
/// ([`Filesystem::OPS`], [`Wanted::ops`](crate::Wanted::ops)) a file is opened for each request.
pub trait Stateless: Filesystem {}

/// What the library keeps for a mount, which a successor does not have.
pub(super) const KEPT: [(OpSet, &str); 6] = [
    (OpSet::OPEN, "OPEN"),
    (OpSet::OPENDIR, "OPENDIR"),
    (OpSet::TMPFILE, "TMPFILE"),
    (OpSet::POSIX_LOCKS, "POSIX_LOCKS"),
    (OpSet::FLOCK_LOCKS, "FLOCK_LOCKS"),
    (OpSet::POLL, "POLL"),
];

/// The first operation by which something of these would have to be kept.
pub(super) fn kept_by(kept: &[(OpSet, &'static str)], ops: OpSet) -> Option<&'static str> {
    kept.iter().find(|(op, _)| ops.contains(*op)).map(|(_, name)| *name)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_leaves_numbers_with_the_kernel_is_named() {
        assert_eq!(kept_by(&KEPT, OpSet::all()), Some("OPEN"));
        assert_eq!(kept_by(&KEPT, OpSet::FSYNC | OpSet::OPENDIR), Some("OPENDIR"));
        let harmless = OpSet::all() - KEPT.into_iter().map(|(op, _)| op).collect::<OpSet>();
        assert_eq!(kept_by(&KEPT, harmless), None);
        assert!(harmless.contains(OpSet::XATTR | OpSet::FLUSH | OpSet::CREATE));
    }
}
