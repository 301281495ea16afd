//! A pool with sealed files in it (`--verify=if-sealed`): what is sealed is checked and cannot be written, the rest is as
//! always. Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

use std::fs::{self, File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::{MountOptions, Session, SessionOptions, Transport, TransportKind};
use shuntfs_pool::{Observer, Pool, PoolOptions, SealControl};
use shuntfs_rules::{Nobody, Rules};
use shuntfs_seal::{Progress, SealOptions, seal_tree};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::supervisor::Supervisor;
use shuntfs_testkit::{mounted, skipped};
use shuntfs_verified::{Seals, SealsOptions};

const LIMIT: Duration = Duration::from_secs(60);
const EPERM: Option<i32> = Some(1);
const EIO: Option<i32> = Some(5);
const EACCES: Option<i32> = Some(13);
const ENOENT: Option<i32> = Some(2);

struct Silent;

impl Progress for Silent {
    fn found(&self, _: u64) {}
    fn to_hash(&self, _: u64, _: u64) {}
    fn hashed(&self, _: u64) {}
    fn file_done(&self) {}
}

struct Mount {
    /// Before the folder, so that it is gone first.
    session: Option<Session>,
    seals: Arc<Seals>,
    observer: Observer,
    control: SealControl,
    _supervisor: Supervisor,
    dir: tempfile::TempDir,
}

impl Mount {
    fn new(root: &Path, kind: TransportKind) -> Self {
        Self::under(root, kind, None)
    }

    fn under(root: &Path, kind: TransportKind, rules: Option<&str>) -> Self {
        let rules = rules.map(|text| Rules::parse(text, "rules", None, &Nobody).unwrap());
        let seals = Seals::open(&SealsOptions::new(root)).unwrap();
        let pool = Pool::open_with(&PoolOptions::new(root), rules, Some(Arc::clone(&seals))).unwrap();
        let (observer, control) = (pool.observer(), pool.seal_control().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let options = SessionOptions {
            transport: Transport::Only(kind),
            queues: Some(2),
            depth: 4,
            ..SessionOptions::default()
        };
        let session = Session::mount(Arc::new(pool), dir.path(), &MountOptions::default(), &options).unwrap();
        let supervisor = Supervisor::of(dir.path(), LIMIT).unwrap();
        Self { session: Some(session), seals, observer, control, _supervisor: supervisor, dir }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(self.session.take());
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 7 % 251 + index / 4096).to_le_bytes()[0]).collect()
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

fn each(test: impl Fn(&Lower, &Path, TransportKind)) {
    if fs::metadata("/dev/fuse").is_err() {
        skipped("there is no /dev/fuse");
        return;
    }
    for kind in [TransportKind::Device, TransportKind::Cloned, TransportKind::Uring] {
        if kind == TransportKind::Uring && !mounted::enable_uring() {
            skipped("FUSE over io_uring cannot be turned on");
            continue;
        }
        let Some(lower) = Lower::make(LowerKind::Xfs).unwrap() else { return };
        let root = lower.folder("tree").unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        fs::write(root.join("sealed"), content(400_000)).unwrap();
        fs::write(root.join("sub/also"), content(50_000)).unwrap();
        fs::hard_link(root.join("sealed"), root.join("sub/hard")).unwrap();
        let jobs = NonZeroUsize::new(1).unwrap();
        let options = SealOptions::new(jobs);
        seal_tree(&root, &options, &Silent).unwrap();
        fs::write(root.join("plain"), content(100_000)).unwrap();
        println!("on {kind}");
        test(&lower, &root, kind);
    }
}

#[test]
fn sealed_files_are_checked_and_others_are_as_always() {
    each(|_, root, kind| {
        flip(&root.join("sealed"), 200_000);
        flip(&root.join("plain"), 5000);
        let mount = Mount::new(root, kind);
        let mnt = mount.dir.path();
        assert!(fs::read(mnt.join("sub/also")).unwrap() == content(50_000));
        let file = File::open(mnt.join("sealed")).unwrap();
        let mut room = [0; 4096];
        file.read_exact_at(&mut room, 47 * 4096).unwrap();
        assert_eq!(room[..], content(400_000)[47 * 4096..48 * 4096]);
        assert_eq!(file.read_at(&mut room, 200_000).unwrap_err().raw_os_error(), EIO);
        let hard = File::open(mnt.join("sub/hard")).unwrap();
        assert_eq!(hard.read_at(&mut room, 200_001).unwrap_err().raw_os_error(), EIO, "by another name");
        assert_eq!(mount.seals.facts().bad_blocks, 1);
        assert_eq!(fs::read(mnt.join("plain")).unwrap().len(), 100_000);
        fs::write(mnt.join("plain"), "new").unwrap();
        fs::write(mnt.join("sub/new"), "new").unwrap();
        fs::rename(mnt.join("sub/new"), mnt.join("newer")).unwrap();
        fs::remove_file(mnt.join("newer")).unwrap();
        assert_eq!(fs::read(root.join("plain")).unwrap(), b"new");
        assert!(mount.observer.facts().nodes > 0);
    });
}

/// The defect: a hard link that the manifest does not have was a plain file until somebody happened to look at the sealed name.
#[test]
fn a_hard_link_from_elsewhere_is_protected_from_the_start() {
    each(|_, root, kind| {
        fs::hard_link(root.join("sealed"), root.join("sub/later")).unwrap();
        fs::hard_link(root.join("plain"), root.join("sub/plain")).unwrap();
        flip(&root.join("sealed"), 200_000);
        let read = |path: &Path| fs::read(path).map(drop).map_err(|error| error.raw_os_error());
        let write = |path: &Path| {
            OpenOptions::new().write(true).open(path).map(drop).map_err(|error| error.raw_os_error())
        };
        // Found by LOOKUP, and by a listing with attributes.
        for lists in [false, true] {
            let mount = Mount::new(root, kind);
            let mnt = mount.dir.path();
            if lists {
                let seen = fs::read_dir(mnt.join("sub")).unwrap().map(|entry| entry.unwrap().metadata());
                assert!(seen.into_iter().all(|metadata| metadata.is_ok()));
            }
            assert_eq!(write(&mnt.join("sub/later")), Err(EPERM));
            assert_eq!(read(&mnt.join("sub/later")), Err(EIO));
            let cut = Command::new("truncate").args(["-s", "5"]).arg(mnt.join("sub/later")).status();
            assert!(!cut.unwrap().success());
            assert_eq!(mount.seals.facts().bad_blocks, 1);
            // Its name is none of the manifest's, and goes as any other; files that are not sealed are as always.
            fs::rename(mnt.join("sub/later"), mnt.join("moved")).unwrap();
            assert_eq!(write(&mnt.join("moved")), Err(EPERM));
            fs::rename(mnt.join("moved"), mnt.join("sub/later")).unwrap();
            write(&mnt.join("sub/plain")).unwrap();
            write(&mnt.join("plain")).unwrap();
        }
        // Another file instead of the sealed one: the old inode is nobody's any more.
        fs::remove_file(root.join("sub/hard")).unwrap();
        fs::remove_file(root.join("sealed")).unwrap();
        fs::write(root.join("sealed"), content(400_000)).unwrap();
        fs::hard_link(root.join("sub/later"), root.join("third")).unwrap();
        let mount = Mount::new(root, kind);
        write(&mount.dir.path().join("sub/later")).unwrap();
        assert_eq!(write(&mount.dir.path().join("sealed")), Err(EPERM));
        drop(mount);
        // Without the list, as a store that an earlier version made: by the sealed name first.
        fs::remove_file(root.join("third")).unwrap();
        fs::hard_link(root.join("sub/also"), root.join("third")).unwrap();
        fs::remove_file(root.join(".shunt/inodes")).unwrap();
        let mount = Mount::new(root, kind);
        fs::metadata(mount.dir.path().join("sub/also")).unwrap();
        assert_eq!(write(&mount.dir.path().join("third")), Err(EPERM));
    });
}

#[test]
fn sealed_files_and_their_names_cannot_be_changed() {
    each(|_, root, kind| {
        let mount = Mount::new(root, kind);
        let mnt = mount.dir.path();
        let sealed = mnt.join("sealed");
        let truncate = |path: &Path| OpenOptions::new().read(true).custom_flags(0o1000).open(path).map(drop);
        for outcome in [
            OpenOptions::new().write(true).open(&sealed).map(drop),
            OpenOptions::new().write(true).open(mnt.join("sub/hard")).map(drop),
            truncate(&sealed),
            fs::write(&sealed, "x"),
            fs::remove_file(&sealed),
            fs::rename(&sealed, mnt.join("elsewhere")),
            fs::rename(mnt.join("plain"), &sealed),
            fs::rename(mnt.join("sub"), mnt.join("bus")),
        ]
        .map(|outcome| outcome.map_err(|error| error.raw_os_error()))
        {
            assert_eq!(outcome, Err(EPERM));
        }
        assert!(!Command::new("truncate").args(["-s", "5"]).arg(&sealed).status().unwrap().success());
        // Only what it holds is covered, as with fs-verity.
        let mode: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&sealed, mode).unwrap();
        let mut value = [0; 128];
        let file = File::open(&sealed).unwrap();
        let len = shuntfs_sys::get_xattr(&file, c"user.shuntfs.verity", &mut value).unwrap();
        let mut digest = [0; 64];
        let (_, digest_len) = shuntfs_sys::verity::measure(&file, &mut digest).unwrap();
        let hex: String = digest[..digest_len].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(String::from_utf8_lossy(&value[..len]), format!("sha256:{hex}"));
        assert!(fs::read(&sealed).unwrap() == content(400_000));
        // No other file looks like a sealed one.
        let name = "user.shuntfs.verity";
        let setfattr = |words: &[&str], path: &Path| {
            Command::new("setfattr").args(words).arg(path).output().unwrap().status.success()
        };
        assert!(setfattr(&["-n", name, "-v", "claimed"], &root.join("plain")));
        let plain = mnt.join("plain");
        let mut room = [0; 128];
        let file = File::open(&plain).unwrap();
        assert!(shuntfs_sys::get_xattr(&file, c"user.shuntfs.verity", &mut room).is_err());
        assert!(!setfattr(&["-n", name, "-v", "claimed"], &plain));
        assert!(!setfattr(&["-x", name], &plain));
        assert!(setfattr(&["-n", "user.other", "-v", "free"], &plain));
        let listed = shuntfs_sys::xattr::list_xattr(&file, &mut room).unwrap();
        let listed = String::from_utf8_lossy(&room[..listed]);
        assert!(listed.contains("user.other") && !listed.contains("user.shuntfs"), "{listed}");
        // One that is gone below is not made anew by another hand.
        fs::remove_file(root.join("sub/also")).unwrap();
        drop(mount);
        let mount = Mount::new(root, kind);
        let made = File::create(mount.dir.path().join("sub/also")).map(drop);
        assert_eq!(made.map_err(|error| error.raw_os_error()), Err(EIO));
    });
}

#[test]
fn rules_require_a_seal_or_leave_it_unchecked() {
    const RULES: &str = r#"
[[rule]]
path = ["sealed", "sub/hard", "unchecked"]
verify = "off"

[[rule]]
path = ["sub", "sub/**", "required/**"]
verify = "required"
"#;
    each(|_, root, kind| {
        flip(&root.join("sealed"), 200_000);
        flip(&root.join("sub/also"), 5000);
        fs::write(root.join("sub/new"), "not sealed").unwrap();
        let mount = Mount::under(root, kind, Some(RULES));
        let mnt = mount.dir.path();
        let of = |outcome: std::io::Result<Vec<u8>>| outcome.map_err(|error| error.raw_os_error());
        // Not checked under any of its names, and not written anyway.
        let below = fs::read(root.join("sealed")).unwrap();
        assert!(fs::read(mnt.join("sub/hard")).unwrap() == below);
        assert!(fs::read(mnt.join("sealed")).unwrap() == below);
        let write = OpenOptions::new().write(true).open(mnt.join("sealed")).map(drop);
        assert_eq!(write.map_err(|error| error.raw_os_error()), Err(EPERM));
        assert_eq!(mount.seals.facts().bad_blocks, 0);
        // What must be sealed is checked where it is, and not opened or made where it is not.
        assert_eq!(of(fs::read(mnt.join("sub/also"))), Err(EIO));
        assert_eq!(of(fs::read(mnt.join("sub/new"))), Err(EACCES));
        let made = fs::write(mnt.join("sub/newer"), "x").map_err(|error| error.raw_os_error());
        assert_eq!(made, Err(EACCES));
        assert!(!root.join("sub/newer").exists());
        assert_eq!(fs::read(mnt.join("plain")).unwrap().len(), 100_000);
        assert_eq!(fs::read_dir(mnt.join("sub")).unwrap().count(), 3);
    });
}

#[test]
fn the_store_is_not_reached_through_the_mount() {
    each(|_, root, kind| {
        let mount = Mount::new(root, kind);
        let mnt = mount.dir.path();
        let store = mnt.join(".shunt");
        let errno = |error: std::io::Error| error.raw_os_error();
        assert_eq!(fs::metadata(&store).map(drop).map_err(errno), Err(ENOENT));
        assert_eq!(fs::metadata(store.join("seal")).map(drop).map_err(errno), Err(ENOENT));
        let names = fs::read_dir(mnt).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().all(|name| name != ".shunt"));
        assert_eq!(fs::create_dir(&store).map_err(errno), Err(EPERM));
        assert_eq!(fs::write(&store, "x").map_err(errno), Err(EPERM));
        assert_eq!(fs::rename(mnt.join("plain"), &store).map_err(errno), Err(EPERM));
        // It is one name of one folder.
        fs::write(mnt.join("sub/.shunt"), "x").unwrap();
        assert!(root.join(".shunt/seal").exists());
    });
}

