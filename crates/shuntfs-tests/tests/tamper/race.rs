//! The same tamperer while others look: whatever the moment, what they get is as it was sealed, or an error.
//!
//! `SHUNTFS_TAMPER_SECONDS` says for how long each transport is raced on (4), `SHUNTFS_TAMPER_SEED` with which seed it begins.
//! A moment does not come again by its seed, so that nothing is made short here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use shuntfs_testkit::mounted::Transport;
use shuntfs_testkit::seeded::Random;
use shuntfs_testkit::{Serial, say, serial};

use crate::case::{Case, Stage};
use crate::ground::Ground;
use crate::look::{Seen, Viewer};
use crate::number;
use crate::step::{self, Step};

/// Who looks at the same time.
const VIEWERS: u64 = 3;
/// How long one mount is raced on, so that a long race meets all kinds of mounts.
const SECONDS_OF_CASE: u64 = 60;

/// What all threads know.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    changes: AtomicU64,
    good: AtomicU64,
    refused: AtomicU64,
    finding: Mutex<Option<String>>,
}

impl Shared {
    fn found(&self, what: String) {
        self.finding.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
        self.stop.store(true, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

fn tamperer(shared: &Shared, ground: &Ground, mut random: Random) -> Result<()> {
    while shared.goes_on() {
        match step::change(&mut random) {
            Step::Below(change) => ground.tamper(&change).with_context(|| format!("{change:?}"))?,
            Step::Store(file, change) => ground.tamper_store(file, &change),
            Step::Look(_) => {}
        }
        shared.changes.fetch_add(1, Ordering::Relaxed);
        // As long as a few looks take: what is changed all the time is never seen whole.
        thread::sleep(Duration::from_micros(random.number() % 1000));
    }
    Ok(())
}

fn viewer(shared: &Shared, mut viewer: Viewer<'_>, mut random: Random) {
    while shared.goes_on() {
        let look = step::look(&mut random);
        match viewer.look(&look) {
            Seen::Nothing => {}
            Seen::Good => drop(shared.good.fetch_add(1, Ordering::Relaxed)),
            Seen::Refused => drop(shared.refused.fetch_add(1, Ordering::Relaxed)),
            Seen::Wrong(what) => shared.found(format!("{look:?}: {what}")),
        }
    }
}

/// Everybody at once, until the time is over; an error is a finding.
fn at_once(shared: &Shared, case: &Case, stage: &Stage, length: Duration) -> Result<()> {
    let Stage { mount, ground, .. } = stage;
    thread::scope(|scope| {
        let changes = scope.spawn(|| tamperer(shared, ground, Random::new(case.seed)));
        for number in 1..=VIEWERS {
            let random = Random::new(case.seed ^ number << 32);
            scope.spawn(move || {
                viewer(shared, Viewer::new(ground, mount.path(), case.is_required), random);
            });
        }
        let end = Instant::now() + length;
        while Instant::now() < end && shared.goes_on() && !changes.is_finished() {
            thread::sleep(Duration::from_millis(20));
        }
        shared.stop.store(true, Ordering::Relaxed);
        changes.join().unwrap_or_else(|_| bail!("the tamperer panicked"))
    })
}

fn race(transport: Transport) -> Result<()> {
    let _serial: Serial = serial();
    let (seconds, first) = (number("SHUNTFS_TAMPER_SECONDS", 4)?, number("SHUNTFS_TAMPER_SEED", 1)?);
    let (mut good, mut refused, mut changes) = (0, 0, 0);
    // Two cases at the least: every second seed is of a mount that shows nothing but what was sealed.
    let length = (seconds / 2).clamp(1, SECONDS_OF_CASE);
    for seed in first..first + seconds.div_ceil(length) {
        let case = Case::new(seed, transport);
        let Some(stage) = case.stage(length + 60)? else { return Ok(()) };
        let shared = Shared::default();
        let said = || format!("SHUNTFS_TAMPER_SEED={seed} on {}, {case}", transport.name());
        at_once(&shared, &case, &stage, Duration::from_secs(length)).with_context(said)?;
        let finding = shared.finding.into_inner().unwrap_or_else(PoisonError::into_inner);
        let finding = finding.map_or_else(|| case.lasting(&stage), |what| Ok(Some(what)));
        if let Some(what) = finding.with_context(said)? {
            bail!("{}: {what}\n{}", said(), stage.mount.log());
        }
        changes += shared.changes.into_inner();
        good += shared.good.into_inner();
        refused += shared.refused.into_inner();
    }
    say(&format!(
        "tampering at once on {}: {changes} changes, {good} looks as sealed, {refused} refused, from seed {first} on",
        transport.name()
    ));
    ensure!(good > 0 && refused > 0, "nothing was read, or nothing refused");
    Ok(())
}

#[test]
fn at_once_on_a_device() -> Result<()> {
    race(Transport::Device)
}

#[test]
fn at_once_on_cloned_devices() -> Result<()> {
    race(Transport::Cloned)
}

#[test]
fn at_once_on_io_uring() -> Result<()> {
    race(Transport::Uring)
}
