//! A sealed tree, mounted for real, on each transport, over tmpfs, XFS and ext4. Needs root and /dev/fuse.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use common::{BLOCK, Fixture, content, each, flip, options, seal};
use shuntfs::TransportKind;
use shuntfs_seal::{ManifestError, NodeIndex};
use shuntfs_testkit::lower::LowerKind;
use shuntfs_verity::sign::KeyPair;

const EPERM: i32 = 1;
const EIO: i32 = 5;
const EEXIST: i32 = 17;
const EROFS: i32 = 30;

fn errno(error: &std::io::Error) -> Option<i32> {
    error.raw_os_error()
}

/// A tree with something of everything.
fn furnish(root: &Path) {
    fs::create_dir_all(root.join("deep/er")).unwrap();
    for (name, len) in [
        ("empty", 0),
        ("one", 1),
        ("block", BLOCK),
        ("block+1", BLOCK + 1),
        ("deep/er/some", 300_000),
        ("big", 20_000_003),
    ] {
        fs::write(root.join(name), content(len)).unwrap();
    }
    fs::hard_link(root.join("big"), root.join("deep/hard")).unwrap();
    symlink("deep/er/some", root.join("link")).unwrap();
    fs::set_permissions(root.join("one"), PermissionsExt::from_mode(0o640)).unwrap();
    fs::write(root.join("holes"), b"").unwrap();
    let holes = OpenOptions::new().write(true).open(root.join("holes")).unwrap();
    holes.set_len(3 << 20).unwrap();
    holes.write_all_at(b"in the middle", 1_500_000).unwrap();
}

#[test]
fn everything_that_was_sealed_is_there_and_nothing_else() {
    each(&[LowerKind::Tmpfs, LowerKind::Xfs, LowerKind::Ext4], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        furnish(&root);
        let sums = Command::new("sh")
            .args(["-c", "find . -type f -not -path './.shunt/*' | sort | xargs sha256sum"])
            .current_dir(&root)
            .output()
            .unwrap();
        seal(&root, &[]);
        fs::write(root.join("later"), "not sealed").unwrap();
        let fixture = Fixture::new(&root, &options(kind));
        let mnt = fixture.path();
        let list = lower.path().join("sums");
        fs::write(&list, &sums.stdout).unwrap();
        let checked =
            Command::new("sha256sum").args(["-c", "--quiet"]).arg(&list).current_dir(mnt).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
        assert_eq!(String::from_utf8_lossy(&sums.stdout).lines().count(), 8);

        let mut names: Vec<_> = fs::read_dir(mnt)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["big", "block", "block+1", "deep", "empty", "holes", "link", "one"]);
        for name in ["later", ".shunt", "deep/none"] {
            assert_eq!(fs::metadata(mnt.join(name)).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
        }
        assert_eq!(fs::read_link(mnt.join("link")).unwrap(), Path::new("deep/er/some"));
        for name in ["big", "one", "deep", "holes"] {
            let (above, below) =
                (fs::metadata(mnt.join(name)).unwrap(), fs::metadata(root.join(name)).unwrap());
            assert_eq!(
                (above.mode(), above.uid(), above.gid()),
                (below.mode(), below.uid(), below.gid()),
                "{name}"
            );
            assert_eq!((above.mtime(), above.mtime_nsec()), (below.mtime(), below.mtime_nsec()), "{name}");
            if above.is_file() {
                assert_eq!((above.len(), above.nlink()), (below.len(), below.nlink()), "{name}");
            }
        }
        assert_eq!(
            fs::metadata(mnt.join("big")).unwrap().ino(),
            fs::metadata(mnt.join("deep/hard")).unwrap().ino()
        );
        let facts = fixture.facts();
        assert_eq!((facts.bad_blocks, facts.refused_reads), (0, 0), "{facts:?}");
    });
}

