//! Lower calls of a merge: how many there are, and what happens to it when each of them fails.
//!
//! Faults hold for the whole process: every test here has them to itself.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod fake;

use std::array;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fake::Fixture;
use shuntfs::{Errno, Result};
use shuntfs_fake::{Faults, O_RDONLY, OsError, Settings};
use shuntfs_pool::policy::Policy;
use shuntfs_pool::{BranchOptions, Cache, FlowWish, InodeCalc, MergeOptions, Pool, PoolOptions};
use shuntfs_testkit::skipped;

/// A run that is over before this many calls is clean.
const CALLS_MAX: u64 = 2000;

fn mount(top: &Path, count: usize, cache: Cache) -> Fixture {
    mount_numbered(top, count, cache, InodeCalc::default())
}

fn mount_numbered(top: &Path, count: usize, cache: Cache, inode_calc: InodeCalc) -> Fixture {
    let branches = (0..count).map(|number| {
        let path = top.join(number.to_string());
        fs::create_dir_all(&path).unwrap();
        BranchOptions::new(path)
    });
    let mut merge = MergeOptions::new(branches.collect());
    merge.min_free = 0;
    merge.create = Policy::of("ff").unwrap();
    merge.inode_calc = inode_calc;
    let options = PoolOptions { merge: Some(merge), cache, ..PoolOptions::new("many") };
    // Its doubts ask for attributes that hold, which would be counted.
    let settings = Settings { doubts: count < 10, ..Settings::default() };
    Fixture::new(Pool::open(&options).unwrap(), top, &settings)
}

/// How many lower calls something makes.
fn calls(faults: &Faults, act: impl FnOnce()) -> u64 {
    faults.fail(0..0, OsError::IO);
    act();
    faults.stop().calls
}

#[test]
fn a_name_on_the_last_of_ten_branches_costs_eleven_calls() {
    let faults = Faults::alone();
    let folder = fake::folder();
    let fixture = mount(folder.path(), 10, Cache::Default);
    fs::create_dir(folder.path().join("9/x")).unwrap();
    fs::write(folder.path().join("9/x/file"), "").unwrap();
    fs::write(folder.path().join("9/file"), "").unwrap();
    fs::write(folder.path().join("0/first"), "").unwrap();
    let fake = &fixture.fake;
    fake.stat("/").unwrap();
    assert_eq!(calls(&faults, || assert!(fake.stat("/file").is_ok())), 11);
    assert_eq!(calls(&faults, || assert!(fake.stat("/file").is_ok())), 0, "the kernel keeps it");
    assert_eq!(calls(&faults, || assert!(fake.stat("/first").is_ok())), 2);
    assert_eq!(calls(&faults, || assert!(fake.stat("/x").is_ok())), 11);
    // The folder is on one branch: its descriptor is opened, and then two calls.
    assert_eq!(calls(&faults, || assert!(fake.stat("/x/file").is_ok())), 3);
    assert_eq!(calls(&faults, || assert!(fake.stat("/x/nothing").is_err())), 1);
    // What the kernel has forgotten is found where it was.
    fake.drop_caches();
    fake.stat("/").unwrap();
    assert_eq!(calls(&faults, || assert!(fake.stat("/file").is_ok())), 2);
    fake.unlink("/file").unwrap();
    drop(fake.create("/file").unwrap());
    fake.drop_caches();
    fake.stat("/").unwrap();
    assert_eq!(calls(&faults, || assert!(fake.stat("/file").is_ok())), 3, "it is on the first one now");
    fixture.end("ten branches");
}

