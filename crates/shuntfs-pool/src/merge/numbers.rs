//! Inode numbers, by the names and with the meanings that mergerfs gave to the ways to make them. The numbers are others than mergerfs's.
//!
//! Numbers that go by what is below are made by the branch. Those that go by the path are made here, of the names on the way. A folder
//! knows its way; of files it is noted by which name they were looked up last, where numbers go by that.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs::NodeId;
use shuntfs::takeover::{KeptNodes, LeftNode, LeftNodes, StoreError};

use super::choose::DEPTH_MAX;
use super::file_names::FileNames;
use crate::keeping_names::KeptNames;
use crate::node::{Node, Way, mix};
use crate::shared::Shared;

/// What the path of the root comes down to. It must stay: numbers are the same from one mount to the next.
const ROOT: u64 = 1;

/// What inode numbers go by.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum InodeCalc {
    /// They are those below, and so may be the same on two branches.
    Passthrough,
    /// The path in the mount.
    PathHash,
    /// The same, in 32 bits.
    PathHash32,
    /// The number below, and the branch: its identity, or its path where it has none. Names of one file have one number.
    #[default]
    DevinoHash,
    /// The same, in 32 bits.
    DevinoHash32,
    /// Of folders the path, of all else the number below and the branch.
    HybridHash,
    /// The same, in 32 bits.
    HybridHash32,
}

impl InodeCalc {
    /// All of them, and mergerfs's names for them.
    pub const ALL: [(&str, Self); 7] = [
        ("passthrough", Self::Passthrough),
        ("path-hash", Self::PathHash),
        ("path-hash32", Self::PathHash32),
        ("devino-hash", Self::DevinoHash),
        ("devino-hash32", Self::DevinoHash32),
        ("hybrid-hash", Self::HybridHash),
        ("hybrid-hash32", Self::HybridHash32),
    ];

    /// The one with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, calc)| calc)
    }

    /// Its name.
    ///
    /// # Panics
    /// Never: each has one.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, calc)| *calc == self).expect("each has a name").0
    }

    fn goes_by_path(self, is_folder: bool) -> bool {
        match self {
            Self::PathHash | Self::PathHash32 => true,
            Self::HybridHash | Self::HybridHash32 => is_folder,
            Self::Passthrough | Self::DevinoHash | Self::DevinoHash32 => false,
        }
    }

    fn is_short(self) -> bool {
        matches!(self, Self::PathHash32 | Self::DevinoHash32 | Self::HybridHash32)
    }

    /// A number as it is shown. It is not zero, because some take that in a listing for a name that is gone.
    pub(crate) fn shown(self, number: u64) -> u64 {
        let number = if self.is_short() { mix(number) >> 32 } else { number };
        number.max(1)
    }
}

/// What a path comes down to that has one more name.
fn below(path: u64, name: &CStr) -> u64 {
    let bytes = std::iter::once(&b'/').chain(name.to_bytes());
    bytes.fold(path, |hash, byte| mix(hash ^ u64::from(*byte)))
}

/// The numbers of a merge.
#[derive(Debug)]
pub(crate) struct Numbers {
    calc: InodeCalc,
    /// Kept where numbers of files go by their paths.
    files: Mutex<FileNames>,
}

impl Numbers {
    pub(super) fn new(calc: InodeCalc) -> Self {
        Self { calc, files: Mutex::default() }
    }

    /// Whether some of them change with names.
    pub(crate) fn go_by_path(&self) -> bool {
        self.calc.goes_by_path(true)
    }

    /// Notes by which name a file was found.
    pub(super) fn note(&self, node: NodeId, way: impl FnOnce() -> Way) {
        if self.calc.goes_by_path(false) {
            self.files.lock().note(node, way());
        }
    }

    /// What had the first name has the second one now, and `back` says whether the other way round, too.
    pub(super) fn moved(&self, from: &Way, to: &Way, back: bool) {
        if self.calc.goes_by_path(false) {
            self.files.lock().moved(from, to, back);
        }
    }

    /// The same of what a server that is dead had moved or exchanged, and may have noted: which nodes have the names now.
    pub(super) fn was_moved(&self, from: (&Way, &[Arc<Node>]), to: (&Way, &[Arc<Node>])) {
        if self.calc.goes_by_path(false) {
            let ids = |nodes: &[Arc<Node>]| nodes.iter().map(|node| node.id).collect::<Vec<_>>();
            self.files.lock().was_moved((from.0, &ids(from.1)), (to.0, &ids(to.1)));
        }
    }

