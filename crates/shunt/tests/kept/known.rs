//! Files of a mount that are known by their handles, and what these must lead to.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use shuntfs_sys::{FileHandle, OsError, handle_of, open_by_handle};

pub(crate) fn handle(path: &Path) -> FileHandle {
    handle_of(File::open(path).expect("opens")).expect("has a handle").0
}

pub(crate) fn by_handle(mnt: &Path, handle: &FileHandle) -> shuntfs_sys::Result<File> {
    let root = File::open(mnt).expect("opens");
    open_by_handle(&root, handle, 0).map(File::from)
}

pub(crate) fn text(mnt: &Path, handle: &FileHandle) -> shuntfs_sys::Result<String> {
    let mut text = String::new();
    by_handle(mnt, handle)?.read_to_string(&mut text).expect("is read");
    Ok(text)
}

/// Has the kernel forget files that are not in use.
pub(crate) fn forget() {
    fs::write("/proc/sys/vm/drop_caches", "2").expect("is root's");
}

/// Files with handles, and what they must lead to.
pub(crate) struct Known {
    mnt: PathBuf,
    handles: Vec<(&'static str, FileHandle)>,
    open: File,
    about: (u64, FileHandle),
}

impl Known {
    pub(crate) fn make(mnt: PathBuf) -> Self {
        fs::create_dir_all(mnt.join("folder/deep")).expect("makes");
        let names =
            ["kept", "folder/below", "folder/deep/leaf", "linked", "removed", "replaced", "new", "open"];
        for name in names {
            fs::write(mnt.join(name), name).expect("writes");
        }
        fs::hard_link(mnt.join("linked"), mnt.join("folder/second")).expect("links");
        let handles = names.into_iter().map(|name| (name, handle(&mnt.join(name)))).collect();
        let open = OpenOptions::new().read(true).write(true).open(mnt.join("open")).expect("opens");
        fs::rename(mnt.join("folder"), mnt.join("moved")).expect("renames");
        fs::rename(mnt.join("new"), mnt.join("replaced")).expect("renames");
        for name in ["linked", "removed"] {
            fs::remove_file(mnt.join(name)).expect("removes");
        }
        let about = (open.metadata().expect("is open").ino(), handle(&mnt.join("moved/deep")));
        Self { mnt, handles, open, about }
    }

    #[track_caller]
    pub(crate) fn holds(&self, what: &str) {
        for (name, handle) in &self.handles {
            let expected = match *name {
                "removed" | "replaced" => Err(OsError::STALE),
                name => Ok(name.to_owned()),
            };
            assert_eq!(text(&self.mnt, handle), expected, "{name} {what}");
        }
        // By names, they have the same ones.
        for (name, now) in [("kept", "kept"), ("folder/deep/leaf", "moved/deep/leaf"), ("new", "replaced")] {
            let before = self.handles.iter().find(|(known, _)| *known == name).map(|(_, handle)| handle);
            assert_eq!(before, Some(&handle(&self.mnt.join(now))), "{name} {what}");
        }
        assert_eq!(handle(&self.mnt.join("moved/deep")), self.about.1, "{what}");
        let folder = by_handle(&self.mnt, &self.about.1).expect("leads there");
        assert!(folder.metadata().expect("is there").is_dir());
        // A number that got another generation would have the kernel fail all that is open.
        fs::metadata(self.mnt.join("open")).expect("is there");
        self.open.write_all_at(b"open", 0).expect("is open");
        let mut bytes = [0; 4];
        self.open.read_exact_at(&mut bytes, 0).expect("is open");
        assert_eq!((&bytes, self.open.metadata().expect("is open").ino()), (b"open", self.about.0), "{what}");
    }
}
