//! What each path may cost, by counting requests and lower system calls: numbers that do not depend on the machine.

mod probes;
mod programs;
mod stage;
mod zero_copy;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::mm::ProtFlags;
use shuntfs_testkit::identity::Identity;
use shuntfs_testkit::mounted::{Flow, Transport};
use shuntfs_testkit::process::{Tracer, wakeups};
use shuntfs_testkit::raw::Mapping;
use shuntfs_testkit::say;

use stage::Stage;

/// System calls that touch a lower file; everything else is the queue's own.
const LOWER_CALLS: [&str; 17] = [
    "open",
    "openat",
    "openat2",
    "open_by_handle_at",
    "name_to_handle_at",
    "statx",
    "newfstatat",
    "fstat",
    "close",
    "getdents64",
    "read",
    "pread64",
    "preadv2",
    "readlinkat",
    "fgetxattr",
    "lseek",
    "ioctl",
];

/// Asks for what stat(2) tells. The standard library asks for the birth time, too, which is a request of its own.
fn look_at(path: &std::path::Path) -> Result<()> {
    Ok(rustix::fs::lstat(path).map(drop)?)
}

/// Calls that touched a lower file. On a device `read` is the queue's own, too: one for each request.
fn lower_calls(transport: Transport, calls: &BTreeMap<String, u64>) -> u64 {
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    let lower: u64 = LOWER_CALLS.iter().map(|name| of(name)).sum();
    if transport == Transport::Uring {
        return lower;
    }
    lower - of("read")
}

/// The kernel's passthrough: reads, writes and faults send nothing to the server.
#[test]
fn passthrough_data_costs_nothing() -> Result<()> {
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, Flow::Passthrough)? else { continue };
        let file = File::options().read(true).write(true).open(stage.path("file"))?;
        file.write_at(b"first", 0)?;
        let seen = stage.requests(|| {
            let mut room = vec![0; 4096];
            for page in 0..200 {
                file.read_at(&mut room, page * 4096)?;
                file.write_at(&room, page * 4096)?;
            }
            let map = Mapping::new(&file, 1 << 20, ProtFlags::READ | ProtFlags::WRITE, true)?;
            for page in 0..200 {
                map.store(page * 4096, &map.load(page * 4096 + 8, 8));
            }
            Ok(())
        })?;
        ensure!(seen.is_empty(), "{transport:?}: 200 reads, writes and faults sent {seen:?}");
        drop(file);
        stage.end()?;
    }
    Ok(())
}

/// A repeated open and close of a passthrough file: two requests, one in the background, and no lower system call.
#[test]
fn repeated_opens_cost_two_requests() -> Result<()> {
    const ROUNDS: u64 = 100;
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, Flow::Passthrough)? else { continue };
        let open = || -> Result<()> {
            for _ in 0..ROUNDS {
                drop(File::open(stage.path("file"))?);
            }
            Ok(())
        };
        drop(File::open(stage.path("file"))?);
        let seen = stage.requests(open)?;
        let expected = BTreeMap::from([("OPEN".to_owned(), ROUNDS), ("RELEASE".to_owned(), ROUNDS)]);
        ensure!(seen == expected, "{transport:?}: {ROUNDS} opens sent {seen:?}");
        if let Some(calls) = stage.calls(open)? {
            let lower = lower_calls(transport, &calls);
            ensure!(lower <= 2, "{transport:?}: {ROUNDS} opens made {lower} lower calls: {calls:?}");
        }
        stage.end()?;
    }
    Ok(())
}

/// What a file is ready for: asked once a mount. The kernel asks for each buffered read of an io_uring otherwise.
#[test]
fn readiness_is_asked_for_once() -> Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, Flow::Served)? else { continue };
        let file = File::open(stage.path("file"))?;
        let seen = stage.requests(|| {
            for _ in 0..100 {
                let mut asked = [PollFd::new(&file, PollFlags::IN)];
                ensure!(poll(&mut asked, None)? == 1, "{transport:?}: a file is not ready");
            }
            Ok(())
        })?;
        let expected = BTreeMap::from([("POLL".to_owned(), 1)]);
        ensure!(seen == expected, "{transport:?}: 100 polls sent {seen:?}");
        drop(file);
        stage.end()?;
    }
    Ok(())
}