    /// Names are written down for the next server from now on, and these were by predecessors, of files of which `is_known` tells whether the kernel
    /// knows them. Takes what belongs to them out of `further`.
    ///
    /// # Errors
    /// One is damaged.
    pub(crate) fn survive(
        &self,
        nodes: KeptNodes,
        mut left: LeftNodes,
        further: &mut HashMap<u64, LeftNode>,
        is_known: impl Fn(NodeId) -> bool,
    ) -> Result<(), StoreError> {
        let kept = KeptNames::new(nodes);
        if self.calc.goes_by_path(false) {
            self.files.lock().survive(kept, left, further, is_known)
        } else {
            left.try_for_each(|left| left.map(|left| kept.drop_left(left.place, Vec::new())))
        }
    }

    /// The kernel has forgotten a file.
    pub(crate) fn forget(&self, node: NodeId) {
        if self.calc.goes_by_path(false) {
            self.files.lock().forget(node);
        }
    }

    /// The number of a node by its path; `None` where it goes by something else, and where the path is not known: it has lost its
    /// name, or never had one.
    pub(crate) fn of_node(&self, shared: &Shared, node: &Node) -> Option<u64> {
        let parts = node.parts();
        if !self.calc.goes_by_path(parts.is_some()) {
            return None;
        }
        if node.id == NodeId::ROOT {
            return Some(self.calc.shown(ROOT));
        }
        let way = match parts {
            Some(parts) => parts.way()?,
            None => self.files.lock().of(node.id)?,
        };
        path_of(shared, way).map(|path| self.calc.shown(path))
    }

    /// The numbers of names in a folder, where any go by the path.
    pub(crate) fn in_folder(&self, shared: &Shared, folder: &Node) -> Option<InFolder> {
        let parts = folder.parts().filter(|_| self.go_by_path())?;
        let path = if folder.id == NodeId::ROOT { ROOT } else { path_of(shared, parts.way()?)? };
        Some(InFolder { calc: self.calc, path })
    }
}

/// What a path comes down to, of the way to its end; `None` where a folder on the way is not known any more, or has lost its name. What is known
/// of them says that: they need not be looked for.
fn path_of(shared: &Shared, way: Way) -> Option<u64> {
    let (mut names, mut next) = (Vec::new(), way);
    loop {
        let (folder, name) = next;
        names.push(name);
        if folder == NodeId::ROOT {
            return Some(names.iter().rev().fold(ROOT, |path, name| below(path, name)));
        }
        if names.len() > DEPTH_MAX {
            return None;
        }
        next = shared.table.find(folder)?.parts()?.way()?;
    }
}

/// The numbers of names in one folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFolder {
    calc: InodeCalc,
    path: u64,
}

impl InFolder {
    /// The number of what has this name; `None` where it does not go by the path.
    pub(crate) fn number(self, name: &CStr, is_folder: bool) -> Option<u64> {
        self.calc.goes_by_path(is_folder).then(|| self.calc.shown(below(self.path, name)))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn ways_to_make_numbers_have_mergerfss_names() {
        for (name, calc) in InodeCalc::ALL {
            assert_eq!((InodeCalc::of(name), calc.name()), (Some(calc), name));
            assert_eq!(calc.is_short(), name.ends_with("32"));
        }
        assert_eq!(InodeCalc::of("path_hash"), None);
        assert_eq!(InodeCalc::default().name(), "devino-hash");
    }

    /// A backup that goes by numbers reads everything again where they change, so they do not from one release to the next.
    #[test]
    fn numbers_of_paths_stay_for_ever() {
        let path = below(below(ROOT, c"films"), c"a.mkv");
        assert_eq!(path, 0x01df_1002_bc1c_c11f);
        assert_eq!((InodeCalc::PathHash.shown(path), InodeCalc::PathHash.shown(0)), (path, 1));
        assert_eq!(InodeCalc::PathHash32.shown(path), 0xfd88_7246);
        assert_ne!(below(ROOT, c"ab"), below(below(ROOT, c"a"), c"b"));
    }
}
