//! Each lower call of a run is made to fail, one in each run. Whatever fails, callers get legal answers, nothing is left in
//! the kernel's books, in the pool's or among the descriptors of the process; what the kernel keeps is true; and the pool
//! goes on.
//!
//! Faults hold for the whole process: every test here has them to itself.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

mod fake;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fake::{Fixture, rules, settings};
use shuntfs::{Errno, Result, TransportKind};
use shuntfs_fake::{Failed, Fake, Faults, O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, OsError};
use shuntfs_pool::{Cache, Calls, FlowWish, Pool, PoolOptions};

/// A run that is over before this many calls is clean.
const CALLS_MAX: u64 = 5000;
/// Every name of a run, and those of calls from a seed.
const NAMES: [&str; 12] =
    ["a", "b", "c", "d", "one", "two", "file", "second", "moved", "link", "fifo", "other"];
/// How long a thread that does something beside requests may take to end.
const LIMIT: Duration = Duration::from_secs(5);
const RENAME_EXCHANGE: u32 = 2;

/// Makes every kind of change in a folder of its own. Goes on after a failure, as callers do; what each came to.
fn run(fixture: &Fixture, folder: &str) -> Vec<(&'static str, Result<()>)> {
    let fake = &fixture.fake;
    let path = |name: &str| format!("{folder}/{name}");
    let mut done = vec![("mkdir", fake.mkdir(folder, 0o755).map(drop))];
    let created = fake.create(&path("file")).and_then(|file| {
        file.write_at(0, &[7; 10_000])?;
        file.read_at(5000, 100)?;
        file.allocate(0, 0, 20_000)?;
        file.seek(0, 3)?;
        file.sync(true)
    });
    done.push(("create", created));
    done.extend([
        ("link", fake.link(&path("file"), &path("second")).map(drop)),
        ("symlink", fake.symlink("file", &path("link")).map(drop)),
        ("mknod", fake.mknod(&path("fifo"), 0o010_644, 0).map(drop)),
        ("rename", fake.rename(&path("second"), &path("moved"))),
        ("exchange", fake.rename_with(&path("moved"), &path("fifo"), RENAME_EXCHANGE)),
        ("exchange", fake.rename_with(&path("moved"), &path("fifo"), RENAME_EXCHANGE)),
        ("list", listed(fixture, folder)),
        ("truncate", fake.truncate(&path("file"), 100).map(drop)),
        ("chown", fake.chown(&path("file"), 71_001, 71_002).map(drop)),
        ("chmod", fake.chmod(&path("file"), 0o4711).map(drop)),
        ("utimensat", fake.set_mtime(&path("file"), 1_000_000).map(drop)),
        ("setxattr", fake.set_xattr(&path("file"), "user.fault", b"value", 0)),
        ("getxattr", fake.get_xattr(&path("file"), "user.fault").map(drop)),
        ("listxattr", fake.list_xattr(&path("file")).map(drop)),
        ("removexattr", fake.remove_xattr(&path("file"), "user.fault")),
        ("lstat", fake.lstat(&path("link")).map(drop)),
        ("readlink", fake.readlink(&path("link")).map(drop)),
        ("truncating open", fake.open(&path("moved"), O_RDWR | O_TRUNC).map(drop)),
        ("statfs", fake.statfs().map(drop)),
    ]);
    fake.drop_caches();
    done.push(("stat", fake.stat(&path("file")).map(drop)));
    done.push(("creating open", fake.open(&path("file"), O_RDWR | O_CREAT | O_TRUNC).map(drop)));
    done.push(("list", listed(fixture, folder)));
    let nameless = fake.open(&path("file"), O_RDWR).and_then(|file| {
        fake.unlink(&path("file"))?;
        fake.unlink(&path("moved"))?;
        file.write_at(0, b"nameless")?;
        assert_eq!(file.read_to_end()?, b"nameless");
        Ok(())
    });
    done.push(("a file without a name", nameless));
    done.push(("mknod", fake.mknod(&path("other"), 0o100_644, 0).map(drop)));
    done.push(("truncate", fake.truncate(&path("other"), 5000).map(drop)));
    let nameless = fake.open(&path("other"), O_RDONLY).and_then(|file| {
        fake.unlink(&path("other"))?;
        Ok(file.read_to_end()?.len())
    });
    done.push(("a file without a name that is read first then", nameless.map(drop)));
    done.extend(["link", "fifo"].map(|name| ("unlink", fake.unlink(&path(name)))));
    done.push(("rmdir", fake.rmdir(folder)));
    done
}

