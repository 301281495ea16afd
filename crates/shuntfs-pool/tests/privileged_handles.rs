//! Handles of files on a pool: what they hold over, and what nobody may reach by one. Needs root and /dev/fuse.
//!
//! Every mount has a supervisor outside of this process that aborts it, so that nothing hangs for longer.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod mounted;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use shuntfs::{MountOptions, Opcode, SessionOptions, Transport, TransportKind};
use shuntfs_pool::{Fleeting, Pool, PoolError, PoolOptions};
use shuntfs_sys::{FileHandle, OsError, handle_of};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::enable_uring;
use shuntfs_testkit::{say, serial, skipped};

use mounted::Mounted;
use mounted::bound::Bound;
use mounted::handles::{O_DIRECTORY, O_PATH, fd_path};
use mounted::users::{ALICE, rules};

/// `None` where nothing can be mounted, and then the reason was said.
fn mount(pool: Pool, kind: TransportKind) -> Option<Mounted> {
    let how = MountOptions { allow_other: true, ..MountOptions::default() };
    let transport = Transport::Only(kind);
    let options = SessionOptions { transport, queues: Some(2), depth: 8, ..SessionOptions::default() };
    Mounted::with(pool, Vec::new(), &how, &options)
}

fn with_handles(source: &Path) -> Pool {
    Pool::open(&PoolOptions { handles: true, ..PoolOptions::new(source) }).unwrap()
}

fn transports() -> impl Iterator<Item = TransportKind> {
    let all = [TransportKind::Device, TransportKind::Cloned, TransportKind::Uring];
    all.into_iter().filter(|kind| *kind != TransportKind::Uring || enable_uring())
}

/// What an NFS server needs.
#[test]
fn handles_hold_over_the_kernels_memory_and_the_mount() {
    let _serial = serial();
    for kind in [LowerKind::Tmpfs, LowerKind::Ext4, LowerKind::Xfs, LowerKind::Btrfs] {
        for transport in transports() {
            let Some(lower) = Lower::make(kind).unwrap() else { break };
            holds(&lower, kind, transport);
            say(&format!("handles of files on {kind} hold on {transport}"));
        }
    }
}

fn holds(lower: &Lower, kind: LowerKind, transport: TransportKind) {
    let Some(first) = mount(with_handles(lower.path()), transport) else { return };
    fs::create_dir_all(first.at("a/b")).unwrap();
    fs::create_dir(first.at("tree")).unwrap();
    for name in
        ["a/b/file", "a/renamed", "removed", "removed later", "linked", "tree/leaf", "replaced", "new"]
    {
        fs::write(first.at(name), name).unwrap();
    }
    fs::hard_link(first.at("linked"), first.at("a/second")).unwrap();
    let [file, renamed, removed, later] =
        ["a/b/file", "a/renamed", "removed", "removed later"].map(|name| first.handle(name));
    let [linked, second, tree, leaf, replaced] =
        ["linked", "a/second", "tree", "tree/leaf", "replaced"].map(|name| first.handle(name));
    assert_eq!(linked, second, "names of one file");
    let folder = first.handle("a/b");
    let all = |mounted: &Mounted| {
        assert_eq!(mounted.text(&file).as_deref(), Ok("a/b/file"));
        assert_eq!(mounted.text(&renamed).as_deref(), Ok("a/renamed"));
        assert_eq!(mounted.text(&removed), Err(OsError::STALE));
        assert_eq!(mounted.text(&replaced), Err(OsError::STALE));
        assert_eq!(mounted.text(&linked).as_deref(), Ok("linked"), "by its other name");
        assert_eq!(mounted.text(&leaf).as_deref(), Ok("tree/leaf"), "in a folder that moved");
        let moved = mounted.by_handle(&tree, O_DIRECTORY).unwrap();
        assert_eq!(fs::read_link(fd_path(&moved)).unwrap(), mounted.at("a/tree"));
        let opened = mounted.by_handle(&folder, O_DIRECTORY).unwrap();
        let listed: Vec<_> =
            fs::read_dir(fd_path(&opened)).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(
            (listed, fs::read_link(fd_path(&opened)).unwrap()),
            (vec!["file".into()], mounted.at("a/b"))
        );
    };
    // As the kernel remembers them.
    fs::rename(first.at("a/renamed"), first.at("a/b/other")).unwrap();
    fs::rename(first.at("a/b/other"), first.at("other")).unwrap();
    fs::remove_file(first.at("removed")).unwrap();
    fs::remove_file(first.at("linked")).unwrap();
    fs::rename(first.at("tree"), first.at("a/tree")).unwrap();
    fs::rename(first.at("new"), first.at("replaced")).unwrap();
    all(&first);
    // When it does not.
    first.forget_all();
    let lookups = || first.session.status().requests(Opcode::Lookup);
    let before = lookups();
    assert_eq!(first.text(&file).as_deref(), Ok("a/b/file"));
    assert_eq!(lookups(), before + 1, "by its number alone");
    all(&first);
    assert_eq!(first.handle("a/b/file"), file, "looked up by its name it is the same node");
    assert_eq!(fs::metadata(first.at("a/b/file")).unwrap().nlink(), 1);
    // Removed while nobody remembers it, and its inode given to others.
    first.forget_all();
    let is_given_again = replace(lower.path(), "removed later", first.top.path());
    assert!(is_given_again || kind != LowerKind::Ext4, "ext4 gives inodes again");
    assert_eq!(first.text(&later), Err(OsError::STALE));
    all(&first);
    first.end();
    // In another mount.
    let second = mount(with_handles(lower.path()), transport).unwrap();
    // In another order, so that counted numbers would lead to other files.
    assert!(second.at("new 7").exists());
    all(&second);
    assert_eq!(second.text(&later), Err(OsError::STALE));
    assert_eq!(second.handle("a/b/file"), file);
    fs::write(second.at("a/b/file"), "changed").unwrap();
    assert_eq!(second.text(&file).as_deref(), Ok("changed"));
    fs::write(second.at("a/b/file"), "a/b/file").unwrap();
    fs::remove_file(second.at("a/second")).unwrap();
    assert_eq!(second.text(&linked), Err(OsError::STALE), "its last name is gone");
    second.forget_all();
    assert_eq!(second.text(&linked), Err(OsError::STALE));
    assert_eq!(handle_of(File::open(second.top.path()).unwrap()).unwrap().0.bytes()[8..], [0; 4]);
    second.end();
}