/// LOOKUP of a name that exists: at most two lower system calls. Each comes once, the kernel remembers the rest.
#[test]
fn lookups_cost_two_calls() -> Result<()> {
    const NAMES: u64 = 200;
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, Flow::Passthrough)? else { continue };
        for index in 0..2 * NAMES {
            fs::write(stage.source.join(format!("names/{index}")), "")?;
        }
        let look = |from: u64| -> Result<()> {
            (from..from + NAMES).try_for_each(|index| look_at(&stage.path(&format!("names/{index}"))))
        };
        look_at(&stage.path("names"))?;
        let seen = stage.requests(|| look(0))?;
        ensure!(
            seen == BTreeMap::from([("LOOKUP".to_owned(), NAMES)]),
            "{transport:?}: {NAMES} looks sent {seen:?}"
        );
        let seen = stage.requests(|| look(0))?;
        ensure!(seen.is_empty(), "{transport:?}: {NAMES} looks at known names sent {seen:?}");
        if let Some(calls) = stage.calls(|| look(NAMES))? {
            let lower = lower_calls(transport, &calls);
            ensure!(
                lower <= 2 * NAMES + 4,
                "{transport:?}: {NAMES} lookups made {lower} lower calls: {calls:?}"
            );
        }
        stage.end()?;
    }
    Ok(())
}

/// LOOKUP of a name that only the last of ten branches has: one lower system call for each that has it not, and two for that one. What the
/// kernel has forgotten is looked for where it was.
#[test]
fn lookups_on_the_last_of_ten_branches_cost_eleven_calls_and_then_two() -> Result<()> {
    const NAMES: u64 = 200;
    for transport in Transport::ALL {
        let args = ["--cache", "default", "--minfreespace", "0"];
        let Some(stage) = Stage::make_pool(transport, 10, &args)? else { continue };
        for index in 0..NAMES {
            fs::write(stage.source.join(index.to_string()), "")?;
        }
        let look = || (0..NAMES).try_for_each(|index| look_at(&stage.path(&index.to_string())));
        for (what, most) in [("new", 11), ("known", 2)] {
            let mut calls = None;
            let seen = stage.requests(|| {
                calls = stage.calls(look)?;
                Ok(())
            })?;
            let Some(calls) = calls else { return Ok(()) };
            let lookups = seen.get("LOOKUP").copied().unwrap_or(0);
            say(&format!("{transport:?}: {lookups} lookups of {what} names made {calls:?}"));
            ensure!(lookups >= NAMES / 2, "{transport:?}: {NAMES} looks at {what} names sent {seen:?}");
            let lower = lower_calls(transport, &calls);
            // Where a name is is noted in a table of one size: by chance one takes the place of another, which then costs nine calls more.
            ensure!(
                lower <= most * lookups + 80,
                "{transport:?}: {lookups} lookups of {what} names made {lower} lower calls: {calls:?}"
            );
            // The kernel forgets the names that nobody uses.
            fs::write("/proc/sys/vm/drop_caches", "2")?;
        }
        stage.end()?;
    }
    Ok(())
}