/// A listing that succeeds has every name that is there.
fn listed(fixture: &Fixture, folder: &str) -> Result<()> {
    let names = fixture.fake.names(folder)?;
    let below = fixture.lower.join(folder.trim_start_matches('/'));
    let mut there: Vec<_> =
        fs::read_dir(below).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    there.sort();
    assert_eq!(names, there, "the listing of {folder}");
    Ok(())
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How many there are when threads that are no queue's have ended, too.
fn settled(most: usize) -> usize {
    let end = Instant::now() + LIMIT;
    while descriptors() > most && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    descriptors()
}

/// Makes `work` on a new pool with each lower call failing in turn, and so many in all, until there is none left to fail. `work`
/// tells whether its callers saw a failure.
fn each_call_fails_once(
    (error, count): (OsError, u64),
    pool: impl Fn(&Path) -> Pool,
    work: impl Fn(&Fixture) -> bool,
    check: impl Fn(&Fixture, &str),
) {
    let faults = Faults::alone();
    let (mut told, mut before) = (0, usize::MAX);
    // The first run is clean, so that what is opened once and for all is open.
    for nth in [u64::MAX].into_iter().chain(0..CALLS_MAX) {
        let lower = fake::folder();
        let fixture = Fixture::new(pool(lower.path()), lower.path(), &settings(TransportKind::Device));
        faults.fail(nth..nth.saturating_add(count), error);
        let is_told = work(&fixture);
        let Failed { calls, at, .. } = faults.stop();
        told += u64::from(is_told);
        let what = match at {
            Some(place) => format!("{error:?} at call {nth} ({place})"),
            None => format!("{calls} calls, none failed"),
        };
        check(&fixture, &what);
        fixture.end(&what);
        before = before.min(settled(before));
        assert!(descriptors() <= before, "{what}: descriptors that nobody closed");
        if at.is_none() {
            assert!(!is_told, "nothing was made to fail, and something did");
            if nth != u64::MAX {
                println!("{error:?}: {calls} calls, of which callers saw {told} fail");
                assert!(told > calls / 8, "only {told} of {calls} failures were seen");
                return;
            }
        }
    }
    panic!("the run has no end");
}

/// What the kernel keeps after a failure is true, and every call works again.
fn goes_on(fixture: &Fixture, what: &str) {
    fixture.assert_same(&NAMES, what);
    for (call, outcome) in run(fixture, "/other") {
        assert_eq!(outcome, Ok(()), "{what}, and after it {call}");
    }
}

/// Callers hear of the failure, or of what is missing for its sake; nobody hears of a file that was lost (ESTALE).
fn fails_somewhere(error: OsError) -> impl Fn(&Fixture) -> bool {
    let error = Errno::from_lower(error.raw_os_error());
    let heard = [error, Errno::NOENT, Errno::NODATA, Errno::EXIST, Errno::NOTEMPTY, Errno::NXIO];
    move |fixture| {
        let done = run(fixture, "/one");
        let failed: Vec<_> = done.iter().filter_map(|(call, outcome)| Some((call, outcome.err()?))).collect();
        assert!(failed.iter().all(|(_, errno)| heard.contains(errno)), "{failed:?}");
        !failed.is_empty()
    }
}

#[test]
fn every_lower_call_of_a_pool_fails() {
    for (error, count) in [(OsError::IO, 1), (OsError::MFILE, 1)] {
        let pool = |lower: &Path| Pool::open(&PoolOptions::new(lower)).unwrap();
        each_call_fails_once((error, count), pool, fails_somewhere(error), goes_on);
    }
}

#[test]
fn every_lower_call_fails_wherever_bytes_flow_and_calls_are_made() {
    for (flow, cache, calls, count) in [
        (FlowWish::Relay, Cache::Default, Calls::Offload, 1),
        (FlowWish::Served, Cache::None, Calls::Inline, 3),
    ] {
        // Next to nothing is at hand that was open before.
        let descriptors = Some(1);
        let pool = |lower: &Path| {
            let options = PoolOptions { flow, cache, calls, descriptors, ..PoolOptions::new(lower) };
            Pool::open(&options).unwrap()
        };
        each_call_fails_once((OsError::IO, count), pool, fails_somewhere(OsError::IO), goes_on);
    }
}

#[test]
fn every_lower_call_of_generated_requests_fails() {
    for seed in 0..3 {
        let clean = |fake: &Fake| fake.wander(seed, 80).unwrap();
        let lower = fake::folder();
        let pool = |lower: &Path| Pool::open(&PoolOptions::new(lower)).unwrap();
        let fixture = Fixture::new(pool(lower.path()), lower.path(), &settings(TransportKind::Device));
        // No other test's failures are among it.
        let alone = Faults::alone();
        let all = clean(&fixture.fake);
        fixture.end("without a fault");
        drop(alone);
        let differs = |fixture: &Fixture| clean(&fixture.fake) != all;
        each_call_fails_once((OsError::IO, 1), pool, differs, goes_on);
    }
}

/// What a rule hides stays hidden, and what it keeps from being written is not written, whatever cannot be found out.
#[test]
fn rules_hold_whatever_fails() {
    let text = "[[rule]]\nbasename = 'hidden'\nhide = true\n[[rule]]\nbasename = 'kept'\ndeny = 'EACCES'\n";
    let pool = |lower: &Path| {
        fs::write(lower.join("hidden"), "secret").unwrap();
        fs::write(lower.join("kept"), "secret").unwrap();
        fs::write(lower.join("file"), "open to all").unwrap();
        fs::hard_link(lower.join("hidden"), lower.join("second")).unwrap();
        Pool::open_with_rules(&PoolOptions::new(lower), rules(text)).unwrap()
    };
    let work = |fixture: &Fixture| {
        let fake = &fixture.fake;
        assert!(fake.lstat("/hidden").is_err());
        assert!(fake.open("/kept", O_RDONLY).is_err() && fake.open("/kept", O_RDWR | O_TRUNC).is_err());
        assert!(fake.open("/second", O_RDONLY).is_err(), "another name of what is hidden");
        assert!(fake.link("/kept", "/open").is_err() && fake.truncate("/kept", 0).is_err());
        let names = fake.names("/");
        assert!(names.as_ref().map_or(true, |names| !names.contains(&"hidden".to_owned())));
        let read = fake.open("/file", O_RDONLY).and_then(|file| file.read_to_end());
        let moved = fake.rename("/file", "/moved");
        let made = fake.create("/two").map(drop);
        names.is_err() || read.is_err() || moved.is_err() || made.is_err()
    };
    let check = |fixture: &Fixture, what: &str| {
        assert_eq!(fixture.fake.lstat("/hidden").err(), Some(Errno::NOENT), "{what}");
        assert!(!fixture.fake.names("/").unwrap().contains(&"hidden".to_owned()), "{what}");
        for name in ["hidden", "kept"] {
            assert_eq!(fs::read(fixture.lower.join(name)).unwrap(), b"secret", "{what}");
        }
    };
    each_call_fails_once((OsError::IO, 1), pool, work, check);
}
