//! A pool on the fake kernel: without a mount, without /dev/fuse, and with the kernel's books checked.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod fake;

use std::fs;
use std::path::Path;

use fake::{Fixture, rules, settings};
use shuntfs::{Errno, Opcode, OpenFlags, TransportKind};
use shuntfs_fake::{FopenFlags, O_APPEND, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, Settings};
use shuntfs_pool::{Cache, Calls, FlowWish, Pool, PoolOptions};
use shuntfs_sys::OsError;

/// What calls from a seed name.
const WANDERED: [&str; 4] = ["a", "b", "c", "d"];
const RENAME_EXCHANGE: u32 = 2;

fn on_each(run: impl Fn(&Settings)) {
    [TransportKind::Device, TransportKind::Cloned].map(settings).iter().for_each(run);
}

fn mount(options: &PoolOptions, settings: &Settings) -> Fixture {
    Fixture::new(Pool::open(options).unwrap(), &options.source, settings)
}

/// The ways in which a pool may be asked to serve the same folder.
fn kinds(lower: &Path) -> Vec<(String, PoolOptions)> {
    let mut kinds = Vec::new();
    for flow in [FlowWish::Passthrough, FlowWish::Relay, FlowWish::Served] {
        for cache in [Cache::Default, Cache::None] {
            for calls in [Calls::Inline, Calls::Offload] {
                let kind = format!("{flow:?}, cache {cache:?}, calls {calls:?}");
                kinds.push((kind, PoolOptions { flow, cache, calls, ..PoolOptions::new(lower) }));
            }
        }
    }
    kinds
}

/// The kernel takes the lock of a file alone for each direct write, unless it is told that it need not.
#[test]
fn who_writes_past_the_page_cache_writes_beside_others() {
    let direct = OpenFlags::DIRECT.0;
    on_each(|settings| {
        let lower = fake::folder();
        fs::write(lower.path().join("file"), "some bytes").unwrap();
        for flow in [FlowWish::Relay, FlowWish::Served] {
            for cache in [Cache::Default, Cache::None] {
                let fixture = mount(&PoolOptions { flow, cache, ..PoolOptions::new(lower.path()) }, settings);
                let answered = |flags| fixture.fake.open("/file", flags).unwrap().answered().unwrap();
                let at_once = FopenFlags::DIRECT_IO | FopenFlags::PARALLEL_DIRECT_WRITES;
                for (flags, is_so) in [
                    (O_RDWR | direct, true),
                    (O_WRONLY | direct, true),
                    (O_RDONLY | direct, false),
                    (O_RDWR, false),
                ] {
                    assert_eq!(
                        answered(flags).contains(at_once),
                        is_so,
                        "{flow:?}, cache {cache:?}, {flags:#o}"
                    );
                }
                let (one, other) = (
                    fixture.fake.open("/file", O_RDWR | direct).unwrap(),
                    fixture.fake.open("/file", O_RDWR).unwrap(),
                );
                assert_eq!(other.read_to_end().unwrap(), b"some bytes");
                assert_eq!(one.write_at(5, b"words"), Ok(5));
                assert_eq!(other.read_to_end().unwrap(), b"some words");
                assert_eq!(other.write_at(5, b"bytes"), Ok(5));
                assert_eq!(one.read_to_end().unwrap(), b"some bytes");
                drop((one, other));
                fixture.end("direct writers");
            }
        }
    });
}

#[test]
fn names_and_bytes_are_those_below() {
    on_each(|settings| {
        let lower = fake::folder();
        for (kind, options) in kinds(lower.path()) {
            let fixture = mount(&options, settings);
            let fake = &fixture.fake;
            fake.mkdir("/dir", 0o750).unwrap();
            let file = fake.create("/dir/file").unwrap();
            assert_eq!(file.write_at(0, b"some bytes"), Ok(10));
            assert_eq!(file.read_to_end().unwrap(), b"some bytes");
            file.sync(false).unwrap();
            file.allocate(0, 0, 20).unwrap();
            assert_eq!(file.stat().unwrap().size, 20);
            assert_eq!(file.seek(0, 4).unwrap(), 20, "a hole begins at the end");
            drop(file);
            let file = fake.open("/dir/file", O_RDWR | O_APPEND).unwrap();
            assert_eq!(file.write_at(0, b"!"), Ok(1));
            drop(file);
            fake.link("/dir/file", "/other").unwrap();
            fake.symlink("dir/file", "/link").unwrap();
            fake.mknod("/fifo", 0o010_640, 0).unwrap();
            assert_eq!(fake.stat("/link").unwrap().nlink, 2);
            fixture.assert_same(&WANDERED, &kind);
            fake.rename("/dir/file", "/dir/moved").unwrap();
            fake.rename_with("/dir/moved", "/fifo", RENAME_EXCHANGE).unwrap();
            fake.rename_with("/dir/moved", "/fifo", RENAME_EXCHANGE).unwrap();
            fake.chown("/dir/moved", 71_001, 71_002).unwrap();
            fake.chmod("/other", 0o4711).unwrap();
            fake.set_mtime("/dir", 1_000_000).unwrap();
            fake.set_xattr("/other", "user.one", b"1", 0).unwrap();
            fake.set_xattr("/other", "user.two", b"2", 0).unwrap();
            fake.remove_xattr("/dir/moved", "user.one").unwrap();
            assert_eq!(fake.get_xattr("/dir/moved", "user.two").unwrap(), b"2");
            assert!(fake.list_xattr("/other").unwrap().contains(&"user.two".to_owned()));
            fake.truncate("/other", 4).unwrap();
            assert_eq!(fake.open("/dir/moved", O_RDONLY).unwrap().read_to_end().unwrap(), b"some");
            assert_eq!(fake.names("/").unwrap(), ["dir", "fifo", "link", "other"]);
            fixture.assert_same(&["file", "moved"], &kind);
            drop(fake.open("/other", O_RDWR | O_TRUNC).unwrap());
            assert_eq!(fake.rmdir("/dir"), Err(Errno::NOTEMPTY));
            let kept = fake.open("/other", O_RDWR).unwrap();
            for path in ["/dir/moved", "/other", "/link", "/fifo"] {
                fake.unlink(path).unwrap();
            }
            assert_eq!(kept.write_at(0, b"nameless"), Ok(8), "{kind}");
            assert_eq!(kept.read_to_end().unwrap(), b"nameless", "{kind}");
            drop(kept);
            fake.rmdir("/dir").unwrap();
            assert_eq!(fs::read_dir(lower.path()).unwrap().count(), 0);
            fixture.end(&kind);
        }
    });
}

