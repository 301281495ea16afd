//! A folder against its manifest: names on both sides, attributes, then data.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use shuntfs_sys::caps::has_effective;
use shuntfs_sys::{Cap, Device, OsError, Stat, regular, stat_of};
use shuntfs_verity::Descriptor;

use super::data;
use super::finding::{Attribute, Difference, Fault, Finding};
use crate::manifest::TreeFile;
use crate::spread::spread;
use crate::walk::{self, Top, join};
use crate::{
    Manifest, ManifestError, Node, NodeIndex, NodeKind, Progress, Shown, Side, Store, StoreError, Trust,
    Xattr,
};

/// What must be verified, and how.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "whoever verifies decides all of it")]
pub struct Checking<'a> {
    /// The sealed folder.
    pub folder: &'a Path,
    /// Where its store is; `None` for `.shunt` in it.
    pub store: Option<PathBuf>,
    /// What the seal must have.
    pub trust: &'a Trust,
    /// Paths below the folder, of which alone something is asked; none for all.
    pub only: Vec<Vec<u8>>,
    /// Threads that hash.
    pub jobs: NonZeroUsize,
}

/// What was verified.
#[derive(Debug)]
#[non_exhaustive]
pub struct Verified {
    /// The manifest.
    pub manifest: Manifest,
    /// Files whose data was compared.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What differs, sorted by path.
    pub findings: Vec<Finding>,
}

/// Compares a folder with its manifest.
///
/// # Errors
/// There is no seal, or it, its signatures or the manifest are not what they must be. What differs in the folder or in the
/// trees of files is no error but a finding.
pub fn verify_tree(checking: &Checking<'_>, progress: &dyn Progress) -> Result<Verified, StoreError> {
    let path = checking.store.clone().unwrap_or_else(|| Store::beside(checking.folder));
    let store = Store::open(&path)?;
    let manifest = Manifest::open(&store, checking.trust)?;
    let top = Top::open(checking.folder);
    let top = top.map_err(|error| StoreError::io(checking.folder, error))?;
    let mut walk = Walk::new(&top, &manifest);
    let broken = |source| StoreError::Manifest { path: store.path().to_owned(), source };
    if checking.only.is_empty() {
        walk.start(Vec::new(), Some(NodeIndex::ROOT)).map_err(broken)?;
    }
    for path in &checking.only {
        let node = manifest.find(path).map_err(broken)?;
        walk.start(path.clone(), node).map_err(broken)?;
    }
    while let Some((path, node)) = walk.folders.pop() {
        walk.folder(&path, node).map_err(broken)?;
        progress.found(walk.names);
    }
    let Walk { files, findings, .. } = walk;
    let bytes = files.iter().map(|file| file.descriptor.file_size()).sum();
    progress.to_hash(files.len() as u64, bytes);
    let findings = Mutex::new(findings);
    let pending: Vec<_> = files.iter().map(|file| file.descriptor.file_size()).enumerate().collect();
    spread(&pending, checking.jobs, |index, threads| {
        let Some(file) = files.get(index) else { return };
        if let Some(fault) = file.check(&top, &store, threads, progress) {
            findings.lock().push(Finding { path: file.path.clone(), fault });
        }
        progress.file_done();
    });
    let mut findings = findings.into_inner();
    findings.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(Verified { manifest, files: pending.len() as u64, bytes, findings })
}

/// Compares a single file with its side file, of which the signature is the caller's to check.
///
/// # Errors
/// The file cannot be opened.
pub fn verify_file(
    file: &Path,
    side: &Side,
    jobs: NonZeroUsize,
    progress: &dyn Progress,
) -> Result<Option<Fault>, StoreError> {
    let data = regular::open(file).map_err(|error| StoreError::io(file, error))?;
    progress.to_hash(1, side.descriptor.file_size());
    let tree = side.tree.0.try_clone().map(|file| Some(TreeFile { file, start: side.tree.1 }));
    let one_block = side.descriptor.file_size() <= side.descriptor.params().block_size().bytes().into();
    let tree = if one_block { Ok(None) } else { tree.map_err(|error| error.to_string()) };
    Ok(data::check(&side.descriptor, &data, tree, jobs, progress))
}