#[test]
fn what_is_sealed_cannot_be_changed_and_what_is_not_cannot_be_made() {
    each(&[LowerKind::Tmpfs], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        furnish(&root);
        seal(&root, &[]);
        let fixture = Fixture::new(&root, &options(kind));
        let mnt = fixture.path();
        let open =
            |options: &mut OpenOptions, name: &str| options.open(mnt.join(name)).map(drop).unwrap_err();
        for refused in [
            open(OpenOptions::new().write(true), "big"),
            open(OpenOptions::new().read(true).append(true), "big"),
            open(OpenOptions::new().write(true).truncate(true), "one"),
            open(OpenOptions::new().read(true).custom_flags(0o1000), "one"),
            fs::remove_file(mnt.join("one")).unwrap_err(),
            fs::rename(mnt.join("one"), mnt.join("block")).unwrap_err(),
            fs::rename(mnt.join("one"), mnt.join("new")).unwrap_err(),
            fs::set_permissions(mnt.join("one"), PermissionsExt::from_mode(0o777)).unwrap_err(),
            fs::remove_dir_all(mnt.join("deep/er")).unwrap_err(),
        ] {
            assert_eq!(errno(&refused), Some(EPERM), "{refused}");
        }
        for refused in [
            File::create(mnt.join("new")).map(drop).unwrap_err(),
            fs::create_dir(mnt.join("new")).unwrap_err(),
            symlink("one", mnt.join("new")).unwrap_err(),
            fs::hard_link(mnt.join("one"), mnt.join("new")).unwrap_err(),
        ] {
            assert_eq!(errno(&refused), Some(EROFS), "{refused}");
        }
        assert_eq!(fs::read(root.join("one")).unwrap(), content(1));
    });
}

/// A bad block is EIO, exactly: each read that touches it, and no other.
#[test]
fn a_flipped_bit_is_refused_where_it_is() {
    each(&[LowerKind::Tmpfs, LowerKind::Xfs], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        let len = 3 * 1_000_003;
        fs::write(root.join("file"), content(len)).unwrap();
        seal(&root, &[]);
        flip(&root.join("file"), 100 * BLOCK as u64 + 77);
        let fixture = Fixture::new(&root, &options(kind));
        let path = fixture.path().join("file");
        let whole = content(len);
        for direct in [false, true] {
            let flags = if direct { 0o40000 } else { 0 };
            let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
            let mut room = vec![0; BLOCK];
            for block in [0, 1, 98, 99, 101, 102, len / BLOCK] {
                let offset = block * BLOCK;
                let read = file.read_at(&mut room, offset as u64).unwrap();
                assert_eq!(room[..read], whole[offset..offset + read], "block {block}, direct {direct}");
            }
            // One byte of it, its first, its last; reads that begin before it, end in it, and span it.
            let wide = 4 * BLOCK;
            for (offset, len) in
                [(100 * BLOCK + 5, 1), (100 * BLOCK, 1), (101 * BLOCK - 1, 1), (100 * BLOCK, BLOCK)]
            {
                let refused = file.read_at(&mut vec![0; len], offset as u64).unwrap_err();
                assert_eq!(errno(&refused), Some(EIO), "{len} at {offset}, direct {direct}");
            }
            let outcome = file.read_at(&mut vec![0; wide], 98 * BLOCK as u64);
            match outcome {
                // Through the page cache: what comes before it.
                Ok(read) => assert_eq!(read, 2 * BLOCK, "direct {direct}"),
                Err(error) => assert_eq!(errno(&error), Some(EIO), "direct {direct}"),
            }
        }
        let facts = fixture.facts();
        assert_eq!(facts.bad_blocks, 1, "said once: {facts:?}");
        assert!(facts.refused_reads >= 8, "{facts:?}");
        // Nobody takes less than the whole for the whole.
        assert!(fs::read(&path).is_err());
        let copied = Command::new("cp").arg(&path).arg(lower.path().join("copy")).output().unwrap();
        assert!(!copied.status.success());
        assert_eq!(fs::metadata(&path).unwrap().len(), len as u64, "the kernel keeps its size");
    });
}

/// Pages of a mapping: a store of the neighbour's is fine, the bad page ends whoever touches it by SIGBUS.
#[test]
fn a_mapping_fails_on_the_bad_page_alone() {
    each(&[LowerKind::Tmpfs], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        fs::write(root.join("file"), content(50 * BLOCK)).unwrap();
        seal(&root, &[]);
        flip(&root.join("file"), 10 * BLOCK as u64);
        let fixture = Fixture::new(&root, &options(kind));
        let touch = |page: usize| {
            let script = "import mmap,sys\nf=open(sys.argv[1],'rb')\nm=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n\
                          sys.stdout.write(str(m[int(sys.argv[2])]))";
            let out = Command::new("python3")
                .args(["-c", script])
                .arg(fixture.path().join("file"))
                .arg((page * BLOCK + 3).to_string())
                .output()
                .unwrap();
            (std::os::unix::process::ExitStatusExt::signal(&out.status), out.stdout)
        };
        let whole = content(50 * BLOCK);
        for page in [9, 11, 0, 49] {
            let byte = whole[page * BLOCK + 3].to_string().into_bytes();
            assert_eq!(touch(page), (None, byte), "page {page}");
        }
        assert_eq!(touch(10).0, Some(7), "SIGBUS");
    });
}

