//! Whether the names of other files in an image are followed.
//!
//! An image names its backing file, and whoever can write an image can have it name any file: root, who exports it, would
//! read that file for them. So by default root follows the names in an image only where nobody but root can have put them
//! there, and where nobody but root decides what they lead to.

use std::collections::VecDeque;
use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use shuntfs_sys::stat::{FsMagic, filesystem_of};
use shuntfs_sys::{OsError, open_folder, open_path_at, readlink_of, spawn, stat_of};

use crate::error::Refusal;
use crate::open::OpenFile;
use crate::options::Backing;

const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// As many as the kernel follows.
const LINKS_MAX: usize = 40;
/// `PATH_MAX`: no symlink is longer.
const TARGET_MAX: usize = 4096;

/// Says whether a layer's name for its backing file, which leads to `path`, is followed.
///
/// # Errors
/// Why it is not.
pub(crate) fn follows(layer: &OpenFile, path: &Path, wish: &Backing) -> Result<(), Refusal> {
    match wish {
        Backing::Follow => Ok(()),
        Backing::None => Err(Refusal::Wished),
        Backing::File(_) => Err(Refusal::NotNamed),
        Backing::Auto if spawn::effective_uid() != 0 => Ok(()),
        Backing::Auto if !is_of_root(layer) => Err(Refusal::OthersImage),
        Backing::Auto if !leads_by_root(path) => Err(Refusal::OthersFolder),
        Backing::Auto => Ok(()),
    }
}

/// Whether only root can have written a file. The server of a FUSE file system says of its files what it likes.
fn is_of_root(file: &OpenFile) -> bool {
    let by_kernel = filesystem_of(&*file.lower).is_ok_and(|found| found.magic != FsMagic::FUSE);
    let stat = stat_of(&*file.lower);
    by_kernel && stat.is_ok_and(|stat| stat.uid == 0 && stat.mode & OTHERS_WRITE == 0)
}

/// Whether only root decides what a path leads to: every folder on the way is root's and not for others to write, or has the
/// sticky bit and what is taken of it is root's. What cannot be looked at is not known to be so.
///
/// This looks at names, and they are opened later: but where it says yes, only root can change them meanwhile.
fn leads_by_root(path: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else { return false };
    let Ok(root) = open_folder(Path::new("/")) else { return false };
    let (mut walked, mut links) = (vec![root], 0);
    let mut rest: VecDeque<OsString> = parts_of(&path).collect();
    while let Some(part) = rest.pop_front() {
        let Some(folder) = walked.last() else { return false };
        match part.as_encoded_bytes() {
            b"/" => walked.truncate(1),
            b"." => {}
            b".." if walked.len() > 1 => drop(walked.pop()),
            b".." => {}
            name => match taken(folder, name) {
                None => return false,
                // Nobody but root puts anything there.
                Some(Taken::Missing) => return true,
                Some(Taken::Other(entry)) => walked.push(entry),
                Some(Taken::Link(_)) if links == LINKS_MAX => return false,
                Some(Taken::Link(target)) => {
                    links += 1;
                    parts_of(&target)
                        .collect::<Vec<_>>()
                        .into_iter()
                        .rev()
                        .for_each(|part| rest.push_front(part));
                }
            },
        }
    }
    true
}

enum Taken {
    Missing,
    Link(PathBuf),
    Other(OwnedFd),
}

fn parts_of(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().map(|part| part.as_os_str().to_owned())
}

/// What a folder has by a name, if that is as root wants it.
fn taken(folder: &OwnedFd, name: &[u8]) -> Option<Taken> {
    let of_folder = stat_of(folder).ok()?;
    let for_others = of_folder.mode & OTHERS_WRITE != 0;
    if of_folder.uid != 0 || (for_others && of_folder.mode & STICKY == 0) {
        return None;
    }
    let entry = match open_path_at(folder, &CString::new(name).ok()?) {
        Err(OsError::NOENT) if !for_others => return Some(Taken::Missing),
        entry => entry.ok()?,
    };
    // A FUSE server says what it likes of whose its folders and symlinks are, and where these lead.
    if filesystem_of(&entry).ok()?.magic == FsMagic::FUSE {
        return None;
    }
    let stat = stat_of(&entry).ok()?;
    // In a folder that others write, nobody else renames or removes what is root's; what is not root's is what they like.
    if for_others && stat.uid != 0 {
        return None;
    }
    if !stat.is_symlink() {
        return Some(Taken::Other(entry));
    }
    let mut target = vec![0; TARGET_MAX];
    let len = readlink_of(&entry, &mut target).ok().filter(|len| (1..TARGET_MAX).contains(len))?;
    target.truncate(len);
    Some(Taken::Link(OsString::from_vec(target).into()))
}

#[cfg(test)]
mod test {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn privileged_a_path_is_roots_where_every_step_of_it_is() {
        if spawn::effective_uid() != 0 {
            eprintln!("SKIPPED: root only");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["own", "others", "shared", "sticky"] {
            fs::create_dir(at(name)).expect("makes");
            fs::write(at(name).join("base"), "").expect("writes");
        }
        chown(at("others"), Some(4001), Some(4001)).expect("gives");
        fs::set_permissions(at("shared"), Permissions::from_mode(0o777)).expect("opens");
        fs::set_permissions(at("sticky"), Permissions::from_mode(0o1777)).expect("opens");
        fs::write(at("sticky/theirs"), "").expect("writes");
        chown(at("sticky/theirs"), Some(4001), Some(4001)).expect("gives");
        // In a folder of root, a file of somebody else is there because root wants it.
        fs::write(at("own/theirs"), "").expect("writes");
        chown(at("own/theirs"), Some(4001), Some(4001)).expect("gives");
        symlink(at("own/base"), at("own/good")).expect("links");
        symlink("../others/../own/base", at("own/around")).expect("links");
        symlink(at("own/base"), at("others/away")).expect("links");
        symlink("loop", at("own/loop")).expect("links");
        for (name, is_roots) in [
            ("own/base", true),
            ("own/theirs", true),
            ("own/good", true),
            ("own/../own/./base", true),
            ("sticky/base", true),
            ("sticky/theirs", false),
            ("others/base", false),
            ("shared/base", false),
            ("others/../own/base", true),
            ("own/around", true),
            ("others/away", false),
            ("own/loop", false),
            ("own/missing", true),
            ("sticky/missing", false),
        ] {
            assert_eq!(leads_by_root(&at(name)), is_roots, "{name}");
        }
    }
}
