//! Whether two branches show the same files.
//!
//! Branches are not inside each other by their paths, but bind mounts can have one file below two of them. Such a file has a path through
//! each in the pool, and rules judge it by both. Mounts below branches are noticed when a name leads into them, so it is looked again
//! whenever there is another one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::all::Branches;

/// What is shown of a file system: its device, and the folder inside of it; `None` where that is not known.
pub(super) type Tree = ((u32, u32), Option<PathBuf>);

/// Whether it was seen that two branches show the same.
#[derive(Debug, Default)]
pub(crate) struct Twins {
    /// How many mounts there were when it was looked last.
    looked_at: AtomicUsize,
    /// It stays so, whichever branches go.
    are_there: AtomicBool,
}

impl Twins {
    /// Whether a file may have paths on two branches, with one name only.
    pub(crate) fn are_in(&self, branches: &Branches) -> bool {
        let mounts: usize = branches.known().map(|branch| branch.mounts.noted()).sum();
        if self.looked_at.load(Ordering::SeqCst) != mounts {
            let trees: Vec<Vec<Tree>> = branches.known().map(|branch| branch.trees()).collect();
            if overlap(&trees) {
                self.are_there.store(true, Ordering::SeqCst);
            }
            self.looked_at.store(mounts, Ordering::SeqCst);
        }
        self.are_there.load(Ordering::SeqCst)
    }
}

/// Whether two of these branches show the same of one file system.
fn overlap(branches: &[Vec<Tree>]) -> bool {
    let meets =
        |one: &[Tree], other: &[Tree]| one.iter().any(|tree| other.iter().any(|there| meet(tree, there)));
    let mut numbered = branches.iter().enumerate();
    numbered.any(|(index, one)| branches[..index].iter().any(|other| meets(one, other)))
}

fn meet((device, folder): &Tree, (other_device, other): &Tree) -> bool {
    let is_around = match (folder, other) {
        (Some(folder), Some(other)) => folder.starts_with(other) || other.starts_with(folder),
        _ => true,
    };
    device == other_device && is_around
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn branches_of_one_file_system_overlap_where_one_is_inside_the_other() {
        let tree = |minor: u32, folder: &str| vec![((8, minor), Some(PathBuf::from(folder)))];
        for (one, other, overlaps) in [
            (tree(1, "/a"), tree(1, "/b"), false),
            (tree(1, "/a"), tree(1, "/ab"), false),
            (tree(1, "/a"), tree(2, "/a"), false),
            (tree(1, "/a/b"), tree(1, "/a"), true),
            (tree(1, "/"), tree(1, "/x"), true),
            (vec![((8, 1), None)], tree(1, "/x"), true),
            ([tree(2, "/x"), tree(1, "/y")].concat(), tree(1, "/y/z"), true),
        ] {
            assert_eq!(overlap(&[one.clone(), other.clone()]), overlaps, "{one:?} {other:?}");
            assert_eq!(overlap(&[other, Vec::new(), one]), overlaps);
        }
    }
}