#[test]
fn a_truncated_file_is_refused_where_it_ends_and_a_grown_one_shows_what_was_sealed() {
    each(&[LowerKind::Tmpfs, LowerKind::Ext4], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        for name in ["short", "long", "gone", "pipe", "swapped"] {
            fs::write(root.join(name), content(10 * BLOCK + 7)).unwrap();
        }
        seal(&root, &[]);
        let change = |name: &str, len: usize| {
            OpenOptions::new().write(true).open(root.join(name)).unwrap().set_len(len as u64).unwrap();
        };
        change("short", 5 * BLOCK + 100);
        change("long", 50 * BLOCK);
        fs::remove_file(root.join("gone")).unwrap();
        fs::remove_file(root.join("pipe")).unwrap();
        assert!(Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
        fs::remove_file(root.join("swapped")).unwrap();
        symlink("long", root.join("swapped")).unwrap();
        let fixture = Fixture::new(&root, &options(kind));
        let mnt = fixture.path();
        let whole = content(10 * BLOCK + 7);
        let short = File::open(mnt.join("short")).unwrap();
        assert_eq!(short.metadata().unwrap().len(), 10 * BLOCK as u64 + 7, "the size is the sealed one");
        let mut room = vec![0; 5 * BLOCK];
        short.read_exact_at(&mut room, 0).unwrap();
        assert!(room == whole[..5 * BLOCK]);
        for offset in [5 * BLOCK, 5 * BLOCK + 50, 7 * BLOCK, 10 * BLOCK + 6] {
            let refused = short.read_at(&mut [0], offset as u64).unwrap_err();
            assert_eq!(errno(&refused), Some(EIO), "at {offset}");
        }
        assert!(fs::read(mnt.join("long")).unwrap() == whole);
        for name in ["gone", "pipe", "swapped"] {
            assert!(fs::metadata(mnt.join(name)).unwrap().is_file(), "{name}");
            assert_eq!(errno(&File::open(mnt.join(name)).unwrap_err()), Some(EIO), "{name}");
        }
        assert_eq!(fixture.facts().short_files, 1);
    });
}

/// What changes below after the kernel has the pages is caught when they are read anew, and so is its repair.
#[test]
fn a_change_behind_the_mount_is_caught_and_a_repair_is_seen() {
    each(&[LowerKind::Tmpfs], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        let whole = content(3 << 20);
        fs::write(root.join("file"), &whole).unwrap();
        seal(&root, &[]);
        let fixture = Fixture::new(&root, &options(kind));
        let path = fixture.path().join("file");
        assert!(fs::read(&path).unwrap() == whole);
        let reads = fixture.facts().reads;
        assert!(fs::read(&path).unwrap() == whole);
        assert_eq!(fixture.facts().reads, reads, "warm reads come from the page cache");
        flip(&root.join("file"), 2_000_000);
        assert!(fs::read(&path).unwrap() == whole, "what the kernel has was checked");
        shuntfs_sys::data::forget_cached(File::open(&path).unwrap()).unwrap();
        assert_eq!(errno(&fs::read(&path).unwrap_err()), Some(EIO));
        // In place, and by another file in its place.
        flip(&root.join("file"), 2_000_000);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(fs::read(&path).unwrap() == whole);
        flip(&root.join("file"), 5);
        shuntfs_sys::data::forget_cached(File::open(&path).unwrap()).unwrap();
        assert_eq!(errno(&fs::read(&path).unwrap_err()), Some(EIO));
        fs::write(root.join("good"), &whole).unwrap();
        fs::rename(root.join("good"), root.join("file")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(fs::read(&path).unwrap() == whole);
    });
}