/// Removes a file below, and makes new ones by the mount; whether its inode was given to one of them.
fn replace(lower: &Path, name: &str, mnt: &Path) -> bool {
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let removed = inode(&lower.join(name));
    fs::remove_file(lower.join(name)).unwrap();
    let mut is_given_again = false;
    for number in 0..50 {
        let name = format!("new {number}");
        fs::write(mnt.join(&name), "new").unwrap();
        is_given_again |= inode(&lower.join(&name)) == removed;
    }
    is_given_again
}

/// Numbers can be made up: they lead to files that are shown, or nowhere.
#[test]
fn made_up_handles_lead_to_files_that_are_shown_or_nowhere() {
    let _serial = serial();
    let Some(lower) = Lower::make(LowerKind::Ext4).unwrap() else { return };
    let Some(transport) = transports().next() else { return };
    fs::write(lower.path().join("shown"), "shown").unwrap();
    let nameless = lower.path().join("nameless");
    fs::write(&nameless, "nameless").unwrap();
    let open = File::open(&nameless).unwrap();
    fs::remove_file(&nameless).unwrap();
    let Some(mounted) = mount(with_handles(lower.path()), transport) else { return };
    let like = mounted.handle("shown");
    let (kind, shown) = (like.kind(), fs::metadata(lower.path().join("shown")).unwrap().ino());
    let number = |id: u64, generation: u32| {
        let half = |shift: u32| u32::try_from(id >> shift & u64::from(u32::MAX)).unwrap();
        let halves = [half(32), half(0), generation];
        let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_ne_bytes()).collect();
        FileHandle::new(kind, &bytes).unwrap()
    };
    let lower_generation = |file: &File| {
        let (handle, _) = handle_of(file).unwrap();
        handle.generation(shuntfs_sys::FsMagic::EXT).unwrap()
    };
    let of = |inode: u64, generation: u32| {
        number(1 << 63 | u64::from(generation & 0xff_ffff) << 39 | inode, generation)
    };
    let generation = lower_generation(&File::open(lower.path().join("shown")).unwrap());
    assert_eq!(of(shown, generation), like);
    assert_eq!(mounted.text(&of(shown, generation)).as_deref(), Ok("shown"));
    mounted.forget_all();
    // Another generation, or half of the right one, is not the file's.
    for wrong in [0, generation ^ 1, generation ^ 1 << 31] {
        assert_eq!(mounted.text(&of(shown, wrong)), Err(OsError::STALE), "{wrong}");
    }
    // The journal, the table of quotas, and other inodes of the file system's own; the root, which has another number.
    for inode in 0..11 {
        for generation in [0, 1, generation] {
            let got = mounted.by_handle(&of(inode, generation), O_PATH);
            assert_eq!(got.err(), Some(OsError::STALE), "inode {inode}");
        }
    }
    // A file that somebody has open and that has no name.
    let inode = open.metadata().unwrap().ino();
    assert_eq!(mounted.text(&of(inode, lower_generation(&open))), Err(OsError::STALE));
    // Counted numbers, and numbers of nothing.
    for id in (2..100).chain([u64::MAX, 1 << 62, 1 << 63]) {
        for generation in [0, generation, u32::MAX] {
            assert_eq!(
                mounted.by_handle(&number(id, generation), O_PATH).err(),
                Some(OsError::STALE),
                "{id}"
            );
        }
    }
    assert_eq!(mounted.text(&like).as_deref(), Ok("shown"));
    mounted.end();
}