#[test]
fn a_file_that_cannot_be_read_goes_on_with_a_copy_where_users_ask_for_that() {
    let faults = Faults::alone();
    for read_copies in [false, true] {
        let folder = fake::folder();
        let branches = ["0", "1", "2"].map(|name| folder.path().join(name));
        for (path, text) in branches.iter().zip([Some("text"), None, Some("text")]) {
            fs::create_dir(path).unwrap();
            text.into_iter().for_each(|text| fs::write(path.join("file"), text).unwrap());
        }
        let mut merge = MergeOptions::new(branches.map(BranchOptions::new).into());
        merge.read_copies = read_copies;
        let flow = FlowWish::Served;
        let options = PoolOptions { merge: Some(merge), flow, ..PoolOptions::new("copies") };
        let fixture = Fixture::new(Pool::open(&options).unwrap(), folder.path(), &Settings::default());
        let read = |failing: Range<u64>| {
            let file = fixture.fake.open("/file", O_RDONLY).unwrap();
            faults.fail(failing, OsError::IO);
            let read = file.read_at(0, 4);
            let calls = faults.stop().calls;
            drop(file);
            fixture.fake.drop_caches();
            (read, calls)
        };
        let text: Result<Vec<u8>> = Ok(b"text".to_vec());
        let (whole, calls) = read(0..0);
        assert_eq!(whole, text);
        assert!(calls > 0);
        for nth in 0..calls {
            let (outcome, _) = read(nth..nth + 1);
            assert_eq!(outcome, if read_copies { text.clone() } else { Err(Errno::IO) }, "call {nth}");
        }
        // Nothing is left to go on with.
        assert_eq!(read(0..CALLS_MAX).0, Err(Errno::IO));
        fixture.end("copies");
    }
}

/// Whatever numbers go by, they are made of what is known anyway.
#[test]
fn numbers_cost_no_calls() {
    let faults = Faults::alone();
    let counts = |calc: InodeCalc| {
        let folder = fake::folder();
        let fixture = mount_numbered(folder.path(), 10, Cache::None, calc);
        for path in ["0/x/one", "2/x/y/two"] {
            fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
            fs::write(folder.path().join(path), "").unwrap();
        }
        let fake = &fixture.fake;
        fake.stat("/x/y/two").unwrap();
        let acts: [&dyn Fn(); 4] = [
            &|| assert!(fake.stat("/x/y/two").is_ok()),
            &|| assert!(fake.names("/x").is_ok()),
            &|| fake.rename("/x/y/two", "/x/three").unwrap(),
            &|| assert!(fake.stat("/x/three").is_ok()),
        ];
        let counts = acts.map(|act| calls(&faults, act));
        fixture.end("numbers");
        counts
    };
    // What the kernel tells without waiting, that a listing ends, comes at any time: a folder may have to be opened again.
    let least = |calc| {
        (0..6)
            .map(|_| counts(calc))
            .reduce(|least, now| array::from_fn(|act| least[act].min(now[act])))
            .unwrap()
    };
    let usual = least(InodeCalc::default());
    assert!(usual.iter().all(|count| *count > 0), "{usual:?}");
    for (name, calc) in InodeCalc::ALL {
        assert_eq!(least(calc), usual, "{name}");
    }
}