/// GETATTR of a cached node: one lower system call.
#[test]
fn getattr_costs_one_call() -> Result<()> {
    const ROUNDS: u64 = 200;
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, Flow::Passthrough)? else { continue };
        // A read through the kernel makes it ask for the attributes again.
        let file = File::open(stage.path("file"))?;
        let ask = || -> Result<()> {
            for _ in 0..ROUNDS {
                file.read_at(&mut [0; 16], 0)?;
                rustix::fs::fstat(&file)?;
            }
            Ok(())
        };
        let seen = stage.requests(ask)?;
        ensure!(
            seen == BTreeMap::from([("GETATTR".to_owned(), ROUNDS)]),
            "{transport:?}: {ROUNDS} stats sent {seen:?}"
        );
        if let Some(calls) = stage.calls(ask)? {
            let lower = lower_calls(transport, &calls);
            ensure!(lower <= ROUNDS + 4, "{transport:?}: {ROUNDS} stats made {lower} lower calls: {calls:?}");
        }
        drop(file);
        stage.end()?;
    }
    Ok(())
}

/// READDIRPLUS: one getdents for each 32 KiB, and at most two lower system calls a name.
#[test]
fn listing_costs_two_calls_a_name() -> Result<()> {
    const NAMES: u64 = 2000;
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, Flow::Passthrough)? else { continue };
        for index in 0..NAMES {
            fs::write(stage.source.join(format!("names/a-name-{index}")), "")?;
        }
        let walk = || -> Result<()> {
            for entry in fs::read_dir(stage.path("names"))? {
                look_at(&entry?.path())?;
            }
            Ok(())
        };
        let Some(calls) = stage.calls(walk)? else { return Ok(()) };
        let lists = calls.get("getdents64").copied().unwrap_or(0);
        // 32 bytes and the name a record, rounded up, and the empty answer at the end.
        ensure!(
            lists <= NAMES * 48 / 32768 + 2,
            "{transport:?}: {NAMES} names made {lists} getdents: {calls:?}"
        );
        let lower = lower_calls(transport, &calls);
        ensure!(
            lower <= 2 * NAMES + lists + 12,
            "{transport:?}: {NAMES} names made {lower} lower calls: {calls:?}"
        );
        let seen = stage.requests(walk)?;
        let known: u64 = seen.iter().filter(|(name, _)| !name.contains("DIR")).map(|(_, count)| count).sum();
        ensure!(known <= 4, "{transport:?}: listing {NAMES} known names again sent {seen:?}");
        stage.end()?;
    }
    Ok(())
}

/// A folder whose listing the kernel has: opening it, listing it and closing it again sends nothing.
#[test]
fn known_folders_cost_nothing() -> Result<()> {
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, Flow::Passthrough)? else { continue };
        for index in 0..50 {
            fs::write(stage.source.join(format!("names/{index}")), "")?;
        }
        let walk = || -> Result<()> {
            ensure!(fs::read_dir(stage.path("names"))?.count() == 50);
            look_at(&stage.path("names"))
        };
        walk()?;
        let seen = stage.requests(walk)?;
        ensure!(seen.is_empty(), "{transport:?}: listing a known folder sent {seen:?}");
        stage.end()?;
    }
    Ok(())
}

/// A header, read by one compiler after another: an OPEN, which the caller waits for, and a RELEASE. The kernel has the bytes
/// and the attributes.
#[test]
fn small_files_that_are_read_again_cost_two_requests() -> Result<()> {
    const ROUNDS: u64 = 50;
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, Flow::Passthrough)? else { continue };
        fs::write(stage.source.join("header"), vec![b'h'; 9000])?;
        let read = |rounds: u64| -> Result<()> {
            for _ in 0..rounds {
                let file = File::open(stage.path("header"))?;
                rustix::fs::fstat(&file)?;
                ensure!(file.read_at(&mut [0; 16384], 0)? == 9000);
            }
            Ok(())
        };
        read(4)?;
        let seen = stage.requests(|| read(ROUNDS))?;
        // One more look: the READ that filled the cache made the kernel forget the time of access.
        let mut expected = BTreeMap::from([("OPEN".to_owned(), ROUNDS), ("RELEASE".to_owned(), ROUNDS)]);
        expected.extend(
            seen.get("GETATTR").filter(|count| **count <= 1).map(|count| ("GETATTR".to_owned(), *count)),
        );
        ensure!(seen == expected, "{transport:?}: {ROUNDS} reads sent {seen:?}");
        // What is written is read.
        fs::write(stage.path("header"), "new")?;
        ensure!(fs::read(stage.path("header"))? == b"new");
        stage.end()?;
    }
    Ok(())
}