/// A regular file that is there and was sealed.
struct Job {
    path: Vec<u8>,
    descriptor: Descriptor,
}

impl Job {
    fn check(
        &self,
        top: &Top,
        store: &Store,
        threads: NonZeroUsize,
        progress: &dyn Progress,
    ) -> Option<Fault> {
        let file = match top.file(&self.path) {
            Ok(file) => File::from(file),
            Err(error) => return Some(Fault::Unreadable(std::io::Error::from(error).to_string())),
        };
        let tree = store.open_tree(&self.descriptor).map_err(|error| error.to_string());
        let tree = tree.map(|sealed| sealed.tree.map(|file| TreeFile { file, start: 0 }));
        data::check(&self.descriptor, &file, tree, threads, progress)
    }
}

struct Walk<'a> {
    top: &'a Top,
    manifest: &'a Manifest,
    folders: Vec<(Vec<u8>, NodeIndex)>,
    files: Vec<Job>,
    findings: Vec<Finding>,
    /// Files with several names whose data is compared already.
    seen: HashSet<(NodeIndex, Device, u64)>,
    names: u64,
}

impl<'a> Walk<'a> {
    fn new(top: &'a Top, manifest: &'a Manifest) -> Self {
        Self {
            top,
            manifest,
            folders: Vec::new(),
            files: Vec::new(),
            findings: Vec::new(),
            seen: HashSet::new(),
            names: 0,
        }
    }

