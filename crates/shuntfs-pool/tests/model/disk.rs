//! Branches on the machine's own file system: made as the model has them, and read to be compared.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, UTIME_OMIT, XattrFlags};

use super::op::{FIFO, FILE, FOLDER, LINK, Stat};
use super::tree::{Attributes, Branch, Kind};

/// What is at one path of a branch.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    stat: Stat,
    /// Bytes or target.
    content: Vec<u8>,
    xattrs: BTreeMap<String, Vec<u8>>,
    /// The first path of the same inode.
    first: String,
}

/// Sets the time of the last change, of a symlink, too.
pub(crate) fn set_mtime(path: &Path, secs: u64, flags: AtFlags) -> rustix::io::Result<()> {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let time = Timespec { tv_sec: secs.cast_signed(), tv_nsec: 0 };
    rustix::fs::utimensat(CWD, path, &Timestamps { last_access: omitted, last_modification: time }, flags)
}

/// Makes a branch in an empty folder.
pub(crate) fn lay_out(branch: &Branch, top: &Path) {
    let mut made: HashMap<usize, String> = HashMap::new();
    let all = branch.walk();
    for (path, inode) in &all {
        let at = top.join(&path[1..]);
        if let Some(first) = made.get(inode) {
            fs::hard_link(top.join(&first[1..]), at).unwrap();
            continue;
        }
        match &branch.inodes[*inode].kind {
            Kind::File(bytes) => fs::write(at, bytes).unwrap(),
            Kind::Folder(_) => fs::create_dir(at).unwrap(),
            Kind::Symlink(target) => symlink(target, at).unwrap(),
            Kind::Fifo => {
                rustix::fs::mknodat(CWD, &at, FileType::Fifo, Mode::from(0o644), 0).unwrap();
            }
        }
        made.insert(*inode, path.clone());
    }
    // From the bottom up: what is made in a folder sets its time.
    for (path, inode) in all.iter().rev() {
        let inode = &branch.inodes[*inode];
        let (at, Attributes { mode, uid, gid, mtime, xattrs }) = (top.join(&path[1..]), &inode.attributes);
        lchown(&at, Some(*uid), Some(*gid)).unwrap();
        for (name, value) in xattrs {
            rustix::fs::setxattr(&at, name, value, XattrFlags::empty()).unwrap();
        }
        if !matches!(inode.kind, Kind::Symlink(_)) {
            fs::set_permissions(&at, fs::Permissions::from_mode(*mode)).unwrap();
        }
        if let Some(secs) = mtime {
            set_mtime(&at, *secs, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }
    }
}

fn expected(branch: &Branch) -> BTreeMap<String, Entry> {
    let mut all = branch.walk();
    all.sort();
    let mut firsts = HashMap::new();
    let entry = |(path, inode): (String, usize)| {
        let first = firsts.entry(inode).or_insert_with(|| path.clone()).clone();
        let inode = &branch.inodes[inode];
        let (kind, content) = match &inode.kind {
            Kind::File(bytes) => (FILE, bytes.clone()),
            Kind::Folder(_) => (FOLDER, Vec::new()),
            Kind::Symlink(target) => (LINK, target.clone().into_bytes()),
            Kind::Fifo => (FIFO, Vec::new()),
        };
        let Attributes { mode, uid, gid, mtime, ref xattrs } = inode.attributes;
        let links = if kind == FOLDER { 0 } else { inode.links };
        let stat = Stat { mode: kind | mode, uid, gid, links, size: content.len() as u64, mtime };
        (path, Entry { stat, content, xattrs: xattrs.clone(), first })
    };
    all.into_iter().map(entry).collect()
}

pub(crate) fn stat_of(found: &fs::Metadata) -> Stat {
    let is_folder = found.is_dir();
    Stat {
        mode: found.mode(),
        uid: found.uid(),
        gid: found.gid(),
        links: if is_folder { 0 } else { u32::try_from(found.nlink()).unwrap() },
        size: if is_folder { 0 } else { found.size() },
        mtime: Some(found.mtime().cast_unsigned()),
    }
}

fn seen(top: &Path) -> BTreeMap<String, Entry> {
    let (mut paths, mut ahead) = (Vec::new(), vec![String::new()]);
    while let Some(folder) = ahead.pop() {
        for entry in fs::read_dir(top.join(folder.trim_start_matches('/'))).unwrap().map(Result::unwrap) {
            let path = format!("{folder}/{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                ahead.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    let mut firsts = HashMap::new();
    let entry = |path: String| {
        let at = top.join(&path[1..]);
        let found = at.symlink_metadata().unwrap();
        let kind = found.file_type();
        let content = if kind.is_file() {
            fs::read(&at).unwrap()
        } else if kind.is_symlink() {
            fs::read_link(&at).unwrap().into_os_string().into_encoded_bytes()
        } else {
            assert!(kind.is_dir() || kind.is_fifo(), "{path}");
            Vec::new()
        };
        let first = firsts.entry(found.ino()).or_insert_with(|| path.clone()).clone();
        let xattrs = if kind.is_file() || kind.is_dir() { xattrs(&at) } else { BTreeMap::new() };
        (path, Entry { stat: stat_of(&found), content, xattrs, first })
    };
    paths.into_iter().map(entry).collect()
}

fn xattrs(at: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(at, &mut names).unwrap_or(0);
    names.truncate(len);
    let names = names.split(|byte| *byte == 0).map(|name| String::from_utf8(name.to_vec()).unwrap());
    let value = |name: String| {
        let mut value = vec![0; 4096];
        let len = rustix::fs::getxattr(at, &name, &mut value).unwrap();
        value.truncate(len);
        (name, value)
    };
    names.filter(|name| name.starts_with("user.")).map(value).collect()
}

/// How a branch differs from the model's.
pub(crate) fn difference(branch: &Branch, top: &Path) -> Option<String> {
    let (expected, seen) = (expected(branch), seen(top));
    for path in expected.keys().chain(seen.keys()) {
        let is_same = match (expected.get(path), seen.get(path)) {
            (Some(expected), Some(seen)) => {
                seen.stat.is_as(&expected.stat)
                    && (&seen.content, &seen.xattrs, &seen.first)
                        == (&expected.content, &expected.xattrs, &expected.first)
            }
            _ => false,
        };
        if !is_same {
            let (expected, seen) = (expected.get(path), seen.get(path));
            return Some(format!("{path} in {}:\n  model {expected:?}\n  there {seen:?}", top.display()));
        }
    }
    None
}