/// A relayed READ of cached bytes on a ring, one at a time: one `io_uring_enter` each and nothing else.
#[test]
fn relayed_reads_cost_one_enter() -> Result<()> {
    reads_cost_enters(Flow::Delegated, 1)
}

/// A served one is read by one submission and answered by another. A regression: each read rang the queue's own bell, at the
/// price of a write, a read and the bell's completion.
#[test]
fn served_reads_cost_two_enters() -> Result<()> {
    reads_cost_enters(Flow::Served, 2)
}

fn reads_cost_enters(flow: Flow, each: u64) -> Result<()> {
    const ROUNDS: u64 = 300;
    let Some(stage) = Stage::make(Transport::Uring, flow)? else { return Ok(()) };
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    fs::read(stage.source.join("file"))?;
    // O_DIRECT keeps the mount's own page cache out: each read is a request. Below, the bytes are cached.
    let file = rustix::fs::open(stage.path("file"), flags, rustix::fs::Mode::empty())?;
    let read = || -> Result<()> {
        let mut room = vec![0_u8; 8192];
        let start = room.as_ptr().align_offset(4096);
        for round in 0..ROUNDS {
            rustix::io::pread(&file, &mut room[start..start + 4096], round % 256 * 4096)?;
        }
        Ok(())
    };
    let seen = stage.requests(read)?;
    let reads = seen.get("READ").copied().unwrap_or(0);
    ensure!(reads == ROUNDS, "{ROUNDS} reads sent {seen:?}");
    if let Some(calls) = stage.calls(read)? {
        let enters = calls.get("io_uring_enter").copied().unwrap_or(0);
        // The first few after a pause each set a timer, by which requests that take too long are found, and stop it.
        let timers = calls.get("timerfd_settime").copied().unwrap_or(0);
        ensure!(timers <= 40, "{ROUNDS} reads set {timers} timers: {calls:?}");
        let others = calls.iter().filter(|(name, _)| *name != "io_uring_enter").map(|(_, count)| count);
        let others = others.sum::<u64>() - timers;
        say(&format!("{flow:?}: {ROUNDS} reads made {enters} io_uring_enter and {others} other calls"));
        let most = each * (ROUNDS + ROUNDS / 20 + 8);
        ensure!(enters <= most, "{ROUNDS} reads made {enters} io_uring_enter: {calls:?}");
        ensure!(others <= 8, "{ROUNDS} reads made other calls: {calls:?}");
    }
    drop(file);
    stage.end()
}

