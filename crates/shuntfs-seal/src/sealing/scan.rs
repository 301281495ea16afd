//! Walks a tree and drafts its manifest; what is left to do is the hashing.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use shuntfs_sys::{Device, Stat, stat_of};
use shuntfs_verity::Params;

use super::error::SealError;
use crate::walk::{self, State, Top, join};
use crate::{Child, Draft, DraftNode, NodeIndex};

/// Who is told how far it is.
pub trait Progress: Sync {
    /// So many names were found so far.
    fn found(&self, names: u64);
    /// The walk is over, and so much must be hashed.
    fn to_hash(&self, files: u64, bytes: u64);
    /// So many bytes were hashed.
    fn hashed(&self, bytes: u64);
    /// A file is done.
    fn file_done(&self);
    /// All is hashed, and what was made of it goes to the disk.
    fn storing(&self) {}
    /// The kernel's fs-verity is turned on, file by file.
    fn enabling(&self) {}
}

/// A regular file that must be hashed.
#[derive(Debug)]
pub(crate) struct FileJob {
    pub(crate) node: NodeIndex,
    /// Its folder's place in [`Scan::folders`].
    folder: usize,
    name: Box<[u8]>,
    pub(crate) state: State,
}

/// A folder as it was when it was listed.
#[derive(Debug)]
struct Folder {
    path: Vec<u8>,
    state: State,
}

/// What a walk found.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) draft: Draft,
    pub(crate) files: Vec<FileJob>,
    folders: Vec<Folder>,
    names: u64,
}

impl Scan {
    /// Walks the tree; the store, by device and inode, must not be in it but at its usual place.
    pub(crate) fn walk(
        top: &Top,
        store: (Device, u64),
        params: Params,
        progress: &dyn Progress,
    ) -> Result<Self, SealError> {
        let fd = top.folder(b"").map_err(|error| SealError::read(top.name(b""), error))?;
        let stat = stat_of(&fd).map_err(|error| SealError::read(top.name(b""), error))?;
        let root = drafted(&fd, &stat).map_err(|error| SealError::read(top.name(b""), error))?;
        let draft = Draft::new(params, root).map_err(|error| SealError::manifest(top.name(b""), &error))?;
        let mut scan = Self { draft, files: Vec::new(), folders: Vec::new(), names: 1 };
        let mut waiting = vec![(NodeIndex::ROOT, Vec::new())];
        while let Some((node, path)) = waiting.pop() {
            scan.folder((top, store), node, path, &mut waiting)?;
            progress.found(scan.names);
        }
        Ok(scan)
    }

    /// A file's path below the top.
    pub(crate) fn path_of(&self, job: &FileJob) -> Vec<u8> {
        self.folders.get(job.folder).map_or_else(Vec::new, |folder| join(&folder.path, &job.name))
    }

    /// Names the folders in which something came or went since they were listed.
    pub(crate) fn changed_folders(&self, top: &Top) -> Vec<PathBuf> {
        let is_same = |folder: &&Folder| {
            let now = top.folder(&folder.path).and_then(stat_of);
            now.is_ok_and(|now| State::of(&now) == folder.state)
        };
        self.folders.iter().filter(|folder| !is_same(folder)).map(|folder| top.name(&folder.path)).collect()
    }

    fn folder(
        &mut self,
        (top, store): (&Top, (Device, u64)),
        node: NodeIndex,
        path: Vec<u8>,
        waiting: &mut Vec<(NodeIndex, Vec<u8>)>,
    ) -> Result<(), SealError> {
        let failed = |error| SealError::gone_or(top.name(&path), error);
        let fd = top.folder(&path).map_err(failed)?;
        let state = State::of(&stat_of(&fd).map_err(failed)?);
        let (mut children, mut stats) = (Vec::new(), Vec::new());
        for name in top.list(&fd, path.is_empty()).map_err(failed)? {
            let failed = |error| SealError::gone_or(top.name(&join(&path, name.to_bytes())), error);
            let (child, stat) = walk::node(&fd, &name).map_err(failed)?;
            if (stat.dev, stat.ino) == store {
                let (store, tree) = (top.name(&join(&path, name.to_bytes())), top.name(b""));
                return Err(SealError::InTree { store, tree });
            }
            let node = drafted(&child, &stat).map_err(failed)?;
            let link = (stat.nlink > 1 && !stat.is_dir()).then_some((stat.dev, stat.ino));
            children.push(Child { name: name.to_bytes().to_vec(), node, link });
            stats.push((name, stat));
            self.names += 1;
        }
        let placed = self.draft.fill(node, children);
        let placed = placed.map_err(|error| SealError::manifest(top.name(&path), &error))?;
        let place = self.folders.len();
        for (child, (name, stat)) in placed.into_iter().zip(stats) {
            if stat.is_dir() {
                waiting.push((child.node, join(&path, name.to_bytes())));
            } else if stat.is_file() && child.is_new {
                let name = name.to_bytes().into();
                self.files.push(FileJob { node: child.node, folder: place, name, state: State::of(&stat) });
            }
        }
        self.folders.push(Folder { path, state });
        Ok(())
    }
}

/// What the manifest is to say of an open file.
fn drafted(fd: &OwnedFd, stat: &Stat) -> shuntfs_sys::Result<DraftNode> {
    Ok(DraftNode {
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        mtime: stat.mtime,
        rdev: stat.rdev,
        xattrs: walk::xattrs(fd)?,
        target: if stat.is_symlink() { walk::target(fd)? } else { Vec::new() },
    })
}