#[test]
fn a_file_passes_through_or_is_moved_by_the_library() {
    for refusal in [None, Some(OsError::PERM)] {
        let lower = fake::folder();
        fs::write(lower.path().join("file"), vec![7; 300_000]).unwrap();
        let fixture = mount(&PoolOptions::new(lower.path()), &Settings::default());
        fixture.fake.refuse_backing(refusal);
        let file = fixture.fake.open("/file", O_RDWR).unwrap();
        assert_eq!(file.read_to_end().unwrap(), vec![7; 300_000]);
        assert_eq!(file.write_at(299_999, b"end"), Ok(3));
        assert_eq!(file.read_at(299_998, 9).unwrap(), b"\x07end");
        assert_eq!(fixture.fake.sent(Opcode::Read) == 0, refusal.is_none());
        drop(file);
        fixture.end("passthrough or not");
    }
}

/// The kernel believes what it was told, until a removal says that it is not so.
#[test]
fn a_name_that_goes_below_is_doubted_when_its_removal_fails() {
    let lower = fake::folder();
    fs::write(lower.path().join("file"), "").unwrap();
    fs::create_dir(lower.path().join("dir")).unwrap();
    let settings = Settings { doubts: false, ..Settings::default() };
    let fixture = mount(&PoolOptions::new(lower.path()), &settings);
    let fake = &fixture.fake;
    assert!(fake.stat("/file").is_ok() && fake.stat("/dir").is_ok());
    fs::remove_file(lower.path().join("file")).unwrap();
    fs::remove_dir(lower.path().join("dir")).unwrap();
    assert!(fake.stat("/file").is_ok() && fake.stat("/dir").is_ok(), "nobody told the kernel");
    assert_eq!((fake.unlink("/file"), fake.rmdir("/dir")), (Err(Errno::NOENT), Err(Errno::NOENT)));
    assert_eq!(fake.stat("/file").err(), Some(Errno::NOENT));
    assert_eq!(fake.stat("/dir").err(), Some(Errno::NOENT));
    fixture.end("names that went below");
}

#[test]
fn a_folder_of_many_names_is_listed_in_pieces() {
    let lower = fake::folder();
    for number in 0..200 {
        fs::write(lower.path().join(format!("file-{number}")), "").unwrap();
    }
    for (kind, options) in kinds(lower.path()) {
        let fixture = mount(&options, &Settings::default());
        assert_eq!(fixture.fake.list_in_room("/", 2000).unwrap().len(), 200, "{kind}");
        assert_eq!(fixture.fake.list("/").unwrap().len(), 200, "{kind}");
        fixture.end(&kind);
    }
}

#[test]
fn a_pool_is_wandered_through() {
    on_each(|settings| {
        for seed in 0..3 {
            let lower = fake::folder();
            for (kind, options) in kinds(lower.path()) {
                let kind = format!("{kind}, seed {seed}");
                let fixture = mount(&options, settings);
                let succeeded = fixture.fake.wander(seed, 300).unwrap();
                assert!(succeeded > 30, "{kind}: only {succeeded} calls succeeded");
                fixture.assert_same(&WANDERED, &kind);
                fixture.end(&kind);
            }
        }
    });
}

/// Names that are hidden do not exist, whatever is done around them.
#[test]
fn a_pool_under_rules_is_wandered_through() {
    let text = "[[rule]]\nbasename = 'b'\nhide = true\n[[rule]]\nbasename = 'c'\nread_only = true\n";
    for seed in 0..6 {
        let lower = fake::folder();
        fs::write(lower.path().join("b"), "hidden").unwrap();
        fs::create_dir(lower.path().join("a")).unwrap();
        fs::hard_link(lower.path().join("b"), lower.path().join("a/b")).unwrap();
        let pool = Pool::open_with_rules(&PoolOptions::new(lower.path()), rules(text)).unwrap();
        let fixture = Fixture::new(pool, lower.path(), &Settings::default());
        fixture.fake.wander(seed, 300).unwrap();
        assert_eq!(fixture.fake.lstat("/b").err(), Some(Errno::NOENT), "seed {seed}");
        assert!(!fixture.fake.names("/").unwrap().contains(&"b".to_owned()), "seed {seed}");
        assert_eq!(fs::read(lower.path().join("b")).unwrap(), b"hidden", "seed {seed}");
        fixture.end(&format!("seed {seed}"));
    }
}

#[test]
fn what_no_kernel_sends_is_answered() {
    on_each(|settings| {
        for seed in 0..3 {
            let lower = fake::folder();
            let fixture = mount(&PoolOptions::new(lower.path()), settings);
            drop(fixture.fake.create("/file").unwrap());
            fixture.fake.babble(seed, 500).unwrap();
            assert!(fixture.fake.stat("/").is_ok(), "it goes on");
            let broken = fixture.fake.finish();
            broken.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        }
    });
}