/// All system calls that the server makes for one request of a lone caller, those on its own descriptors included: no more than when
/// these numbers were taken, which was before operations belonged to their slots.
#[test]
fn a_request_makes_no_more_calls_than_it_did() -> Result<()> {
    const ROUNDS: u64 = 320;
    for transport in Transport::ALL {
        let Some(stage) = Stage::make_with(transport, Flow::Delegated, &["--threads", "1"])? else {
            continue;
        };
        for index in 0..2 * ROUNDS {
            fs::write(stage.source.join(format!("names/{index}")), "")?;
        }
        look_at(&stage.path("names"))?;
        fs::read(stage.source.join("file"))?;
        let direct = rustix::fs::open(
            stage.path("file"),
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::DIRECT,
            rustix::fs::Mode::empty(),
        )?;
        let rounds = |each: &dyn Fn(u64, &mut [u8]) -> Result<()>| -> Result<()> {
            let mut room = vec![b'x'; 8192];
            let start = room.as_ptr().align_offset(4096);
            (0..ROUNDS).try_for_each(|round| each(round, &mut room[start..start + 4096]))
        };
        let first = std::cell::Cell::new(0);
        let lookup = || {
            let from = first.replace(ROUNDS);
            rounds(&|round, _| look_at(&stage.path(&format!("names/{}", from + round))))
        };
        let getattr = || {
            rounds(&|_, room| {
                let flags = rustix::fs::AtFlags::STATX_FORCE_SYNC;
                let path = stage.path("file");
                room[0] = u8::from(
                    rustix::fs::statx(rustix::fs::CWD, path, flags, rustix::fs::StatxFlags::SIZE)?.stx_size
                        == 0,
                );
                Ok(())
            })
        };
        let open = || rounds(&|_, _| File::open(stage.path("file")).map(drop).map_err(Into::into));
        let read =
            || rounds(&|round, room| Ok(rustix::io::pread(&direct, room, round % 256 * 4096).map(drop)?));
        let write =
            || rounds(&|round, room| Ok(rustix::io::pwrite(&direct, room, round % 256 * 4096).map(drop)?));
        let all: [(&str, &dyn Fn() -> Result<()>); 5] =
            [("lookup", &lookup), ("getattr", &getattr), ("open", &open), ("read", &read), ("write", &write)];
        for (name, act) in all {
            // What comes once is not counted.
            if name != "lookup" {
                act()?;
            }
            let mut least = None;
            for _ in 0..if name == "lookup" { 2 } else { 3 } {
                let Some(calls) = stage.calls(act)? else { return Ok(()) };
                say(&format!("{transport:?}: {ROUNDS} x {name} made {calls:?}"));
                // While few requests come, which is so where each call is counted on a slow machine, the watcher sleeps, and whoever serves
                // sets a timer and takes it back.
                let timers = calls.get("timerfd_settime").copied().unwrap_or(0);
                ensure!(timers <= 2 * ROUNDS + 8, "{transport:?}: {ROUNDS} x {name} set {timers} timers");
                let sum = calls.values().sum::<u64>() - timers;
                least = Some(least.map_or(sum, |least: u64| least.min(sum)));
            }
            let hundredths = least.unwrap_or(0) * 100 / ROUNDS;
            say(&format!("{transport:?}: {name} makes {hundredths} calls in 100 rounds"));
            ensure!(
                hundredths <= most_calls(transport, name),
                "{transport:?}: {name} makes {hundredths} calls in 100 rounds"
            );
        }
        drop(direct);
        stage.end()?;
    }
    Ok(())
}

