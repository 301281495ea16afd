//! Sealing on disk file systems, with what only root may set, and with a store that is full.

mod common;

use std::ffi::CString;
use std::fs;

use common::{Watch, bytes, findings, open, options, plant, seal};
use shuntfs_seal::{Manifest, SealError, SealOptions, Store, Trust, seal_tree};
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};

#[test]
fn privileged_every_file_system_can_be_sealed() {
    for kind in [LowerKind::Tmpfs, LowerKind::Ext4, LowerKind::Xfs] {
        let Some(lower) = Lower::make(kind).unwrap() else { continue };
        let at = lower.folder("tree").unwrap();
        plant(&at);
        let file = fs::File::open(at.join("big")).unwrap();
        for (name, value) in [(c"trusted.a", &b"1"[..]), (c"security.b", b""), (c"user.c", &[0, 255])] {
            shuntfs_sys::set_xattr(&file, name, value, 0).unwrap();
        }
        let folder = shuntfs_sys::open::open_folder(&at).unwrap();
        let device = CString::new("device").unwrap();
        shuntfs_sys::mknod_at(&folder, &device, 0o020_600, shuntfs_sys::encode_dev(1, 3)).unwrap();
        seal(&at).unwrap();
        assert_eq!(findings(&at), [""; 0], "{kind}");
        let manifest = open(&at, None).unwrap();
        let find = |path: &[u8]| manifest.find(path).unwrap().unwrap();
        let names: Vec<_> = manifest.xattrs(find(b"big")).unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, [&b"security.b"[..], b"trusted.a", b"user.c"], "{kind}");
        let rdev = manifest.node(find(b"device")).unwrap().rdev;
        assert_eq!((rdev.major, rdev.minor), (1, 3));
        shuntfs_sys::set_xattr(&file, c"trusted.a", b"2", 0).unwrap();
        assert_eq!(findings(&at), ["big: attribute trusted.a"], "{kind}");
        assert_eq!(seal(&at).unwrap().hashed, 1, "{kind}: the ctime changed");
        // An access list that nobody sealed is found, although the mode stays.
        let listed =
            std::process::Command::new("setfacl").args(["-m", "u:71001:r,m::r"]).arg(at.join("big")).status();
        assert!(listed.unwrap().success());
        assert_eq!(findings(&at), ["big: attribute system.posix_acl_access"], "{kind}");
    }
}

#[test]
fn privileged_a_full_disk_leaves_the_old_seal() {
    let Some(lower) = LowerSpec::new(LowerKind::Tmpfs).size(1 << 20).make().unwrap() else { return };
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    plant(at);
    let store = lower.path().join("store");
    let options = SealOptions { store: Some(store.clone()), ..options(&[]) };
    let sealed = seal_tree(at, &options, &Watch::quiet()).unwrap().digest;
    // Trees of more than the store has room for.
    for index in 0..20 {
        fs::write(at.join(format!("more{index}")), bytes(8_000_000, index)).unwrap();
    }
    let error = seal_tree(at, &options, &Watch::quiet()).unwrap_err();
    assert!(matches!(error, SealError::Store(_)) && error.to_string().contains("No space left"), "{error}");
    let manifest = Manifest::open(&Store::open(&store).unwrap(), &Trust::anybody()).unwrap();
    assert_eq!(manifest.digest(), sealed, "the old seal is whole");
    assert_eq!(fs::read_dir(store.join("staging")).unwrap().count(), 0, "nothing half-written is left");
    // With room again, what was hashed is not hashed again.
    for index in 1..20 {
        fs::remove_file(at.join(format!("more{index}"))).unwrap();
    }
    let report = seal_tree(at, &options, &Watch::quiet()).unwrap();
    assert_eq!(report.hashed + report.unchanged + report.resumed, 6);
    assert!(report.resumed <= 1 && report.unchanged == 5, "{report:?}");
}
