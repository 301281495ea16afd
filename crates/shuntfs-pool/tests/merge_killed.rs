//! A server that is killed while it changes names on several branches, at each moment that there is.
//!
//! From some lower call on all of them fail: nothing further is done on any branch, and nothing is undone, as after SIGKILL. Then another server
//! shows the same branches.
//!
//! Faults hold for the whole process: every test here has them to itself.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod fake;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use fake::Fixture;
use shuntfs::{Errno, Result};
use shuntfs_fake::{Fake, Faults, O_RDONLY, OsError, Settings};
use shuntfs_pool::policy::Policy;
use shuntfs_pool::{BranchOptions, Cache, MergeOptions, Pool, PoolOptions};

const BRANCHES: usize = 3;

/// A run that is over before this many calls is clean.
const CALLS_MAX: u64 = 2000;

fn mount(top: &Path) -> Fixture {
    let branches = (0..BRANCHES).map(|number| BranchOptions::new(top.join(number.to_string()))).collect();
    let create = Policy::of("ff").unwrap();
    let merge = MergeOptions { create, min_free: 0, ..MergeOptions::new(branches) };
    let options = PoolOptions { merge: Some(merge), cache: Cache::None, ..PoolOptions::new("killed") };
    Fixture::new(Pool::open(&options).unwrap(), top, &Settings::default())
}

/// Folders end with a slash; files hold their own path.
fn lay_out(top: &Path, tree: &[&str]) {
    (0..BRANCHES).for_each(|number| fs::create_dir(top.join(number.to_string())).unwrap());
    for path in tree {
        let at = top.join(path);
        if path.ends_with('/') {
            fs::create_dir_all(at).unwrap();
        } else {
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, path).unwrap();
        }
    }
}

/// What files below a folder of a pool hold.
fn texts(fake: &Fake, folder: &str) -> BTreeSet<String> {
    let names = fake.names(folder).unwrap_or_default();
    let read = |name: String| {
        let file = fake.open(&format!("{folder}/{name}"), O_RDONLY)?;
        Ok::<_, Errno>(String::from_utf8(file.read_to_end()?).unwrap())
    };
    names.into_iter().map(|name| read(name).unwrap()).collect()
}

/// Has a command's server be killed at each of its calls. The next server is examined.
fn killed_at_each_call(
    tree: &[&str],
    command: impl Fn(&Fake) -> Result<()>,
    mut look: impl FnMut(&Fixture, &str),
) {
    let faults = Faults::alone();
    for number in 0.. {
        assert!(number < CALLS_MAX, "it does not come to an end");
        let folder = fake::folder();
        lay_out(folder.path(), tree);
        let first = mount(folder.path());
        faults.fail(number..CALLS_MAX, OsError::IO);
        let outcome = command(&first.fake);
        let failed = faults.stop();
        let what = format!("killed at call {number}, {:?}", failed.at);
        first.end(&what);
        let second = mount(folder.path());
        look(&second, &what);
        second.end(&what);
        if failed.at.is_none() {
            assert_eq!(outcome, Ok(()), "nothing failed");
            break;
        }
    }
}

/// What has the new name already is a folder that is not empty, and so the command cannot be given again. Where the folder still has its old name, it is
/// renamed on the branches themselves.
#[test]
fn the_rename_of_a_folder_loses_nothing_and_is_finished_on_the_branches() {
    let tree = ["0/x/of-0", "1/x/of-1", "2/x/of-2"];
    let all: BTreeSet<String> = tree.iter().map(ToString::to_string).collect();
    let mut halves = 0;
    killed_at_each_call(
        &tree,
        |fake| fake.rename("/x", "/y"),
        |second, what| {
            let (fake, top) = (&second.fake, &second.lower);
            let seen = || ["/x", "/y"].map(|path| texts(fake, path));
            let [old, new] = seen();
            assert!(old.is_disjoint(&new), "{what}");
            assert_eq!(old.union(&new).cloned().collect::<BTreeSet<_>>(), all, "{what}");
            halves += usize::from(!old.is_empty() && !new.is_empty());
            match fake.rename("/x", "/y") {
                // In the second case it was done, and nobody was told.
                Ok(()) | Err(Errno::NOENT) => {}
                again => {
                    assert_eq!(again, Err(Errno::NOTEMPTY), "{what}");
                    for branch in (0..BRANCHES).map(|number| top.join(number.to_string())) {
                        if branch.join("x").exists() {
                            fs::rename(branch.join("x"), branch.join("y")).unwrap();
                        }
                    }
                }
            }
            assert_eq!(seen(), [BTreeSet::new(), all.clone()], "{what}");
        },
    );
    assert!(halves > 0, "it was never left half done");
}

/// A file with copies, onto one with copies. By then what was to be replaced may have the old name on a branch: to give the command again would replace
/// the new one by it. Where the new name shows what was moved, the old name is removed.
#[test]
fn the_rename_of_a_file_loses_nothing() {
    let mut exchanged = 0;
    killed_at_each_call(
        &["0/x", "1/x", "0/y", "2/y"],
        |fake| fake.rename("/x", "/y"),
        |Fixture { fake, .. }, what| {
            let read = |path: &str| {
                let read = fake.open(path, O_RDONLY).and_then(|file| file.read_to_end());
                read.ok().map(|bytes| String::from_utf8(bytes).unwrap())
            };
            let is_moved = |text: &String| text.ends_with('x');
            let there = [read("/x"), read("/y")];
            assert!(there.iter().flatten().any(is_moved), "{what}: {there:?}");
            if there[1].as_ref().is_some_and(is_moved) {
                exchanged += usize::from(there[0].as_ref().is_some_and(|text| text.ends_with('y')));
                assert!(matches!(fake.unlink("/x"), Ok(()) | Err(Errno::NOENT)), "{what}: {there:?}");
            } else {
                assert_eq!(fake.rename("/x", "/y"), Ok(()), "{what}: {there:?}");
            }
            let then = [read("/x"), read("/y")];
            assert!(then[0].is_none() && then[1].as_ref().is_some_and(is_moved), "{what}: {then:?}");
        },
    );
    assert!(exchanged > 0, "it was never left half done");
}

#[test]
fn the_removal_of_a_folder_is_finished_by_the_next() {
    let mut halves = 0;
    killed_at_each_call(
        &["0/d/", "1/d/", "2/d/", "1/other"],
        |fake| fake.rmdir("/d"),
        |second, what| {
            let (fake, top) = (&second.fake, &second.lower);
            let left = || (0..BRANCHES).filter(|number| top.join(format!("{number}/d")).exists()).count();
            let before = left();
            halves += usize::from((1..BRANCHES).contains(&before));
            assert_eq!(fake.stat("/d").is_ok(), before > 0, "{what}");
            let again = fake.rmdir("/d");
            assert_eq!(again, if before > 0 { Ok(()) } else { Err(Errno::NOENT) }, "{what}");
            assert!(left() == 0 && fake.stat("/other").is_ok(), "{what}");
        },
    );
    assert!(halves > 0, "it was never left half done");
}