#[test]
fn every_way_to_read_gives_the_same_bytes() {
    each(&[LowerKind::Tmpfs, LowerKind::Xfs], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        let whole = content(5_000_011);
        fs::write(root.join("file"), &whole).unwrap();
        seal(&root, &[]);
        let fixture = Fixture::new(&root, &options(kind));
        let path = fixture.path().join("file");
        let mut random = shuntfs_testkit::seeded::Random::new(3);
        for flags in [0, 0o40000] {
            let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
            for _ in 0..200 {
                let offset = random.below(whole.len() + 10_000);
                let mut room = vec![0; 1 + random.below(1_200_000)];
                let read = file.read_at(&mut room, offset as u64).unwrap();
                let expected = &whole[offset.min(whole.len())..(offset + room.len()).min(whole.len())];
                assert!(
                    room[..read] == expected[..read] && (read > 0 || expected.is_empty()),
                    "{flags} {offset}"
                );
            }
        }
        let copy = lower.path().join("copy");
        let (mut from, mut to) = (File::open(&path).unwrap(), File::create(&copy).unwrap());
        // sendfile or splice, as the kernel likes.
        std::io::copy(&mut from, &mut to).unwrap();
        assert!(fs::read(&copy).unwrap() == whole);
        let pipe =
            Command::new("sh").arg("-c").arg("cat \"$0\" | tail -c 100000").arg(&path).output().unwrap();
        assert!(pipe.stdout == whole[whole.len() - 100_000..]);
        from.seek(SeekFrom::End(-7)).unwrap();
        let mut end = Vec::new();
        from.read_to_end(&mut end).unwrap();
        assert_eq!(end, whole[whole.len() - 7..]);
    });
}

#[test]
fn many_readers_at_once_read_the_tree_once() {
    each(&[LowerKind::Xfs], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        let whole = content(64 << 20);
        fs::write(root.join("file"), &whole).unwrap();
        seal(&root, &[]);
        let fixture = Fixture::new(&root, &options(kind));
        let path = fixture.path().join("file");
        std::thread::scope(|scope| {
            for number in 0..8_u64 {
                let (path, whole) = (&path, &whole);
                scope.spawn(move || {
                    let mut random = shuntfs_testkit::seeded::Random::new(number);
                    let file = File::open(path).unwrap();
                    for _ in 0..60 {
                        let offset = random.below(whole.len() - 300_000);
                        let mut room = vec![0; 1 + random.below(300_000)];
                        file.read_exact_at(&mut room, offset as u64).unwrap();
                        assert!(room == whole[offset..offset + room.len()]);
                    }
                });
            }
        });
        let facts = fixture.facts();
        assert!(facts.tree_blocks <= 130, "128 leaves, the root, and one of another file: {facts:?}");
    });
}

/// Counted, not timed: the kernel's own readahead does not get in the way of ours.
#[test]
fn the_tree_costs_a_read_for_four_mebibytes_or_less() {
    each(&[LowerKind::Xfs], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        let len = 100 << 20;
        fs::write(root.join("file"), content(len)).unwrap();
        seal(&root, &[]);
        let fixture = Fixture::new(&root, &options(kind));
        let mut file = File::open(fixture.path().join("file")).unwrap();
        assert_eq!(std::io::copy(&mut file, &mut std::io::sink()).unwrap(), len as u64);
        let facts = fixture.facts();
        assert!(facts.tree_reads <= (len as u64).div_ceil(4 << 20), "{facts:?}");
        assert!(facts.tree_reads_ahead > 0, "{facts:?}");
        // On rings a READ that another one overtook may be checked once more, where it was checked ahead.
        let again = if kind == TransportKind::Uring { 2 << 20 } else { 0 };
        let blocks = (len / BLOCK) as u64..=((len + again) / BLOCK) as u64;
        assert!(blocks.contains(&facts.data_blocks), "each block once: {facts:?}");
    });
}

#[test]
fn random_reads_cost_no_more_than_the_kernels_own() {
    each(&[LowerKind::Xfs], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        let blocks = 64_000;
        let file = File::create(root.join("file")).unwrap();
        file.set_len(blocks as u64 * BLOCK as u64).unwrap();
        drop(file);
        seal(&root, &[]);
        let fixture = Fixture::new(&root, &options(kind));
        let file = File::open(fixture.path().join("file")).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let mut random = shuntfs_testkit::seeded::Random::new(11);
        for _ in 0..500 {
            file.read_exact_at(&mut vec![0; BLOCK], (random.below(blocks) * BLOCK) as u64).unwrap();
        }
        let facts = fixture.facts();
        assert!(facts.tree_reads <= 320, "0.65 a read is the kernel's: {facts:?}");
    });
}