/// A request makes as many calls before somebody looks at it (`shunt trace`, `shunt top`) as after that, and more meanwhile.
#[test]
fn who_looks_at_requests_costs_calls_only_while_he_looks() -> Result<()> {
    const ROUNDS: u64 = 300;
    const LOOKS: [(&[&str], &[u8]); 2] =
        [(&["trace", "--errors"], b"shunt-trace\n"), (&["top", "--json", "-n", "30"], b"shunt-load\n")];
    for (transport, (command, thread)) in
        Transport::ALL.into_iter().flat_map(|transport| LOOKS.map(|look| (transport, look)))
    {
        let Some(stage) = Stage::make_with(transport, Flow::Delegated, &["--threads", "1"])? else {
            continue;
        };
        let ask = || -> Result<()> {
            for _ in 0..ROUNDS {
                let flags = rustix::fs::AtFlags::STATX_FORCE_SYNC;
                rustix::fs::statx(rustix::fs::CWD, stage.path("file"), flags, rustix::fs::StatxFlags::SIZE)?;
            }
            Ok(())
        };
        // A thread that the server has yet to start would come while calls are counted.
        std::thread::sleep(Duration::from_millis(200));
        // Timers are set while few requests come, which is so where each call is counted.
        let count = || -> Result<Option<u64>> {
            let mut least = None;
            for _ in 0..3 {
                let Some(mut calls) = stage.calls(ask)? else { return Ok(None) };
                calls.remove("timerfd_settime");
                let sum = calls.values().sum::<u64>();
                least = Some(least.map_or(sum, |least: u64| least.min(sum)));
            }
            Ok(least)
        };
        let Some(before) = count()? else { return Ok(()) };
        let mut looker = std::process::Command::new(shuntfs_testkit::mounted::shunt_binary()?)
            .args(command)
            .arg(stage.mount.path())
            .stdout(std::process::Stdio::null())
            .spawn()?;
        let looks = || -> Result<bool> {
            let threads = fs::read_dir(format!("/proc/{}/task", stage.mount.pid()))?.flatten();
            let names = threads.filter_map(|thread| fs::read(thread.path().join("comm")).ok());
            Ok(names.into_iter().any(|name| name == thread))
        };
        let wait = |is_to_look| {
            shuntfs_testkit::limit::wait_until(Duration::from_secs(10), || {
                looks().is_ok_and(|it| it == is_to_look)
            })
        };
        ensure!(wait(true), "nobody looks");
        // Whoever looks wants to know the caller's name, which the server reads for each request.
        let Some(tracer) = Tracer::follow(stage.mount.pid())? else { return Ok(()) };
        ask()?;
        std::thread::sleep(Duration::from_millis(60));
        let meanwhile: u64 = tracer.stop()?.values().sum();
        looker.kill()?;
        looker.wait()?;
        ensure!(wait(false), "somebody looks for ever");
        let after = count()?.unwrap_or(0);
        say(&format!(
            "{transport:?}: {ROUNDS} x getattr made {before} calls, {meanwhile} with {command:?}, {after} afterwards"
        ));
        ensure!(meanwhile >= before + ROUNDS, "{transport:?}: it was looked at each of them");
        ensure!(after <= before + ROUNDS / 10, "{transport:?}: {before} calls before and {after} after");
        stage.end()?;
    }
    Ok(())
}

/// How many calls 100 rounds may make: those of commit 430ddad, counted by this test, and 12 more for what comes by chance (a look
/// whether another request waits, setting a timer for the first requests after a pause).
fn most_calls(transport: Transport, name: &str) -> u64 {
    let counted = match (transport == Transport::Uring, name) {
        (false, "lookup") => 407,
        (false, "getattr") => 304,
        (false, "open") => 404,
        (false, _) => 301,
        (true, "lookup") => 304,
        (true, "read") => 100,
        (true, _) => 200,
    };
    counted + 12
}

/// READs of a direct caller on a device. One at a time each costs three calls, one of them below. In company the thread
/// does not wait below: what several need is submitted in one call.
#[test]
fn direct_reads_share_calls_in_company_alone() -> Result<()> {
    const ROUNDS: u64 = 400;
    for (transport, callers) in
        [(Transport::Device, 1), (Transport::Device, 8), (Transport::Cloned, 1), (Transport::Cloned, 8)]
    {
        let Some(stage) = Stage::make_with(transport, Flow::Delegated, &["--threads", "1"])? else {
            continue;
        };
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
        let file = rustix::fs::open(stage.path("file"), flags, rustix::fs::Mode::empty())?;
        let one = |first: u64| -> Result<()> {
            let mut room = vec![0_u8; 8192];
            let start = room.as_ptr().align_offset(4096);
            for round in 0..ROUNDS / callers {
                rustix::io::pread(&file, &mut room[start..start + 4096], (first + round) % 256 * 4096)?;
            }
            Ok(())
        };
        let read = || -> Result<()> {
            std::thread::scope(|scope| {
                let all: Vec<_> = (0..callers).map(|caller| scope.spawn(move || one(caller * 31))).collect();
                all.into_iter().try_for_each(|caller| caller.join().expect("no panic"))
            })
        };
        // The threads that the kernel makes for a ring come once; those that come later would not be counted.
        read()?;
        let mut verdict = Ok(());
        // Beside busy programs the thread comes late, and then finds company where there is one caller; that once
        // in five times it does not is enough.
        for _ in 0..5 {
            let calls = match stage.calls(read) {
                Ok(Some(calls)) => calls,
                Ok(None) => return Ok(()),
                Err(error) => {
                    verdict = Err(error);
                    continue;
                }
            };
            say(&format!("{ROUNDS} direct reads by {callers} on {transport:?} made {calls:?}"));
            verdict = if callers == 1 { are_plain(ROUNDS, &calls) } else { are_shared(ROUNDS, &calls) };
            if verdict.is_ok() {
                break;
            }
        }
        verdict?;
        drop(file);
        stage.end()?;
    }
    Ok(())
}