/// Seals the tree as it is now, and has a mount take that.
fn seal_again(mount: &Mount, root: &Path) {
    let jobs = NonZeroUsize::new(1).unwrap();
    let options = SealOptions::new(jobs);
    seal_tree(root, &options, &Silent).unwrap();
    take_again(mount, root);
}

/// Has a mount take the seal that the tree has.
fn take_again(mount: &Mount, root: &Path) {
    mount.control.replace(Seals::open(&SealsOptions::new(root)).unwrap());
}

#[test]
fn another_seal_is_taken_without_mounting_again() {
    each(|_, root, kind| {
        let mount = Mount::new(root, kind);
        let mnt = mount.dir.path();
        let errno = |error: std::io::Error| error.raw_os_error();
        let write = |name: &str| OpenOptions::new().write(true).open(mnt.join(name)).map(drop).map_err(errno);
        for name in ["sealed", "sub/also", "plain"] {
            fs::read(mnt.join(name)).unwrap();
        }
        write("plain").unwrap();
        let (kept, changed) =
            (File::open(mnt.join("sealed")).unwrap(), File::open(mnt.join("sub/also")).unwrap());
        let read = |file: &File, len: usize| {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, 0).map(|()| bytes).map_err(errno)
        };
        assert_eq!(read(&changed, 50_000), Ok(content(50_000)));
        // One file has another content, in place, one is new, one is gone, and what was not sealed is.
        let new: Vec<u8> = content(50_000).iter().map(|byte| byte ^ 0xff).collect();
        fs::write(root.join("sub/also"), &new).unwrap();
        fs::write(root.join("sub/new"), "new").unwrap();
        fs::remove_file(root.join("sub/hard")).unwrap();
        seal_again(&mount, root);
        assert_eq!(fs::read(mnt.join("sub/also")).unwrap(), new, "{kind}: by the new seal");
        assert_eq!(fs::read(mnt.join("sealed")).unwrap(), content(400_000));
        assert_eq!(write("plain"), Err(EPERM), "{kind}: sealed since");
        assert_eq!(write("sub/new"), Err(EPERM));
        assert_eq!(fs::metadata(mnt.join("sub/hard")).map(drop).map_err(errno), Err(ENOENT));
        // What is open keeps what it had: what the kernel has of it, and what is as it was then.
        assert_eq!(read(&kept, 400_000), Ok(content(400_000)));
        let seen = read(&changed, 50_000);
        assert!(
            seen == Ok(content(50_000)) || seen == Err(EIO),
            "{kind}: neither by the old seal nor refused"
        );
        assert_eq!(fs::read(mnt.join("sub/also")).unwrap(), new, "{kind}: whatever the open file has read");
        // And what changes below after that is found.
        drop((kept, changed));
        flip(&root.join("plain"), 5000);
        let plain = fs::read(mnt.join("plain")).map_err(errno);
        assert!(plain == Err(EIO) || plain == Ok(content(100_000)), "{kind}: what was not checked is shown");
        // A seal that leaves a file out leaves it to everybody again.
        fs::remove_dir_all(root.join(".shunt")).unwrap();
        fs::remove_file(root.join("plain")).unwrap();
        seal_again(&mount, root);
        fs::write(mnt.join("plain"), "again").unwrap();
        assert_eq!(fs::read(root.join("plain")).unwrap(), b"again");
    });
}