#[test]
fn questions_cost_what_they_ask_for_and_one_branch_nothing() {
    let faults = Faults::alone();
    let folder = fake::folder();
    let fixture = mount(folder.path(), 10, Cache::Default);
    fs::create_dir(folder.path().join("9/x")).unwrap();
    fs::write(folder.path().join("9/x/file"), "").unwrap();
    let fake = &fixture.fake;
    let asked =
        |path: &str, what: &str| assert!(fake.get_xattr(path, &format!("user.mergerfs.{what}")).is_ok());
    fake.stat("/x/file").unwrap();
    assert_eq!(calls(&faults, || assert!(fake.stat("/.mergerfs").is_ok())), 0);
    assert_eq!(calls(&faults, || asked("/.mergerfs", "branches")), 0);
    // Each is asked twice: for the length, and for the value.
    assert_eq!(calls(&faults, || asked("/x/file", "basepath")), 0);
    assert_eq!(calls(&faults, || asked("/x", "relpath")), 0);
    // It is opened, its path and that of the branch are asked for, and two calls say that it has this name.
    assert_eq!(calls(&faults, || asked("/x/file", "fullpath")), 2 * 5);
    // And one for each branch that has the folder.
    assert_eq!(calls(&faults, || asked("/x/file", "allpaths")), 2 * 6);
    assert_eq!(calls(&faults, || asked("/x", "allpaths")), 2 * 10);
    fixture.end("questions");

    let options = PoolOptions::new(folder.path().join("9"));
    let settings = Settings { doubts: false, ..Settings::default() };
    let alone = Fixture::new(Pool::open(&options).unwrap(), folder.path(), &settings);
    let fake = &alone.fake;
    fake.stat("/x").unwrap();
    let has = |name: &str| fake.get_xattr("/x", name).is_ok();
    assert!(!has("user.any"), "its descriptor is open now");
    for name in ["user.any", "user.mergerfs.basepath"] {
        assert_eq!(calls(&faults, || assert!(!has(name))), 1, "{name}: the lower file system is asked");
    }
    for name in ["/nothing", "/.mergerfs"] {
        assert_eq!(calls(&faults, || assert!(fake.stat(name).is_err())), 1, "{name}");
    }
    assert_eq!(calls(&faults, || assert!(fake.stat("/x/file").is_ok())), 2);
    alone.end("one branch");
}

/// A file that a later branch has was shown from there for as long as the kernel kept the name, which was forever.
#[test]
fn a_file_beyond_a_branch_that_fails_is_looked_up_again() {
    let faults = Faults::alone();
    let folder = fake::folder();
    let fixture = mount(folder.path(), 10, Cache::Default);
    for (branch, text) in [("0", "first"), ("9", "9")] {
        fs::write(folder.path().join(branch).join("file"), text).unwrap();
    }
    let size = || fixture.fake.stat("/file").map(|attr| attr.size);
    fixture.fake.stat("/").unwrap();
    // The first call says which inode it is, and the second what it is like.
    faults.fail(1..2, OsError::IO);
    assert_eq!(size(), Ok(1));
    assert!(faults.stop().calls > 10);
    assert_eq!(size(), Ok(5));
    assert_eq!(calls(&faults, || assert_eq!(size(), Ok(5))), 0, "the kernel keeps it");
    fixture.end("a branch that failed");
}

/// Everything that a merge does with names; what each came to.
fn run(fixture: &Fixture, folder: &str) -> Vec<Result<()>> {
    let fake = &fixture.fake;
    let path = |name: &str| format!("{folder}/{name}");
    vec![
        fake.mkdir(folder, 0o755).map(drop),
        fake.create(&path("file")).and_then(|file| file.write_at(0, b"bytes")).map(drop),
        fake.create("/old/deep/new").map(drop),
        fake.mkdir("/old/deep/folder", 0o700).map(drop),
        fake.link(&path("file"), &path("other")).map(drop),
        fake.rename("/old/file", &path("moved")),
        fake.rename("/old/both", "/old/deep/both"),
        fake.chmod("/old", 0o711).map(drop),
        fake.names("/old").map(drop),
        fake.list("/old/deep").map(drop),
        fake.statfs().map(drop),
        fake.unlink(&path("other")),
        fake.rename("/old/deep", "/old/moved"),
        fake.rmdir("/old/empty"),
        fake.open(&path("moved"), O_RDONLY).and_then(|file| file.read_to_end()).map(drop),
    ]
}

/// `old` is on all branches, with a file and folders on some.
fn lay_out(top: &Path) {
    for path in ["0/old/empty", "1/old/empty", "2/old/deep", "1/old/both", "2/old/both"] {
        fs::create_dir_all(top.join(path)).unwrap();
    }
    fs::write(top.join("2/old/file"), "of 2").unwrap();
}

