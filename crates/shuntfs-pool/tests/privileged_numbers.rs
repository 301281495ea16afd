//! Inode numbers of merges, as programs see them through the kernel. Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use shuntfs_pool::policy::Policy;
use shuntfs_pool::{BranchOptions, Cache, InodeCalc, MergeOptions, Pool, PoolOptions};

use mounted::Mounted;

/// `None` where it cannot be had, and then the reason was said.
fn start(branches: Vec<BranchOptions>, calc: InodeCalc) -> Option<Mounted> {
    let create = Policy::of("ff").unwrap();
    let merge = MergeOptions { create, min_free: 0, inode_calc: calc, ..MergeOptions::new(branches) };
    let options = PoolOptions { merge: Some(merge), cache: Cache::None, ..PoolOptions::new("branches") };
    Mounted::new(Pool::open(&options).unwrap(), Vec::new())
}

impl Mounted {
    /// The number of each path, which is the same in listings.
    fn numbers(&self) -> BTreeMap<String, u64> {
        let mut numbers = BTreeMap::new();
        add_numbers(self.top.path(), self.top.path(), &mut numbers);
        numbers
    }
}

fn add_numbers(top: &Path, folder: &Path, numbers: &mut BTreeMap<String, u64>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, found) = (entry.path(), entry.path().symlink_metadata().unwrap());
        let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
        assert_eq!(entry.ino(), found.ino(), "{name}: listed, and asked for");
        numbers.insert(name, found.ino());
        if found.is_dir() {
            add_numbers(top, &path, numbers);
        }
    }
}

/// Two branches: folders of their own, one on both, a file with two names, and files of the same number below, perhaps.
fn lay_out(top: &Path) {
    for path in ["one/alone/x", "one/both/a", "two/both/b", "two/other/deep/y", "two/z"] {
        fs::create_dir_all(top.join(path).parent().unwrap()).unwrap();
        fs::write(top.join(path), path).unwrap();
    }
    fs::hard_link(top.join("one/both/a"), top.join("one/both/second")).unwrap();
    std::os::unix::fs::symlink("z", top.join("two/link")).unwrap();
}

fn branch(path: PathBuf, id: Option<&str>) -> BranchOptions {
    BranchOptions { id: id.map(str::to_owned), ..BranchOptions::new(path) }
}

/// Mounted once, with the branches in another order, and with one of them elsewhere; with and without identities.
#[test]
fn numbers_stay_as_long_as_they_are_said_to() {
    for (name, calc) in InodeCalc::ALL {
        for ids in [[None, None], [Some("first"), Some("second")]] {
            let top = tempfile::tempdir().unwrap();
            lay_out(top.path());
            let mount = |branches: [(&str, Option<&str>); 2]| {
                let branches = branches.map(|(name, id)| branch(top.path().join(name), id));
                start(branches.into(), calc)
            };
            let Some(mounted) = mount([("one", ids[0]), ("two", ids[1])]) else { return };
            let first = mounted.numbers();
            drop(mounted);
            let again = mount([("one", ids[0]), ("two", ids[1])]).unwrap().numbers();
            assert_eq!(first, again, "{name} {ids:?}: mounted again");
            // A folder on two branches has the number of the first, unless numbers go by paths.
            let by_path = name.starts_with("path") || name.starts_with("hybrid");
            let kept = |mut numbers: BTreeMap<String, u64>| {
                numbers.retain(|name, _| by_path || name != "both");
                numbers
            };
            let turned = mount([("two", ids[1]), ("one", ids[0])]).unwrap().numbers();
            assert_eq!(kept(first.clone()), kept(turned), "{name} {ids:?}: in another order");
            fs::rename(top.path().join("two"), top.path().join("elsewhere")).unwrap();
            let moved = mount([("one", ids[0]), ("elsewhere", ids[1])]).unwrap().numbers();
            let is_same = first["z"] == moved["z"];
            let stays = ids[1].is_some() || name.starts_with("path") || name == "passthrough";
            assert_eq!(is_same, stays, "{name} {ids:?}: mounted elsewhere");
            assert_eq!(
                first["other"] == moved["other"],
                stays || by_path,
                "{name} {ids:?}: a folder elsewhere"
            );
            assert_eq!(first["alone/x"], moved["alone/x"], "{name} {ids:?}: on the other branch");
        }
    }
}

#[test]
fn numbers_are_what_they_are_said_to_be() {
    for (name, calc) in InodeCalc::ALL {
        let top = tempfile::tempdir().unwrap();
        lay_out(top.path());
        let branches = ["one", "two"].map(|name| branch(top.path().join(name), None));
        let Some(mounted) = start(branches.into(), calc) else { return };
        let numbers = mounted.numbers();
        let below = |path: &str| top.path().join(path).symlink_metadata().unwrap().ino();
        if name.ends_with("32") {
            assert!(numbers.values().all(|number| u32::try_from(*number).is_ok()), "{name}: {numbers:x?}");
        }
        if name == "passthrough" {
            for (shown, path) in [("z", "two/z"), ("both", "one/both"), ("link", "two/link")] {
                assert_eq!(numbers[shown], below(path));
            }
        } else {
            let mut all: Vec<u64> = numbers.values().copied().collect();
            all.sort_unstable();
            all.dedup();
            let same = usize::from(!name.starts_with("path"));
            assert_eq!(all.len() + same, numbers.len(), "{name}: {numbers:x?}");
        }
        // Names of one file have one number, unless numbers go by them.
        assert_eq!(numbers["both/a"] == numbers["both/second"], !name.starts_with("path"), "{name}");
    }
}

#[test]
fn numbers_of_paths_are_those_of_the_names_of_the_moment() {
    for (name, calc) in InodeCalc::ALL {
        let files = name.starts_with("path");
        let folders = files || name.starts_with("hybrid");
        let top = tempfile::tempdir().unwrap();
        lay_out(top.path());
        let branches = ["one", "two"].map(|name| branch(top.path().join(name), None));
        let Some(mounted) = start(branches.into(), calc) else { return };
        let ino = |path: &str| mounted.at(path).symlink_metadata().unwrap().ino();
        let (file, folder, inside) = (ino("z"), ino("other"), ino("other/deep/y"));
        let open = fs::File::open(mounted.at("z")).unwrap();
        fs::rename(mounted.at("z"), mounted.at("w")).unwrap();
        assert_eq!((ino("w") == file, open.metadata().unwrap().ino()), (!files, ino("w")), "{name}");
        fs::write(mounted.at("z"), "another").unwrap();
        assert_eq!(ino("z") == file, files, "{name}: another file of the name");
        fs::rename(mounted.at("other"), mounted.at("both/moved")).unwrap();
        assert_eq!(ino("both/moved") == folder, !folders, "{name}: a folder that moved");
        assert_eq!(ino("both/moved/deep/y") == inside, !files, "{name}: what is in it");
        fs::create_dir(mounted.at("other")).unwrap();
        assert_eq!(ino("other") == folder, folders, "{name}: another folder of the name");
        let numbers = mounted.numbers();
        assert_eq!(numbers["both/moved/deep/y"], ino("both/moved/deep/y"), "{name}");
    }
}