/// A regression: whoever had a sealed file open could cut it once another seal was taken, until its name was looked up again.
#[test]
fn a_sealed_file_that_is_open_is_not_cut_after_another_seal_is_taken() {
    each(|_, root, kind| {
        let mount = Mount::new(root, kind);
        let file = File::open(mount.dir.path().join("sealed")).unwrap();
        fs::write(root.join("new"), "new").unwrap();
        seal_again(&mount, root);
        // By truncate(2) and the descriptor's link in /proc, so that nothing is opened.
        let link = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let cut = Command::new("perl").args(["-e", "exit !truncate($ARGV[0], 5)", &link]).status();
        assert!(!cut.unwrap().success(), "{kind}");
        assert_eq!(fs::metadata(root.join("sealed")).unwrap().len(), 400_000, "{kind}");
    });
}

#[test]
fn pages_of_an_earlier_seal_are_not_shown_as_what_another_one_has_there() {
    each(|_, root, kind| {
        let other: Vec<u8> = content(400_000).iter().map(|byte| byte ^ 0xff).collect();
        fs::write(root.join("other"), &other).unwrap();
        let mount = Mount::new(root, kind);
        seal_again(&mount, root);
        let mnt = mount.dir.path();
        let errno = |error: std::io::Error| error.raw_os_error();
        let read = |name: &str| fs::read(mnt.join(name)).map_err(errno);
        assert_eq!((read("sealed"), read("other")), (Ok(content(400_000)), Ok(other.clone())));
        // Two files change places before the seal is taken again, with their pages in the kernel's cache.
        let swap = || {
            fs::rename(root.join("sealed"), root.join("aside")).unwrap();
            fs::rename(root.join("other"), root.join("sealed")).unwrap();
            fs::rename(root.join("aside"), root.join("other")).unwrap();
        };
        swap();
        take_again(&mount, root);
        assert_eq!((read("sealed"), read("other")), (Err(EIO), Err(EIO)), "{kind}: each other's pages");
        // Where they were sealed so, each is shown by the name that it has now.
        seal_again(&mount, root);
        assert_eq!((read("sealed"), read("other")), (Ok(other.clone()), Ok(content(400_000))), "{kind}");
        // Nobody looks between two seals, and a file is rewritten in place between them.
        seal_again(&mount, root);
        fs::write(root.join("sealed"), content(400_000)).unwrap();
        seal_again(&mount, root);
        assert_eq!(read("sealed"), Ok(content(400_000)), "{kind}: pages from two seals before");
    });
}
