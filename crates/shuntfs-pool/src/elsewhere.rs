//! One lower file through several mounts of its file system, in one branch or in several: its names are the same through all.

use crate::node::Identity;
use crate::shared::Shared;

impl Shared {
    /// An inode as it is wherever its file system is mounted.
    pub(crate) fn home(&self, identity: &Identity) -> Identity {
        self.branch(identity.mount).mounts.home(identity)
    }

    /// What an inode is through each mount of its file system.
    pub(crate) fn everywhere(&self, identity: &Identity) -> impl Iterator<Item = Identity> {
        let device = self.mount(identity.mount).device();
        let mounts = self.branches.known().flat_map(move |branch| branch.of_device(device));
        mounts.map(move |mount| Identity { mount, ..identity.clone() })
    }

    /// Whether a file may have paths through several mounts, with one name only.
    pub(crate) fn has_twins(&self) -> bool {
        self.branches.known().any(|branch| branch.mounts.has_twins())
            || self.merge.as_ref().is_some_and(|merge| merge.twins.are_in(&self.branches))
    }

    /// Adds to the paths of a file those by which other mounts of its file system show it.
    pub(crate) fn add_aliases(&self, paths: &mut Vec<Vec<u8>>) {
        if self.has_twins() {
            let more: Vec<_> = paths.iter().flat_map(|path| self.aliases(path)).collect();
            paths.extend(more);
        }
    }

    /// The other paths of what has this one on some branch.
    fn aliases(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let branches = self.branches.in_use();
        let mut all: Vec<_> = branches.iter().flat_map(|branch| branch.aliases(path)).collect();
        for (index, branch) in branches.iter().enumerate() {
            let others = branches[..index].iter().chain(&branches[index + 1..]);
            all.extend(others.flat_map(|other| other.aliases_from(branch, path)));
        }
        all.retain(|alias| alias != path);
        all
    }
}