/// What a handle could reach that is not shown is looked for at the mount, and at each handle.
#[test]
fn where_a_handle_could_lead_out_there_are_none_that_last() {
    let _serial = serial();
    let Some(lower) = Lower::make(LowerKind::Tmpfs).unwrap() else { return };
    let folder = lower.folder("folder").unwrap();
    let handles = |source: &Path| PoolOptions { handles: true, ..PoolOptions::new(source) };
    let refused = |source: &Path, expected| match Pool::open(&handles(source)) {
        Err(PoolError::Handles { why, .. }) => assert_eq!(why, expected),
        other => panic!("{other:?}"),
    };
    refused(&folder, Fleeting::PartOfMore);
    let place = tempfile::tempdir().unwrap();
    let bound = Bound::new(&folder, place.path());
    refused(place.path(), Fleeting::PartOfMore);
    bound.end();
    let bound = Bound::new(place.path(), &folder);
    refused(lower.path(), Fleeting::Covered);
    bound.end();
    refused(Path::new("/proc"), Fleeting::Below);
    match Pool::open_with_rules(&handles(lower.path()), rules("[[rule]]\nbasename = 'x'\nhide = true\n")) {
        Err(error @ PoolError::Handles { why: Fleeting::Names, .. }) => {
            assert!(error.to_string().contains("go by names"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // Covered later: what the kernel remembers is there, and nothing else is found.
    fs::write(lower.path().join("file"), "file").unwrap();
    let Some(mounted) = mount(with_handles(lower.path()), transports().next().unwrap()) else { return };
    let handle = mounted.handle("file");
    let bound = Bound::new(place.path(), &folder);
    mounted.forget_all();
    assert_eq!(mounted.text(&handle), Err(OsError::STALE));
    bound.end();
    assert_eq!(mounted.text(&handle).as_deref(), Ok("file"));
    mounted.end();
}

/// Two mounts count their nodes alike, and a handle of the first would be one of whatever has its number in the second.
#[test]
fn without_the_option_a_handle_is_of_its_own_mount() {
    let _serial = serial();
    let source = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        fs::write(source.path().join(name), name).unwrap();
    }
    for transport in transports() {
        let pool = || Pool::open(&PoolOptions::new(source.path())).unwrap();
        let Some(first) = mount(pool(), transport) else { return };
        let handle = first.handle("one");
        assert_eq!(first.text(&handle).as_deref(), Ok("one"));
        first.end();
        let second = mount(pool(), transport).unwrap();
        let other = second.handle("two");
        assert_eq!(handle.bytes()[..8], other.bytes()[..8], "the same number");
        assert_eq!(second.text(&handle), Err(OsError::STALE));
        assert_eq!(second.text(&other).as_deref(), Ok("two"));
        second.end();
    }
}

/// A file that is hidden from some is known to the kernel when others have met it. Who may open handles could then guess the number of
/// its node, and see what it is.
#[test]
fn under_rules_there_are_no_handles_to_guess() {
    let _serial = serial();
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("secret"), "secret").unwrap();
    fs::set_permissions(source.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let hidden = "[[rule]]\npath = 'secret'\nuid = 0\nhide = true\n";
    for transport in transports() {
        let pool = Pool::open_with_rules(&PoolOptions::new(source.path()), rules(hidden)).unwrap();
        let Some(mounted) = mount(pool, transport) else { return };
        assert!(File::open(mounted.at("secret")).is_err(), "hidden from who runs this");
        assert_eq!(mounted.says(ALICE, "cat secret"), "secret");
        if mounted.session.negotiated().minor < 40 {
            skipped("this kernel gives handles of everything");
            return;
        }
        let mut reached = Vec::new();
        for id in 2..200_u32 {
            let bytes: Vec<u8> = [0, id, 0].iter().flat_map(|half| half.to_ne_bytes()).collect();
            let guess = FileHandle::new(0x81, &bytes).unwrap();
            reached.extend(mounted.by_handle(&guess, O_PATH).map(|file| file.metadata().unwrap().len()));
        }
        assert_eq!(reached, [0; 0], "lengths of files");
        let root = File::open(mounted.top.path()).unwrap();
        assert_eq!(handle_of(&root).err(), Some(OsError::OPNOTSUPP));
        drop(root);
        mounted.end();
    }
}
