//! What a name must lead to, where the manifest has it, for whoever shows the folder below and not the manifest.
//!
//! The bytes of a file are checked when they are read. What cannot be checked then is checked when its name is met: that it is of
//! the sealed kind, and the file that was sealed by this name rather than another one. A symlink's target is checked when it
//! is read. What differs is an error of input, said in the log once.

use shuntfs::{Errno, Result};
use shuntfs_seal::{ManifestError, Node, NodeIndex, NodeKind};
use shuntfs_sys::Stat;

use crate::error::errno;
use crate::seals::Seals;

impl Seals {
    /// What the manifest has at a name in a folder.
    ///
    /// # Errors
    /// The manifest does not tell: nobody knows then what is sealed. EIO where what was sealed is no folder.
    pub fn look(&self, folder: NodeIndex, name: &[u8]) -> Result<Option<NodeIndex>> {
        self.manifest().lookup(folder, name).map_err(|error| match error {
            ManifestError::NotAFolder => Errno::IO,
            error => told(&error),
        })
    }

    /// Whether what was found by a name can be what was sealed there.
    ///
    /// # Errors
    /// EIO where it is of another kind, or another device.
    pub fn check_kind(&self, index: NodeIndex, found: &Stat) -> Result<Node> {
        let node = self.node(index)?;
        let kind = NodeKind::of_mode(found.mode);
        if kind != Some(node.kind) {
            let found = kind.map_or("something unknown", NodeKind::name);
            return Err(
                self.wrong(index, &format!("a {} was sealed, and there is a {found}", node.kind.name()))
            );
        }
        let is_device = matches!(node.kind, NodeKind::CharDevice | NodeKind::BlockDevice);
        if is_device && node.rdev != found.rdev {
            return Err(self.wrong(index, "it is another device than was sealed"));
        }
        Ok(node)
    }

    /// Whether what is known to have been sealed as one node will do where another one was.
    ///
    /// # Errors
    /// EIO where the two do not hold the same.
    pub fn check_same(&self, index: NodeIndex, known: NodeIndex) -> Result<()> {
        if index == known || self.holds_same(index, self, known)? {
            return Ok(());
        }
        let other = self.shown_path(known).unwrap_or_default();
        Err(self.wrong(index, &format!("it is what was sealed as {other:?}")))
    }

    /// Whether a node of this seal holds what a node of another one, or of the same, held.
    ///
    /// # Errors
    /// One of the manifests does not tell.
    pub fn holds_same(&self, index: NodeIndex, earlier: &Self, was: NodeIndex) -> Result<bool> {
        let (now, before) = (self.node(index)?, earlier.node(was)?);
        Ok(now.kind == before.kind
            && match now.kind {
                NodeKind::File => now.digest() == before.digest(),
                NodeKind::Symlink => self.target(index)? == earlier.target(was)?,
                NodeKind::CharDevice | NodeKind::BlockDevice => now.rdev == before.rdev,
                NodeKind::Pipe | NodeKind::Socket => true,
                // What was sealed below the one was not sealed below the other.
                NodeKind::Folder => self.path(index)? == earlier.path(was)?,
            })
    }

    /// Whether a symlink leads where it was sealed to lead.
    ///
    /// # Errors
    /// EIO where it leads elsewhere.
    pub fn check_target(&self, index: NodeIndex, found: &[u8]) -> Result<()> {
        if self.target(index)? == found {
            return Ok(());
        }
        Err(self.wrong(index, "the symlink leads elsewhere"))
    }

    /// What whoever looks for a sealed name is told where there is nothing.
    #[must_use]
    pub fn missing(&self, index: NodeIndex) -> Errno {
        self.wrong(index, "it is missing")
    }

    fn node(&self, index: NodeIndex) -> Result<Node> {
        self.manifest().node(index).map_err(|error| told(&error))
    }

    fn target(&self, index: NodeIndex) -> Result<Vec<u8>> {
        self.manifest().link_target(index).map_err(|error| told(&error))
    }

    fn path(&self, index: NodeIndex) -> Result<Vec<u8>> {
        let names = self.manifest().path_of(index).map_err(|error| told(&error))?;
        Ok(names.join(&b'/'))
    }

    /// Says what is wrong with a name, once, and counts it.
    fn wrong(&self, index: NodeIndex, why: &str) -> Errno {
        if self.checks().verdicts.note_name(index.get(), why) {
            self.checks().counters.wrong_names.bump();
            let file = self.shown_path(index).unwrap_or_default();
            tracing::error!(file, why, "NAME REPLACED: it does not lead to what was sealed");
        }
        Errno::IO
    }
}

fn told(error: &ManifestError) -> Errno {
    tracing::error!(%error, "the manifest does not tell");
    errno(error.errno())
}