    /// Begins at a path; `None` for one that was not sealed.
    fn start(&mut self, path: Vec<u8>, node: Option<NodeIndex>) -> Result<(), ManifestError> {
        let Some(node) = node else {
            self.find(path, Fault::Extra);
            return Ok(());
        };
        let (folder, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default()),
            None => (&[][..], path.as_slice()),
        };
        let name = CString::new(name).unwrap_or_default();
        let found = self.top.folder(folder).and_then(|folder| {
            if path.is_empty() {
                let stat = stat_of(&folder)?;
                return Ok((folder, stat));
            }
            walk::node(&folder, &name)
        });
        self.compare(path, node, found)
    }

    /// Compares the names of a folder on both sides, both sorted.
    fn folder(&mut self, path: &[u8], node: NodeIndex) -> Result<(), ManifestError> {
        let listed = self.top.folder(path).and_then(|fd| Ok((self.top.list(&fd, path.is_empty())?, fd)));
        let (names, fd) = match listed {
            Ok(listed) => listed,
            Err(error) => {
                self.find(path.to_vec(), unreadable(error));
                return Ok(());
            }
        };
        let mut names = names.into_iter().peekable();
        for entry in self.manifest.entries(node, 0)? {
            let entry = entry?;
            while let Some(extra) = names.next_if(|name| name.to_bytes() < entry.name.as_slice()) {
                self.find(join(path, extra.to_bytes()), Fault::Extra);
            }
            let child = join(path, &entry.name);
            self.names += 1;
            match names.next_if(|name| name.to_bytes() == entry.name.as_slice()) {
                Some(name) => {
                    let found = walk::node(&fd, &name);
                    self.compare(child, entry.node, found)?;
                }
                None => self.find(child, Fault::Missing),
            }
        }
        for extra in names {
            self.find(join(path, extra.to_bytes()), Fault::Extra);
        }
        Ok(())
    }

    fn compare(
        &mut self,
        path: Vec<u8>,
        index: NodeIndex,
        found: shuntfs_sys::Result<(OwnedFd, Stat)>,
    ) -> Result<(), ManifestError> {
        let node = self.manifest.node(index)?;
        let (fd, stat) = match found {
            Ok(found) => found,
            Err(OsError::NOENT | OsError::NOTDIR) => {
                self.find(path, Fault::Missing);
                return Ok(());
            }
            Err(error) => {
                self.find(path, unreadable(error));
                return Ok(());
            }
        };
        let kind = NodeKind::of_mode(stat.mode);
        if kind != Some(node.kind) {
            self.find(path, Fault::Kind { sealed: node.kind, found: kind });
            return Ok(());
        }
        let differences = self.differences(&node, &fd, &stat)?;
        if !differences.is_empty() {
            self.find(path.clone(), Fault::Metadata(differences));
        }
        match node.descriptor {
            _ if node.kind == NodeKind::Folder => self.folders.push((path, index)),
            Some(descriptor) if node.nlink == 1 || self.seen.insert((index, stat.dev, stat.ino)) => {
                self.files.push(Job { path, descriptor });
            }
            _ => {}
        }
        Ok(())
    }

    /// What of a node's attributes differs, in words.
    fn differences(&self, node: &Node, fd: &OwnedFd, stat: &Stat) -> Result<Vec<Difference>, ManifestError> {
        let mut all = Vec::new();
        let mut differs = |attribute, what: &str, found: String, sealed: String| {
            if found != sealed {
                all.push(Difference { attribute, text: format!("{what} {found} in place of {sealed}") });
            }
        };
        differs(
            Attribute::Mode,
            "mode",
            format!("{:o}", stat.mode & 0o7777),
            format!("{:o}", node.mode & 0o7777),
        );
        differs(Attribute::Owner, "owner", stat.uid.to_string(), node.uid.to_string());
        differs(Attribute::Owner, "group", stat.gid.to_string(), node.gid.to_string());
        let time = |time: shuntfs_sys::Time| format!("{}.{:09}", time.secs, time.nanos);
        differs(Attribute::Mtime, "mtime", time(stat.mtime), time(node.mtime));
        if matches!(node.kind, NodeKind::CharDevice | NodeKind::BlockDevice) {
            let device = |device: Device| format!("{}:{}", device.major, device.minor);
            differs(Attribute::Device, "device", device(stat.rdev), device(node.rdev));
        }
        if node.kind == NodeKind::Symlink {
            let sealed = self.manifest.link_target(node.index)?;
            let found = walk::target(fd).unwrap_or_default();
            if found != sealed {
                let text = format!("target {} in place of {}", Shown::bytes(&found), Shown::bytes(&sealed));
                all.push(Difference { attribute: Attribute::Target, text });
            }
        }
        all.extend(xattr_differences(fd, &self.manifest.xattrs(node.index)?));
        Ok(all)
    }

    fn find(&mut self, path: Vec<u8>, fault: Fault) {
        self.findings.push(Finding { path, fault });
    }
}

/// Which extended attributes differ. Those of the superuser are seen by the superuser alone: whoever sees none of them cannot
/// compare them.
fn xattr_differences(fd: impl AsFd, sealed: &[Xattr]) -> Vec<Difference> {
    let differs = |text| Difference { attribute: Attribute::Xattr, text };
    let found = match walk::xattrs(fd) {
        Ok(found) => found,
        Err(error) => return vec![differs(format!("extended attributes: {}", std::io::Error::from(error)))],
    };
    let is_trusted = |one: &&Xattr| one.name.starts_with(b"trusted.");
    let sees_trusted = found.iter().any(|one| is_trusted(&one)) || has_effective(Cap::SysAdmin);
    let sealed: Vec<&Xattr> = sealed.iter().filter(|one| sees_trusted || !is_trusted(one)).collect();
    let names = |from: &[&Xattr], than: &[&Xattr]| -> Vec<Vec<u8>> {
        from.iter().filter(|one| !than.contains(one)).map(|one| one.name.clone()).collect()
    };
    let found: Vec<&Xattr> = found.iter().collect();
    let mut differ = names(&found, &sealed);
    differ.extend(names(&sealed, &found));
    differ.sort();
    differ.dedup();
    differ.into_iter().map(|name| differs(format!("attribute {}", Shown::bytes(&name)))).collect()
}

fn unreadable(error: OsError) -> Fault {
    Fault::Unreadable(std::io::Error::from(error).to_string())
}
