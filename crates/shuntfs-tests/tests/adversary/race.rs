//! The same adversary, many at once: no model can follow, so some bytes are marked that one user or another must never
//! see, and the owner never gives them away.
//!
//! `SHUNTFS_ADVERSARY_SECONDS` says for how long each transport is raced on (4).

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::say;
use shuntfs_testkit::seeded::Random;

use crate::act::{Got, Hands};
use crate::generate::{self, TOPS};
use crate::model::Model;
use crate::number;
use crate::rules::{OWNER, RuleSet, SECOND, THIRD};
use crate::step::{Action, Step};

/// The folder whose files nobody but the owner reads, and what is in each of them.
const VAULT: &str = "denied";
const MARK: &[u8] = b"THE MARK OF THE VAULT";
/// How many marked files there are. Their names in the vault stay: no owner removes them, and nobody else may.
const MARKED: usize = 6;

/// What all threads know.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    steps: AtomicU64,
    granted: AtomicU64,
    finding: Mutex<Option<String>>,
}

impl Shared {
    fn found(&self, what: String) {
        self.finding.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A model of names that may be there, for steps that meet something.
fn likely() -> Model {
    let mut model = Model::default();
    for top in TOPS {
        model.folders.extend([top.to_owned(), format!("{top}/sub"), format!("{top}/s_sub")]);
        let names = (0..MARKED).map(|index| format!("m{index}"));
        for name in names.chain(["a", "b", "c", "d.key", "s_e", "f"].map(str::to_owned)) {
            model.files.insert(format!("{top}/{name}"), 0);
            model.files.insert(format!("{top}/sub/{name}"), 0);
        }
    }
    model
}

/// One who tries everything, and must never see the mark.
fn adversary(shared: &Shared, (mount, source): (&Path, &Path), uid: u32, seed: u64) -> Result<()> {
    let (mut hands, mut random, model) = (Hands::at(mount, source)?, Random::new(seed), likely());
    while !shared.stop.load(Ordering::Relaxed) {
        let action = generate::step(&mut random, &model).action;
        if matches!(action, Action::Reload | Action::ForgetNames) {
            continue;
        }
        let step = Step { uid, action };
        let got = hands.take(&step);
        shared.steps.fetch_add(1, Ordering::Relaxed);
        shared.granted.fetch_add(u64::from(got.is_ok()), Ordering::Relaxed);
        if let Ok(Got::Bytes(bytes)) = got
            && bytes.windows(MARK.len()).any(|window| window == MARK)
        {
            shared.found(format!("{step} got `{}`", bytes.escape_ascii()));
        }
    }
    Ok(())
}

/// The owner gives marked files further names, moves and removes those, and never their names in the vault.
fn owner(shared: &Shared, (mount, source): (&Path, &Path)) -> Result<()> {
    let (mut hands, mut random) = (Hands::at(mount, source)?, Random::new(7));
    while !shared.stop.load(Ordering::Relaxed) {
        let marked = format!("{VAULT}/m{}", random.below(MARKED));
        let beside = |random: &mut Random| {
            let top = TOPS[random.below(TOPS.len())];
            let folder = if random.below(2) == 0 { "/sub" } else { "" };
            format!("{top}{folder}/{}", ["a", "b", "c", "d.key", "f"][random.below(5)])
        };
        let action = match random.below(6) {
            0..=2 => Action::Link(marked, beside(&mut random)),
            3 => Action::Rename(beside(&mut random), beside(&mut random)),
            4 => Action::MakeFolder(format!("{}/sub", TOPS[random.below(TOPS.len())])),
            _ => Action::Unlink(beside(&mut random)),
        };
        drop(hands.take(&Step { uid: OWNER, action }));
        thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn make(source: &Path) -> Result<()> {
    let open = |path: &Path, mode| -> Result<()> {
        chown(path, Some(OWNER), Some(OWNER))?;
        Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
    };
    for top in TOPS {
        for folder in [top.to_owned(), format!("{top}/sub")] {
            fs::create_dir(source.join(&folder))?;
            open(&source.join(&folder), 0o707)?;
        }
    }
    for index in 0..MARKED {
        let path = source.join(VAULT).join(format!("m{index}"));
        fs::write(&path, [b"12345678", MARK].concat())?;
        open(&path, 0o606)?;
        fs::hard_link(&path, source.join(format!("free/m{index}")))?;
    }
    Ok(())
}

fn race(transport: Transport, flow: Flow) -> Result<()> {
    rustix::process::umask(rustix::fs::Mode::empty());
    let Some(lower) = Lower::make(LowerKind::Tmpfs)? else { return Ok(()) };
    let source = lower.folder("source")?;
    let rules = lower.path().join("rules.toml");
    RuleSet::default().put(&rules)?;
    make(&source)?;
    let seconds = number("SHUNTFS_ADVERSARY_SECONDS", 4)?;
    let mut spec = MountSpec::new(&source, transport, flow).limit(seconds + 60);
    spec.args.extend(["--rules".into(), rules.into_os_string()]);
    let Some(mut mount) = Mounted::start(&spec)? else { return Ok(()) };
    let shared = Shared::default();
    let paths = (mount.path(), source.as_path());
    let outcomes: Vec<Result<()>> = thread::scope(|scope| {
        let users = [(SECOND, 1), (SECOND, 2), (THIRD, 3), (THIRD, 4)];
        let mut threads = vec![scope.spawn(|| owner(&shared, paths))];
        let shared = &shared;
        threads.extend(users.map(|(uid, seed)| scope.spawn(move || adversary(shared, paths, uid, seed))));
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end && !shared.stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(20));
        }
        shared.stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a user panicked"))).collect()
    });
    outcomes.into_iter().collect::<Result<()>>()?;
    let finding = shared.finding.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(finding.is_none(), "on {}: {}", transport.name(), finding.unwrap_or_default());
    still_there(&source)?;
    let (steps, granted) = (shared.steps.into_inner(), shared.granted.into_inner());
    say(&format!("adversaries at once on {}: {steps} operations, {granted} granted", transport.name()));
    ensure!(granted * 20 > steps, "{granted} of {steps} operations were granted");
    let status = mount.unmount()?;
    ensure!(status.success(), "the server ended with {status}:\n{}", mount.log());
    Ok(())
}

/// No marked file is available by names outside of the vault alone, nor has changed.
fn still_there(source: &Path) -> Result<()> {
    let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut open = vec![String::new()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(source.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if entry.file_type()?.is_dir() {
                open.push(path);
            } else if fs::read(entry.path())?.windows(MARK.len()).any(|window| window == MARK) {
                names.entry(std::os::unix::fs::DirEntryExt::ino(&entry)).or_default().push(path);
            }
        }
    }
    for names in names.values() {
        ensure!(
            names.iter().any(|name| name.starts_with(&format!("{VAULT}/"))),
            "a file of the vault is left with the names {names:?}"
        );
    }
    Ok(())
}

#[test]
fn adversaries_at_once_on_a_device() -> Result<()> {
    race(Transport::Device, Flow::Passthrough)
}

#[test]
fn adversaries_at_once_on_cloned_devices() -> Result<()> {
    race(Transport::Cloned, Flow::Passthrough)
}

#[test]
fn adversaries_at_once_on_io_uring() -> Result<()> {
    race(Transport::Uring, Flow::Passthrough)
}