/// Whether each of so many reads took the three calls that a lone caller's takes.
fn are_plain(reads: u64, calls: &BTreeMap<String, u64>) -> Result<()> {
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    ensure!(of("pread64") + of("preadv2") >= reads * 3 / 4, "plain calls serve one: {calls:?}");
    ensure!(of("read") + of("writev") <= reads * 5 / 2, "and two more calls: {calls:?}");
    ensure!(of("poll") + of("ppoll") <= reads / 8, "company is looked for seldom: {calls:?}");
    Ok(())
}

/// Whether so many reads shared calls.
fn are_shared(reads: u64, calls: &BTreeMap<String, u64>) -> Result<()> {
    let of = |name: &str| calls.get(name).copied().unwrap_or(0);
    ensure!(of("pread64") <= reads / 4, "the thread waits below: {calls:?}");
    ensure!((1..reads).contains(&of("io_uring_enter")), "calls are not shared: {calls:?}");
    ensure!(of("writev") + of("write") <= reads / 4, "answers do not leave together: {calls:?}");
    Ok(())
}

/// A long READ on a device is spliced: header into the pipe, pages by reference, pipe to the device. Nothing copies it
/// through the server's memory. (One of 1 MiB, as readahead is by default, is too long for the pipe of a server without `CAP_SYS_RESOURCE`.)
#[test]
fn spliced_reads_cost_two_splices() -> Result<()> {
    const ROUNDS: u64 = 40;
    for transport in [Transport::Device, Transport::Cloned] {
        let args = ["-o", "max_readahead=131072"];
        let Some(stage) = Stage::make_with(transport, Flow::Delegated, &args)? else { continue };
        fs::write(stage.source.join("long"), vec![b'l'; 16 << 20])?;
        let file = File::open(stage.path("long"))?;
        let read = || -> Result<()> {
            let mut room = vec![0_u8; 128 << 10];
            for round in 0..ROUNDS {
                file.read_at(&mut room, round * (128 << 10))?;
            }
            Ok(())
        };
        let Some(calls) = stage.calls(read)? else { return Ok(()) };
        let of = |name: &str| calls.get(name).copied().unwrap_or(0);
        say(&format!("splice: {ROUNDS} reads of 128 KiB on {transport:?} made {calls:?}"));
        // Readahead joins and adds READs; each spliced one is two splices and the header's write.
        ensure!(of("splice") >= ROUNDS, "{transport:?}: {ROUNDS} reads made {calls:?}");
        ensure!(
            of("splice").abs_diff(2 * of("write")) <= 2,
            "{transport:?}: two splices a header: {calls:?}"
        );
        ensure!(of("pread64") + of("writev") <= ROUNDS / 4, "{transport:?}: bytes were copied: {calls:?}");
        drop(file);
        stage.end()?;
    }
    Ok(())
}

/// An idle mount sleeps: no thread of the server wakes up.
#[test]
fn an_idle_mount_sleeps() -> Result<()> {
    for transport in Transport::ALL {
        let Some(stage) = Stage::make(transport, Flow::Passthrough)? else { continue };
        fs::read(stage.path("file"))?;
        // What is done once after the last request (memory given back, a thread without work ending), and what the
        // kernel forgets in its own time, wakes it once, in one of these; what wakes it again and again, in each.
        let windows = (0..5).map(|_| -> Result<u64> {
            let before = wakeups(stage.mount.pid())?;
            std::thread::sleep(Duration::from_secs(2));
            Ok(wakeups(stage.mount.pid())? - before)
        });
        let mut woken = Vec::new();
        for window in windows {
            woken.push(window?);
            if woken.ends_with(&[0]) {
                break;
            }
        }
        ensure!(woken.ends_with(&[0]), "{transport:?}: wakeups in two idle seconds each: {woken:?}");
        stage.end()?;
    }
    Ok(())
}

