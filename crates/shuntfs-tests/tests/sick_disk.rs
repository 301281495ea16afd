//! How long calls on other branches take beside a disk that hangs, and beside one that is set aside, compared with the same calls when all is well.
//!
//! The disk is a mount of its own whose server is stopped. The three states follow each other in each round, so that what else the machine does
//! concerns all of them; of each, the best round counts.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstatfs, open, openat, statat, unlinkat};
use rustix::io::{read, write};
use rustix::process::Signal;
use shuntfs_testkit::limit::{run_with_timeout, wait_until};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::program::wait_for;
use shuntfs_testkit::{say, serial};

const ROUNDS: usize = 4;
const MOMENT: Duration = Duration::from_secs(20);

/// Each call is made so many times in a round, so that the p99 leaves out five.
const CALLS: usize = 500;
/// Or as often as it can be in this time, where the machine is busy.
const SPELL: Duration = Duration::from_millis(800);

/// For so long the disk may hang before it is set aside: the calls of that state have to be made by then.
const TIMEOUT: &str = "6s";

/// Since when operations leave their queues: after 40 ms.
const NOTICED: Duration = Duration::from_millis(200);

/// A call in a folder.
type Act = fn(&OwnedFd) -> Result<()>;

/// The calls, all by a folder that only the healthy branch has, and that is open: to walk there is to ask every branch whether it has the folder, too.
const KINDS: [(&str, Act); 5] = [
    ("stat", |own| Ok(statat(own, "file", AtFlags::SYMLINK_NOFOLLOW).map(drop)?)),
    ("open, read, close", |own| {
        let file = openat(own, "file", OFlags::RDONLY, Mode::empty())?;
        ensure!(read(&file, &mut [0; 4096])? == 4096);
        Ok(())
    }),
    ("create, write, close, unlink", |own| {
        let new = openat(own, "new", OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, Mode::RUSR)?;
        write(&new, b"new")?;
        drop(new);
        Ok(unlinkat(own, "new", AtFlags::empty())?)
    }),
    ("ls of 100 names", |own| {
        let names = openat(own, "names", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let count = Dir::new(names)?.count();
        ensure!(count == 102, "{count} names");
        Ok(())
    }),
    ("statfs", |own| Ok(fstatfs(own).map(drop)?)),
];

const STATES: [&str; 3] = ["all is well", "the disk hangs", "it is set aside"];

/// A pool of a folder and of a disk that can be made to hang.
struct Stage {
    own: OwnedFd,
    pool: Mounted,
    // After the pool, so that the pool ends first.
    disk: Mounted,
    _folders: [tempfile::TempDir; 2],
}

impl Stage {
    fn start(transport: Transport) -> Result<Option<Self>> {
        // In memory, where there is such a file system: a disk has delays of its own.
        let folder = || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folders = [folder()?, folder()?];
        let own = folders[0].path().join("own");
        fs::create_dir_all(own.join("names"))?;
        fs::write(own.join("file"), vec![b'x'; 4096])?;
        for number in 0..100 {
            fs::write(own.join("names").join(number.to_string()), "")?;
        }
        let below = MountSpec::new(folders[1].path(), Transport::Device, Flow::Served);
        let Some(disk) = Mounted::start(&below.args(&["--cache", "none"]))? else { return Ok(None) };
        let source = format!("{}:{}", folders[0].path().display(), disk.path().display());
        let spec = MountSpec::new(Path::new(&source), transport, Flow::Passthrough);
        let spec = spec.args(&["--cache", "none", "--create", "ff", "--minfreespace", "0"]);
        // Its threads are not to wait for what else the machine does.
        let spec = spec.args(&["--branch-timeout", TIMEOUT, "--sched-idle", "off"]);
        let Some(pool) = Mounted::start(&spec)? else { return Ok(None) };
        let own = open(pool.path().join("own"), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Some(Self { own, pool, disk, _folders: folders }))
    }

    fn health(&self) -> Result<String> {
        let status = self.pool.status()?.0;
        let health = status.pointer("/pool/branches/1/health").and_then(serde_json::Value::as_str);
        Ok(health.with_context(|| format!("no health in {status}"))?.to_owned())
    }

    fn is(&self, expected: &str) -> bool {
        self.health().is_ok_and(|health| health == expected)
    }

    /// Looks a name up that only the disk could have.
    fn caller(&self) -> Result<Child> {
        let mut command = Command::new("stat");
        command.arg(self.pool.path().join("nothing")).current_dir("/");
        Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    }

    /// How long each call takes, in order.
    fn times(&self, kind: Act) -> Result<Vec<Duration>> {
        let own = self.own.try_clone()?;
        run_with_timeout(MOMENT, "calls", move || {
            // The first creation waits up to a second for the space of the disk that hangs, and those after it do not (docs/pool.md).
            kind(&own)?;
            let (mut times, end) = (Vec::with_capacity(CALLS), Instant::now() + SPELL);
            while times.len() < CALLS && Instant::now() < end {
                let begun = Instant::now();
                kind(&own)?;
                times.push(begun.elapsed());
            }
            times.sort();
            Ok(times)
        })?
    }

    /// The p50 and p99 of each call, in each state.
    fn round(&self) -> Result<[[[Duration; 2]; KINDS.len()]; STATES.len()]> {
        let measure = || -> Result<[[Duration; 2]; KINDS.len()]> {
            let mut all = [[Duration::ZERO; 2]; KINDS.len()];
            for ((_, kind), one) in KINDS.iter().zip(&mut all) {
                let times = self.times(*kind)?;
                *one = [times[times.len() / 2], times[times.len() * 99 / 100]];
            }
            Ok(all)
        };
        let well = measure()?;
        self.disk.signal(Signal::STOP)?;
        let mut caller = self.caller()?;
        std::thread::sleep(NOTICED);
        let hanging = measure()?;
        ensure!(caller.try_wait()?.is_none(), "the disk was set aside before all calls were made");
        ensure!(wait_until(MOMENT, || self.is("aside")), "it is not set aside: {}", self.health()?);
        ensure!(wait_for(&mut caller, MOMENT)?.is_some(), "who waits for the disk is not answered");
        let aside = measure()?;
        ensure!(self.is("aside"), "it answers again: {}", self.health()?);
        self.disk.signal(Signal::CONT)?;
        ensure!(wait_until(MOMENT, || self.is("ok")), "it is not taken back: {}", self.health()?);
        Ok([well, hanging, aside])
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Whoever hangs goes on.
        drop(self.disk.signal(Signal::CONT));
    }
}

/// Who waits for a disk waits for a second or longer, so whatever else a busy machine does to a call is no reason to fail. The figures are said, and are for
/// a machine that does nothing else: `SHUNTFS_SICK_ROUNDS` has more rounds be made.
#[test]
fn calls_beside_a_disk_that_hangs_take_as_long_as_ever() -> Result<()> {
    /// Shorter than any wait for the disk.
    const WAIT: Duration = Duration::from_millis(500);
    let _serial = serial();
    let rounds = std::env::var("SHUNTFS_SICK_ROUNDS").map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    for transport in [Transport::Cloned, Transport::Uring] {
        let Some(stage) = Stage::start(transport)? else { continue };
        let mut best = [[[Duration::MAX; 2]; KINDS.len()]; STATES.len()];
        for _ in 0..rounds {
            let round = stage.round()?;
            for (best, now) in best.iter_mut().flatten().flatten().zip(round.iter().flatten().flatten()) {
                *best = (*best).min(*now);
            }
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        for (kind, (name, _)) in KINDS.iter().enumerate() {
            for (state, called) in STATES.iter().enumerate() {
                let [half, most] = best[state][kind];
                let ratio = most.as_secs_f64() / best[0][kind][1].as_secs_f64();
                let (half, most) = (micros(half), micros(most));
                say(&format!(
                    "{transport:?}: {name}, {called}: p50 {half:.1} µs, p99 {most:.1} µs ({ratio:.2} of well)"
                ));
            }
        }
        for (kind, (name, _)) in KINDS.iter().enumerate() {
            for (state, called) in STATES.iter().enumerate() {
                let now = best[state][kind];
                ensure!(
                    now.iter().all(|time| *time < WAIT),
                    "{transport:?}: {name}, {called}: p50 and p99 {now:?}"
                );
            }
        }
    }
    Ok(())
}