#[test]
fn whichever_call_fails_the_books_balance_and_nothing_is_lost() {
    let faults = Faults::alone();
    for cache in [Cache::Default, Cache::Second, Cache::None] {
        for number in 0.. {
            assert!(number < CALLS_MAX, "it does not come to an end");
            let folder = fake::folder();
            lay_out(folder.path());
            let fixture = mount(folder.path(), 3, cache);
            let what = format!("cache {cache:?}, call {number}");
            faults.fail(number..number + 1, OsError::IO);
            let done = run(&fixture, "/new");
            let failed = faults.stop();
            // It goes on, and what was there is there, under one name or the other.
            fixture.fake.drop_caches();
            let texts = ["/old/file", "/new/moved"].map(|path| {
                let read = fixture.fake.open(path, O_RDONLY).and_then(|file| file.read_to_end());
                read.ok().as_deref() == Some(b"of 2")
            });
            assert!(texts[0] != texts[1], "{what}: {:?} {texts:?}", failed.at);
            for (index, outcome) in done.iter().enumerate() {
                let is_legal = !matches!(outcome, Err(Errno::NOSYS | Errno::NOTCONN));
                assert!(is_legal, "{what}: {index}: {outcome:?}");
            }
            assert!(fixture.fake.create("/after").is_ok(), "{what}");
            fixture.end(&what);
            if failed.at.is_none() {
                assert!(done.iter().all(Result::is_ok), "without a fault: {done:?}");
                break;
            }
        }
    }
}