/// What it costs to act as the caller, per creation: nothing where that is whom the server is, and nothing for a umask that is the last
/// caller's. Ids are changed, asked for, changed back and asked for again each time, because much else looks at them.
#[test]
fn creations_change_no_more_of_the_identity_than_differs() -> Result<()> {
    const ROUNDS: u64 = 60;
    const MADE: u32 = 0o666;
    let (root, one, other) = (Identity::new(0, 0), Identity::new(1000, 1000), Identity::new(1001, 1002));
    let secretive = Identity::new(0, 0).umask(0o077);
    // Callers in turns; then the ids and the umasks that are set for 100 creations.
    let turns: [(&str, [&Identity; 2], u64, u64); 4] = [
        ("root", [&root, &root], 0, 0),
        ("a user", [&one, &one], 800, 0),
        ("two users", [&one, &other], 800, 0),
        ("two umasks", [&root, &secretive], 0, 100),
    ];
    for transport in Transport::ALL {
        let Some(stage) = Stage::make_with(transport, Flow::Passthrough, &["--threads", "1"])? else {
            continue;
        };
        let home = stage.path("names");
        fs::set_permissions(&home, fs::Permissions::from_mode(0o777))?;
        let act = |callers: [&Identity; 2], each: &(dyn Fn(PathBuf) -> std::io::Result<()> + Sync)| {
            (0..ROUNDS).try_for_each(|round| {
                let path = home.join(round.to_string());
                Ok(callers[usize::from(round % 2 == 1)].run(|| each(path))?)
            })
        };
        let create =
            |path: PathBuf| File::options().write(true).create_new(true).mode(MADE).open(path).map(drop);
        let mkdir = |path: PathBuf| fs::create_dir(path);
        let (unlink, rmdir) = (|path: PathBuf| fs::remove_file(path), |path: PathBuf| fs::remove_dir(path));
        for (name, callers, ids, umasks) in turns {
            // The umask of whoever came before may have to go first, and each queue has one.
            act(callers, &create)?;
            act(callers, &unlink)?;
            let [Some(made), Some(gone), Some(folders)] = [
                stage.calls(|| act(callers, &create))?,
                stage.calls(|| act(callers, &unlink))?,
                stage.calls(|| act(callers, &mkdir))?,
            ] else {
                return Ok(());
            };
            act(callers, &rmdir)?;
            let of = |calls: &BTreeMap<String, u64>, names: [&str; 2]| -> u64 {
                names.iter().filter_map(|name| calls.get(*name)).sum()
            };
            for (what, calls) in [("CREATE", &made), ("MKDIR", &folders)] {
                let all = calls.values().sum::<u64>() * 100 / ROUNDS;
                say(&format!("{transport:?}: 100 {what} by {name} made {all} calls: {calls:?}"));
                ensure!(
                    of(calls, ["setfsuid", "setfsgid"]) == ids * ROUNDS / 100,
                    "{transport:?}: {what} by {name}: {calls:?}"
                );
                let masks = of(calls, ["umask", "setgroups"]);
                // A caller may change over to a queue that has served others last.
                ensure!(
                    masks <= umasks * ROUNDS / 100 + 4,
                    "{transport:?}: {what} by {name} set {masks} umasks: {calls:?}"
                );
            }
            ensure!(
                of(&gone, ["setfsuid", "setfsgid"]) + of(&gone, ["umask", "setgroups"]) == 0,
                "{transport:?}: removals by {name}: {gone:?}"
            );
        }
        stage.end()?;
    }
    Ok(())
}