#[test]
fn the_digest_is_shown() {
    each(&[LowerKind::Tmpfs], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        furnish(&root);
        seal(&root, &[]);
        let fixture = Fixture::new(&root, &options(kind));
        let path = fixture.path().join("big");
        let run = |command: &mut Command| {
            let out = command.output().unwrap();
            assert!(out.status.success(), "{out:?}");
            String::from_utf8(out.stdout).unwrap()
        };
        let file = File::open(&path).unwrap();
        let mut value = [0; 128];
        let len = shuntfs_sys::get_xattr(&file, c"user.shuntfs.verity", &mut value).unwrap();
        let digest = String::from_utf8(value[..len].to_vec()).unwrap();
        let below = run(Command::new("fsverity").arg("digest").arg(root.join("big")));
        assert_eq!(below.split(' ').next(), Some(digest.as_str()));
        let mut room = [0; 64];
        let (algorithm, len) = shuntfs_sys::verity::measure(&file, &mut room).unwrap();
        let hex: String = room[..len].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((algorithm, format!("sha256:{hex}")), (1, digest));
        assert!(run(Command::new("lsattr").arg(&path)).split(' ').next().unwrap().contains('V'));
        let enable = shuntfs_sys::verity::Enable { algorithm: 1, block_size: 4096, salt: &[] };
        let refused = shuntfs_sys::verity::enable(&file, &enable).unwrap_err();
        assert_eq!(refused.raw_os_error(), EEXIST);
    });
}

/// Where each part of a seal is spoiled, it is refused there: at the mount, or at the first use.
#[test]
fn every_part_of_a_seal_is_checked() {
    let Some(lower) = common::lower(LowerKind::Tmpfs) else { return };
    let key = KeyPair::generate().unwrap();
    let other = KeyPair::generate().unwrap();
    let make = |name: &str| {
        let root = lower.folder(name).unwrap();
        fs::write(root.join("file"), content(100 * BLOCK)).unwrap();
        fs::write(root.join("other"), content(3)).unwrap();
        seal(&root, &[&key]);
        root
    };
    let root = make("good");
    assert!(common::open(&root, Some(&[&key])).is_ok());
    assert!(common::open(&root, Some(&[&other, &key])).is_ok());
    let untrusted = common::open(&root, Some(&[&other])).unwrap_err().to_string();
    assert!(untrusted.contains("not by a trusted key"), "{untrusted}");

    let seal_len = fs::metadata(root.join(".shunt/seal")).unwrap().len();
    for place in 0..seal_len {
        flip(&root.join(".shunt/seal"), place);
        assert!(common::open(&root, Some(&[&key])).is_err(), "byte {place} of the seal");
        flip(&root.join(".shunt/seal"), place);
    }
    for folder in ["manifests", "trees"] {
        let root = make(folder);
        let mut refused = 0;
        for file in common::files(&root.join(".shunt").join(folder)) {
            let len = fs::metadata(&file).unwrap().len();
            for place in (0..len).step_by(61) {
                flip(&file, place);
                refused += u32::from(common::uses(&root, &key).is_err());
                flip(&file, place);
            }
        }
        assert!(common::uses(&root, &key).is_ok());
        assert!(refused > 10, "{folder}: {refused}");
    }
    let mut unsigned = fs::read(root.join(".shunt/seal")).unwrap();
    unsigned.truncate(20);
    OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(root.join(".shunt/seal"))
        .unwrap()
        .write_all(&unsigned)
        .unwrap();
    assert!(common::open(&root, None).is_err(), "a torn seal");
}

/// Whoever holds a trusted key may still have been deceived: a name that leads out of the tree leads nowhere.
#[test]
fn a_manifest_that_tries_to_leave_the_tree_is_refused() {
    let Some(lower) = common::lower(LowerKind::Tmpfs) else { return };
    fs::write(lower.path().join("outside"), b"").unwrap();
    let names: [&[u8]; 6] = [b"..", b".", b"../outside", b"x/../../outside", b"/etc/hostname", b"nul\0"];
    for (number, name) in names.into_iter().enumerate() {
        let root = lower.folder(&format!("tree{number}")).unwrap();
        fs::write(root.join("before"), b"").unwrap();
        common::made::hostile(&root, name);
        let seals = common::open(&root, None).unwrap();
        let shown = String::from_utf8_lossy(name);
        let last = seals.manifest().entries(NodeIndex::ROOT, 0).unwrap().last().unwrap();
        assert!(matches!(last, Err(ManifestError::Malformed(_))), "{shown}: {last:?}");
        let fixture = Fixture::of(seals, &options(TransportKind::Device));
        // The search for the good name meets the other one.
        let searched = fs::read(fixture.path().join("before")).unwrap_err();
        assert_eq!(errno(&searched), Some(EIO), "{shown}");
        let listed = fs::read_dir(fixture.path()).and_then(|names| names.collect::<Result<Vec<_>, _>>());
        assert_eq!(errno(&listed.unwrap_err()), Some(EIO), "{shown}");
        // By the number of the node, as who has a handle might ask.
        let node = fixture.seals().manifest().node(NodeIndex::from_inode(3).unwrap()).unwrap();
        assert!(fixture.seals().file(&node).is_err(), "{shown}");
    }
}

