//! Whether a server that is dead had done what it had begun: is a name the one that the request was to make, or has somebody else
//! made it below the mount?

use std::ffi::CStr;

use shuntfs::{FileType, LowerFile};
use shuntfs_sys::dir::DirReader;
use shuntfs_sys::{Stat, decode_dev, open_at, open_path_at, readlink_of, stat_at};

use crate::find;
use crate::guard::{Coming, Spot};
use crate::mode;
use crate::shared::Shared;
use crate::who::Who;

/// More than any target.
const TARGET_MAX: usize = 4096;

/// Whether what has a name may be what `who` was to make. Nobody has used it yet: the caller holds the lock of the folder until the
/// request is answered.
pub(super) fn is_of(what: Coming<'_>, who: Who, dir: &LowerFile, name: &CStr) -> bool {
    let wanted = match what {
        Coming::File { .. } => mode::FILE,
        Coming::Folder { .. } => mode::DIR,
        Coming::Symlink { .. } => mode::LINK,
        Coming::Node { made, .. } => made.mode & mode::TYPE,
    };
    let Ok(stat) = stat_at(dir, name) else { return false };
    if stat.mode & mode::TYPE != wanted || stat.uid != who.uid() {
        return false;
    }
    match what {
        Coming::Folder { .. } => is_empty(dir, name),
        Coming::Symlink { target } => stat.nlink == 1 && leads_to(dir, name, target),
        Coming::File { .. } => is_untouched(&stat, who),
        Coming::Node { made, .. } if made.mode & mode::TYPE == mode::FILE => is_untouched(&stat, who),
        Coming::Node { rdev, .. } => {
            let is_device = [mode::CHARACTER, FileType::BlockDevice.mode_bits()].contains(&wanted);
            stat.nlink == 1 && (!is_device || stat.rdev == decode_dev(rdev))
        }
    }
}

/// Whether it may be a file that `who` has just made.
pub(crate) fn is_untouched(stat: &Stat, who: Who) -> bool {
    stat.is_file() && stat.size == 0 && stat.nlink == 1 && stat.uid == who.uid()
}

/// Whether a name may be what was to be moved there: the kernel knows that, so it has a node. (What had the name before has one, too,
/// where it was looked up. Nothing tells these two apart.)
pub(crate) fn is_known(shared: &Shared, spot: Spot<'_>) -> bool {
    find::known(shared, spot).is_ok_and(|nodes| !nodes.is_empty())
}

/// Whether nothing is in a folder. One that its own maker may not list counts as empty.
fn is_empty(dir: &LowerFile, name: &CStr) -> bool {
    let Ok(fd) = open_at(dir, name, mode::O_RDONLY | mode::O_DIRECTORY, 0) else { return true };
    let mut reader = DirReader::new(fd);
    while reader.fill().is_ok_and(|more| more) {
        while let Ok(Some(record)) = reader.peek() {
            if ![&b"."[..], b".."].contains(&record.name.to_bytes()) {
                return false;
            }
            if reader.advance().is_err() {
                return false;
            }
        }
    }
    true
}

fn leads_to(dir: &LowerFile, name: &CStr, target: &CStr) -> bool {
    let mut found = [0; TARGET_MAX];
    let len = open_path_at(dir, name).and_then(|link| readlink_of(&link, &mut found));
    len.is_ok_and(|len| found.get(..len) == Some(target.to_bytes()))
}
