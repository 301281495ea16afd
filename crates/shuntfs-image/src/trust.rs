//! Whether the names of other files in an image are followed.
//!
//! An image names its backing file, and whoever can write an image can have it name any file: root, who exports it, would
//! read that file for them. So by default root follows the names in an image only where nobody but root can have put them
//! there, and where nobody but root decides what they lead to.

use std::path::Path;

use shuntfs_sys::stat::{FsMagic, filesystem_of};
use shuntfs_sys::trusted::{self, Untrusted};
use shuntfs_sys::{OsError, spawn, stat_of};

use crate::error::Refusal;
use crate::open::OpenFile;
use crate::options::Backing;

const OTHERS_WRITE: u32 = 0o022;

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

/// Whether only root decides what a path leads to. What cannot be looked at is not known to be so.
///
/// This looks at names, and they are opened later: but where it says yes, only root can change them meanwhile.
fn leads_by_root(path: &Path) -> bool {
    match trusted::lead(path) {
        Ok(_held) => true,
        // Opening it says that it is missing, and nobody but root puts anything there.
        Err(Untrusted::Os(OsError::NOENT)) => true,
        Err(_) => false,
    }
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