#[test]
fn a_manifest_of_a_million_files_opens_at_once() {
    let Some(lower) = common::lower(LowerKind::Tmpfs) else { return };
    let root = lower.folder("tree").unwrap();
    common::made::names(&root, 1000, 1000);
    let seals = common::open(&root, None).unwrap();
    assert_eq!(seals.manifest().node_count(), 1_001_001);
    assert!(seals.manifest().reads() <= 5, "{} blocks were read to open it", seals.manifest().reads());
    let fixture = Fixture::of(seals, &options(TransportKind::Device));
    let name = |folder: usize, file: usize| format!("folder {folder:04}/a file of some name {file:04}");
    let names = fs::read_dir(fixture.path().join("folder 0050")).unwrap();
    assert_eq!(
        names.map(|name| name.unwrap().file_name()).collect::<std::collections::HashSet<_>>().len(),
        1000
    );
    let before = fixture.seals().manifest().reads();
    assert_eq!(fs::metadata(fixture.path().join(name(777, 123))).unwrap().len(), 0);
    assert!(fs::metadata(fixture.path().join(name(777, 1000))).is_err());
    let reads = fixture.seals().manifest().reads() - before;
    assert!(reads <= 80, "{reads} blocks for two names");
    let mut random = shuntfs_testkit::seeded::Random::new(23);
    for _ in 0..2000 {
        let path = fixture.path().join(name(random.below(1000), random.below(1000)));
        assert!(fs::metadata(path).unwrap().is_file());
    }
}

/// Arithmetic that wraps at 2^32 blocks, or at 2^43 bytes, would read or check something else.
#[test]
fn files_beyond_8_tib_are_checked_at_any_place() {
    const TIB: u64 = 1 << 40;
    let len = 9 * TIB + 5;
    let blocks = len.div_ceil(BLOCK as u64);
    let wanted =
        [0, (4 * TIB) / BLOCK as u64, 8 * TIB / BLOCK as u64 - 1, 8 * TIB / BLOCK as u64, blocks - 1];
    each(&[LowerKind::Tmpfs], |kind, lower| {
        let root = lower.folder("tree").unwrap();
        common::made::holes(&root, len, &wanted);
        let fixture = Fixture::new(&root, &options(kind));
        let file = File::open(fixture.path().join("holes")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), len);
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        for block in wanted {
            let offset = block * BLOCK as u64;
            let mut room = vec![1; BLOCK];
            let read = file.read_at(&mut room, offset).unwrap();
            assert_eq!(read as u64, (len - offset).min(BLOCK as u64), "block {block}");
            assert!(room[..read].iter().all(|byte| *byte == 0));
        }
        assert_eq!(file.read_at(&mut [0], len).unwrap(), 0);
        // A byte that is none of the holes', beyond 2^43, is found there and only there.
        let below = OpenOptions::new().write(true).open(root.join("holes")).unwrap();
        below.write_all_at(b"x", 8 * TIB + 7).unwrap();
        shuntfs_sys::data::forget_cached(&file).unwrap();
        let refused = file.read_at(&mut [0], 8 * TIB).unwrap_err();
        assert_eq!(errno(&refused), Some(EIO));
        file.read_exact_at(&mut [0; 7], 8 * TIB - 7).unwrap();
        file.read_exact_at(&mut [0; 5], 9 * TIB).unwrap();
        assert_eq!(fixture.facts().bad_blocks, 1);
        // No tree is there for the others: an error, and never bytes that nobody checked.
        let refused = file.read_at(&mut [0], TIB).unwrap_err();
        assert_eq!(errno(&refused), Some(EIO));
    });
}