/// A listing ended where reading one branch failed, and what it showed of a later one in place of that was kept.
#[test]
fn a_listing_goes_on_with_the_other_branches_whichever_call_fails() {
    let faults = Faults::alone();
    for number in 0.. {
        assert!(number < CALLS_MAX, "it does not come to an end");
        let folder = fake::folder();
        let fixture = mount(folder.path(), 3, Cache::Default);
        for path in ["0/x/of-0", "1/x/of-1", "2/x/of-2"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        for (branch, text) in [("0", "first"), ("2", "2")] {
            fs::write(folder.path().join(branch).join("x/both"), text).unwrap();
        }
        fixture.fake.stat("/x").unwrap();
        faults.fail(number..number + 1, OsError::IO);
        let listed = fixture.fake.list_to_error("/x", 4096);
        let failed = faults.stop();
        if let Ok((records, error)) = listed {
            let least = if error.is_some() { 2 } else { 4 };
            assert!(records.len() >= least, "call {number}, {:?}: {records:?} {error:?}", failed.at);
        }
        // What a later branch has was kept for what is shown, forever.
        assert_eq!(
            fixture.fake.stat("/x/both").map(|attr| attr.size),
            Ok(5),
            "call {number}, {:?}",
            failed.at
        );
        fixture.end(&format!("call {number}"));
        if failed.at.is_none() {
            break;
        }
    }
}

/// A rename that failed on a later branch had replaced the target on an earlier one; and what it could not remove on an earlier branch stayed what
/// is shown, though the rename succeeded.
#[test]
fn a_rename_is_done_or_replaces_nothing_whichever_call_fails() {
    let faults = Faults::alone();
    for copies in [&["0/x", "1/x", "0/y", "1/y"][..], &["1/x", "0/y", "2/y"], &["1/x", "2/x", "0/y", "1/y"]] {
        for number in 0.. {
            assert!(number < CALLS_MAX, "it does not come to an end");
            let folder = fake::folder();
            (0..3).for_each(|branch| fs::create_dir(folder.path().join(branch.to_string())).unwrap());
            copies.iter().for_each(|path| fs::write(folder.path().join(path), path).unwrap());
            let fixture = mount(folder.path(), 3, Cache::None);
            let read = |path: &str| {
                let read = fixture.fake.open(path, O_RDONLY).and_then(|file| file.read_to_end());
                read.ok().map(|bytes| String::from_utf8(bytes).unwrap())
            };
            let before = [read("/x"), read("/y")];
            faults.fail(number..number + 1, OsError::IO);
            let renamed = fixture.fake.rename("/x", "/y");
            let failed = faults.stop();
            let what = format!("{copies:?}, call {number}: {renamed:?}, {:?}", failed.at);
            let after = [read("/x"), read("/y")];
            if renamed.is_ok() {
                assert_eq!(after[1], before[0], "{what}");
            } else {
                assert_eq!(after, before, "{what}");
            }
            fixture.end(&what);
            if failed.at.is_none() {
                assert_eq!(after[0], None, "{what}");
                break;
            }
        }
    }
}

/// Where a folder was moved on one branch and could not be moved back, the kernel kept believing that it is not under the new name.
#[test]
fn names_of_a_rename_that_was_left_half_done_are_looked_up_again() {
    let faults = Faults::alone();
    let mut left = 0;
    for number in 0.. {
        assert!(number < CALLS_MAX, "it does not come to an end");
        let folder = fake::folder();
        (0..3).for_each(|branch| fs::create_dir_all(folder.path().join(format!("{branch}/x"))).unwrap());
        let fixture = mount(folder.path(), 3, Cache::Default);
        let fake = &fixture.fake;
        let seen = || ["/x", "/y"].map(|path| fake.stat(path).map(drop));
        assert_eq!(seen(), [Ok(()), Err(Errno::NOENT)]);
        // From this call on all of them, so that it cannot be undone either.
        faults.fail(number..CALLS_MAX, OsError::IO);
        let renamed = fake.rename("/x", "/y");
        let failed = faults.stop();
        let what = format!("call {number}: {renamed:?}, {:?}", failed.at);
        let believed = seen();
        fake.drop_caches();
        assert_eq!(believed, seen(), "{what}");
        left += usize::from(renamed.is_err() && seen() == [Ok(()), Ok(())]);
        fixture.end(&what);
        if failed.at.is_none() {
            break;
        }
    }
    assert!(left > 0, "none was left half done");
}

/// The file system of the temporary files, and one in memory, are two on most machines.
#[test]
fn a_write_that_finds_no_room_goes_on_elsewhere_or_leaves_the_file_whole() {
    let faults = Faults::alone();
    for count in 1..6 {
        let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return skipped("there is no /dev/shm") };
        let disk = tempfile::tempdir().unwrap();
        let device = |folder: &Path| folder.metadata().unwrap().dev();
        if device(memory.path()) == device(disk.path()) {
            return skipped("there is one file system only");
        }
        let branches = [&memory, &disk].map(|folder| BranchOptions::new(folder.path()));
        let create = Policy::of("ff").unwrap();
        let merge = MergeOptions { create, min_free: 0, ..MergeOptions::new(branches.into()) };
        let (cache, flow) = (Cache::Default, FlowWish::Relay);
        let options = PoolOptions { merge: Some(merge), cache, flow, ..PoolOptions::new("two") };
        let fixture = Fixture::new(Pool::open(&options).unwrap(), memory.path(), &Settings::default());
        let file = fixture.fake.create("/file").unwrap();
        assert_eq!(file.write_at(0, &[1; 8192]), Ok(8192));
        // The write, and so many calls of the move that follows.
        faults.fail(0..count, OsError::NOSPC);
        let outcome = file.write_at(8192, &[2; 4096]);
        let what = format!("{count} calls failed, and {outcome:?}: {:?}", faults.stop());
        let there = [memory.path(), disk.path()].map(|folder| folder.join("file").exists());
        assert_eq!(there, if outcome.is_ok() { [false, true] } else { [true, false] }, "{what}");
        assert!(outcome == Ok(4096) || outcome == Err(Errno::NOSPC), "{what}");
        assert_eq!(outcome.is_ok(), count == 1, "{what}");
        assert_eq!(file.write_at(8192, &[2; 4096]), Ok(4096), "{what}");
        let expected = [vec![1; 8192], vec![2; 4096]].concat();
        assert!(file.read_to_end() == Ok(expected), "{what}");
        assert_eq!(fixture.fake.stat("/file").map(|attr| (attr.size, attr.nlink)), Ok((12288, 1)), "{what}");
        drop(file);
        fixture.end(&what);
    }
}
