//! A whole folder as text, one line a file, so that two folders can be compared byte by byte.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result};

/// What a comparison looks at besides names, types and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Permissions and owners.
    pub owners: bool,
    /// Modification times.
    pub times: bool,
    /// Extended attributes, with them ACLs.
    pub xattrs: bool,
}

impl Look {
    /// Everything.
    pub const ALL: Self = Self { owners: true, times: true, xattrs: true };
    /// Everything but times, which differ between two runs of one script.
    pub const TIMELESS: Self = Self { owners: true, times: false, xattrs: true };
}

/// Describes every file below `root`: path to a line of what was seen there.
///
/// # Errors
/// A file cannot be read.
pub fn snapshot(root: &Path, look: Look) -> Result<BTreeMap<OsString, String>> {
    let mut found = Snapshot { look, files: BTreeMap::new(), links: BTreeMap::new() };
    found.walk(root, OsStr::new("."))?;
    Ok(found.files)
}

/// Lists the differences between two snapshots, at most `shown`.
#[must_use]
pub fn differences(
    left: &BTreeMap<OsString, String>,
    right: &BTreeMap<OsString, String>,
    shown: usize,
) -> Vec<String> {
    let mut names: Vec<&OsString> = left.keys().chain(right.keys()).collect();
    names.sort();
    names.dedup();
    let nothing = String::from("(not there)");
    let different = names.into_iter().filter_map(|name| {
        let (one, other) = (left.get(name).unwrap_or(&nothing), right.get(name).unwrap_or(&nothing));
        (one != other).then(|| format!("{}: {one} != {other}", name.as_bytes().escape_ascii()))
    });
    different.take(shown).collect()
}

/// Compares two folders; an empty list means that they are the same.
///
/// # Errors
/// A file cannot be read.
pub fn compare(left: &Path, right: &Path, look: Look) -> Result<Vec<String>> {
    Ok(differences(&snapshot(left, look)?, &snapshot(right, look)?, 20))
}

struct Snapshot {
    look: Look,
    files: BTreeMap<OsString, String>,
    /// The first name seen of each inode with several names: how hard links are told apart from copies.
    links: BTreeMap<(u64, u64), OsString>,
}

impl Snapshot {
    fn walk(&mut self, root: &Path, name: &OsStr) -> Result<()> {
        let path = root.join(name);
        let meta = fs::symlink_metadata(&path).with_context(|| format!("cannot stat {}", path.display()))?;
        let line = self.describe(&path, name, &meta)?;
        self.files.insert(name.to_owned(), line);
        if meta.is_dir() {
            let mut names: Vec<OsString> = fs::read_dir(&path)?
                .map(|entry| entry.map(|entry| entry.file_name()))
                .collect::<Result<_, _>>()?;
            names.sort();
            for child in names {
                self.walk(root, &Path::new(name).join(child).into_os_string())?;
            }
        }
        Ok(())
    }

    fn describe(&mut self, path: &Path, name: &OsStr, meta: &fs::Metadata) -> Result<String> {
        let mut line = kind(meta).to_owned();
        if self.look.owners {
            line += &format!(" {:04o} {}:{}", meta.mode() & 0o7777, meta.uid(), meta.gid());
        }
        if self.look.times {
            line += &format!(" mtime={}.{:09}", meta.mtime(), meta.mtime_nsec());
        }
        if meta.is_file() {
            line += &format!(" {} bytes #{:016x}", meta.size(), hash_file(path)?);
        } else if meta.is_symlink() {
            line += &format!(" -> {}", fs::read_link(path)?.as_os_str().as_bytes().escape_ascii());
        } else if meta.file_type().is_char_device() || meta.file_type().is_block_device() {
            line += &format!(" device {:x}", meta.rdev());
        }
        if !meta.is_dir() && meta.nlink() > 1 {
            let first = self.links.entry((meta.dev(), meta.ino())).or_insert_with(|| name.to_owned());
            line += &format!(" x{} of {}", meta.nlink(), first.as_bytes().escape_ascii());
        }
        if self.look.xattrs {
            line += &xattrs(path)?;
        }
        Ok(line)
    }
}

fn kind(meta: &fs::Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => "folder",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "char",
        () if kind.is_block_device() => "block",
        () => "file",
    }
}

/// FNV-1a, enough to tell two files apart that no one made to collide.
fn hash_file(path: &Path) -> Result<u64> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hash(&bytes))
}

/// A short number that stands for many bytes in an observation.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The extended attributes of a file, sorted, each as ` name=value`.
fn xattrs(path: &Path) -> Result<String> {
    let mut list = vec![0_u8; 65536];
    let len = match rustix::fs::llistxattr(path, &mut list[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(String::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot list attributes of {}", path.display()));
        }
    };
    let mut names: Vec<&[u8]> =
        list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let mut text = String::new();
    for name in names {
        let mut value = vec![0_u8; 65536];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..])
            .with_context(|| format!("cannot read {} of {}", name.escape_ascii(), path.display()))?;
        text += &format!(" {}={}", name.escape_ascii(), value[..len].escape_ascii());
    }
    Ok(text)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn equal_and_different_folders() {
        let (left, right) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for root in [left.path(), right.path()] {
            fs::create_dir(root.join("d")).unwrap();
            fs::write(root.join("d/f"), "same").unwrap();
            fs::hard_link(root.join("d/f"), root.join("d/g")).unwrap();
            std::os::unix::fs::symlink("f", root.join("d/s")).unwrap();
        }
        assert_eq!(compare(left.path(), right.path(), Look::TIMELESS).unwrap(), Vec::<String>::new());
        fs::write(right.path().join("d/f"), "else").unwrap();
        fs::remove_file(right.path().join("d/s")).unwrap();
        let found = compare(left.path(), right.path(), Look::TIMELESS).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("./d/f") && found[2].contains("not there"), "{found:?}");
    }
}
