//! Who may do what on a mount of a sealed tree: access lists and attributes are the sealed ones, and the kernel goes by them.
//! Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{Fixture, content, each, open, options, seal};
use shuntfs_testkit::lower::LowerKind;
use shuntfs_verity::sign::KeyPair;

const MEMBER: u32 = 71_001;
const GROUP: u32 = 71_002;
const STRANGER: u32 = 71_003;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Runs a command in a folder; what it printed, which must be something.
fn said(folder: &Path, command: &str) -> String {
    let out = Command::new("sh").args(["-ec", command]).current_dir(folder).output().unwrap();
    assert!(out.status.success() && !out.stdout.is_empty(), "{command}: {out:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// A tree whose modes alone would say something else than its lists.
fn furnish(root: &Path) {
    mode(root, 0o755);
    for name in ["secret", "masked", "barred"] {
        fs::write(root.join(name), content(5000)).unwrap();
        mode(&root.join(name), 0o600);
    }
    mode(&root.join("barred"), 0o644);
    fs::create_dir(root.join("team")).unwrap();
    mode(&root.join("team"), 0o700);
    said(
        root,
        &format!(
            "setfacl -m u:{MEMBER}:r secret
             setfacl -m u:{MEMBER}:rw,m::- masked
             setfacl -m u:{MEMBER}:- barred
             setfacl -m g:{GROUP}:rx,d:u:{MEMBER}:rwx,d:g:{GROUP}:rx team
             umask 077; echo inherited > team/inside
             setfattr -n user.note -v 'of a user' secret
             setfattr -n trusted.note -v 'of root' secret
             setfattr -n security.note -v 'of a module' team
             echo done"
        ),
    );
}

/// Whether somebody may read a file, or list a folder.
fn may(path: &Path, uid: u32, groups: &str) -> bool {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={uid}")]);
    if groups.is_empty() {
        command.arg("--clear-groups")
    } else {
        command.arg(format!("--groups={groups}"))
    };
    let out = command.args(["--", if path.is_dir() { "ls" } else { "cat" }]).arg(path).output().unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() || told.contains("Permission denied"), "{told}");
    out.status.success()
}

#[test]
fn access_lists_are_shown_and_hold() {
    each(&[LowerKind::Tmpfs, LowerKind::Xfs, LowerKind::Ext4], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        furnish(&root);
        let key = KeyPair::generate().unwrap();
        seal(&root, &[&key]);
        let fixture = Fixture::of(open(&root, Some(&[&key])).unwrap(), &options(kind));
        let mnt = fixture.path();
        let lists = "getfacl -R --numeric secret masked barred team";
        assert_eq!(said(mnt, lists), said(&root, lists));
        assert!(said(mnt, lists).contains("default:group:71002:r-x"));
        // The digest is the mount's own attribute, as another form of the lists is that of XFS; the others are those that
        // were sealed.
        let attributes = "getfattr -R -d -m - -e hex secret masked team | grep -v '^user.shuntfs.verity=\\|^trusted.SGI_ACL'";
        assert_eq!(said(mnt, attributes), said(&root, attributes));
        assert!(said(mnt, attributes).contains("trusted.note="));

        let cases = [
            ("secret", MEMBER, "", true),
            ("secret", STRANGER, "", false),
            ("masked", MEMBER, "", false),
            ("barred", MEMBER, "", false),
            ("barred", STRANGER, "", true),
            ("team", STRANGER, "71002", true),
            ("team", STRANGER, "", false),
            ("team", MEMBER, "", false),
            ("team/inside", STRANGER, "71002", true),
            ("team/inside", STRANGER, "", false),
        ];
        for (name, uid, groups, expected) in cases {
            assert_eq!(may(&mnt.join(name), uid, groups), expected, "{name} by {uid}, groups `{groups}`");
        }
        // What was changed below since, nobody goes by; and what is shown cannot be changed.
        said(&root, &format!("setfacl -m u:{STRANGER}:r secret; echo done"));
        assert!(!may(&mnt.join("secret"), STRANGER, ""));
        // Where anybody can have made the seal, what gives power is not shown, whoever asks; the rest is.
        let anybody = Fixture::new(&root, &options(kind));
        let seen = said(anybody.path(), attributes);
        assert!(seen.contains("user.note=") && seen.contains("system.posix_acl_access="), "{seen}");
        assert!(!seen.contains("trusted.") && !seen.contains("security."), "{seen}");
        for name in ["trusted.note secret", "security.note team"] {
            let got = Command::new("sh")
                .args(["-c", &format!("getfattr -n {name}")])
                .current_dir(anybody.path())
                .output();
            assert!(!got.unwrap().status.success(), "{name}");
        }
        let refused = Command::new("setfacl").args(["-b", "secret"]).current_dir(mnt).output().unwrap();
        assert!(!refused.status.success());
        assert!(String::from_utf8_lossy(&refused.stderr).contains("Operation not permitted"), "{refused:?}");
    });
}
