//! One mount and the steps on it; and the fewest steps that still show a finding.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::seeded::Random;

use crate::act::{Hands, bytes_of};
use crate::generate::{self, TOPS};
use crate::judge::World;
use crate::rules::{OWNER, RuleSet};
use crate::step::{Action, Step};

/// How long a mount may be up: long runs take many steps on a machine that others use.
const LIMIT_SECONDS: u64 = 1200;

/// A seed's steps on one mount.
pub(crate) struct Episode {
    transport: Transport,
    flow: Flow,
    seed: u64,
    len: usize,
    /// Others change the folder below the mount, which is mounted with `--cache none`.
    changes_below: bool,
    /// Two branches are shown, and the kernel keeps so much. A new file goes to either by chance, so that a finding may not show again.
    branches: Option<&'static str>,
}

/// What came of it.
pub(crate) enum Outcome {
    Skipped,
    Clean { steps: u64, granted: u64 },
    Found(Finding),
}

/// The steps up to one that got too much, and what that was.
pub(crate) struct Finding {
    pub(crate) steps: Vec<Step>,
    pub(crate) what: String,
}

/// Where the steps come from.
enum Script<'s> {
    Seed(Random, usize),
    Steps(&'s [Step]),
}

impl Episode {
    pub(crate) fn new(transport: Transport, flow: Flow, seed: u64, len: usize) -> Self {
        Self { transport, flow, seed, len, changes_below: false, branches: None }
    }

    pub(crate) fn with_changes_below(self) -> Self {
        Self { changes_below: true, ..self }
    }

    pub(crate) fn on_branches(self, cache: &'static str) -> Self {
        Self { branches: Some(cache), ..self }
    }

    pub(crate) fn run(&self) -> Result<Outcome> {
        self.play(Script::Seed(Random::new(self.seed), self.len))
    }

    /// Leaves out whatever can be left out.
    pub(crate) fn shrink(&self, finding: Finding) -> Result<(String, String)> {
        let Finding { mut steps, mut what } = finding;
        let mut piece = steps.len().div_ceil(2);
        loop {
            let mut at = 0;
            while at < steps.len() {
                let mut fewer = steps.clone();
                fewer.drain(at..(at + piece).min(fewer.len()));
                match self.play(Script::Steps(&fewer))? {
                    Outcome::Found(found) => (steps, what) = (found.steps, found.what),
                    _ => at += piece,
                }
            }
            if piece == 1 {
                break;
            }
            piece = piece.div_ceil(2);
        }
        let mut script = String::new();
        for step in &steps {
            writeln!(script, "    {step}")?;
        }
        Ok((script, what))
    }

    fn play(&self, mut script: Script<'_>) -> Result<Outcome> {
        let Some(mut play) = Play::begin(self)? else { return Ok(Outcome::Skipped) };
        let mut taken: Vec<Step> = Vec::new();
        let mut granted = 0;
        loop {
            let step = match &mut script {
                Script::Seed(_, left) if *left == 0 => break,
                Script::Seed(random, left) => {
                    *left -= 1;
                    let next =
                        if self.changes_below { generate::step_with_changes_below } else { generate::step };
                    next(random, &play.world.model)
                }
                Script::Steps([]) => break,
                Script::Steps(steps) => {
                    let (first, rest) = steps.split_first().context("is not empty")?;
                    *steps = rest;
                    first.clone()
                }
            };
            taken.push(step.clone());
            match play.step(&step)? {
                Some(what) => return Ok(Outcome::Found(Finding { steps: taken, what })),
                None => granted += u64::from(play.was_granted),
            }
            // Between: what was refused has changed nothing.
            if taken.len().is_multiple_of(500)
                && let Err(error) = play.check()
            {
                return Ok(Outcome::Found(Finding { steps: taken, what: format!("{error:#}") }));
            }
        }
        if let Err(error) = play.check() {
            return Ok(Outcome::Found(Finding { steps: taken, what: format!("{error:#}") }));
        }
        let steps = taken.len() as u64;
        play.end()?;
        Ok(Outcome::Clean { steps, granted })
    }
}

/// A mount with its users.
struct Play {
    hands: Hands,
    world: World,
    was_granted: bool,
    rules: PathBuf,
    reloads: u64,
    mount: Mounted,
    _lower: Lower,
}

impl Play {
    fn begin(episode: &Episode) -> Result<Option<Self>> {
        // Permissions are not what is tried here: everybody may do everything. What is nothing to the group spares the kernel
        // its question about access lists, which would be a third of all requests.
        rustix::process::umask(rustix::fs::Mode::empty());
        let Some(lower) = Lower::make(LowerKind::Tmpfs)? else { return Ok(None) };
        let count = if episode.branches.is_some() { 2 } else { 1 };
        let sources = (0..count).map(|index| lower.folder(&format!("source{index}")));
        let sources = sources.collect::<Result<Vec<PathBuf>>>()?;
        let rules = lower.path().join("rules.toml");
        RuleSet::default().put(&rules)?;
        let mut world =
            World { sources: sources.clone(), changes_below: episode.changes_below, ..World::default() };
        fill(&sources, &mut world)?;
        let shown = sources.iter().map(|source| source.as_os_str()).collect::<Vec<_>>().join(OsStr::new(":"));
        let mut spec =
            MountSpec::new(Path::new(&shown), episode.transport, episode.flow).limit(LIMIT_SECONDS);
        if let Some(cache) = episode.branches {
            spec = spec.args(&["--create", "rand", "--minfreespace", "0", "--cache", cache]);
        }
        spec.args.extend(["--rules".into(), rules.clone().into_os_string()]);
        if episode.changes_below {
            spec.args.extend(["--cache".into(), "none".into()]);
        }
        let Some(mount) = Mounted::start(&spec)? else { return Ok(None) };
        let hands = Hands::at(mount.path(), &sources[0])?;
        Ok(Some(Self { hands, world, was_granted: false, rules, reloads: 0, mount, _lower: lower }))
    }

    /// Takes a step; something where it is a finding.
    fn step(&mut self, step: &Step) -> Result<Option<String>> {
        if step.action == Action::Reload {
            self.reload()?;
            return Ok(None);
        }
        let got = self.hands.take(step);
        self.was_granted = got.is_ok();
        let Ok(got) = got else { return Ok(None) };
        let finding = self.world.judge(step, &got).err();
        Ok(finding.map(|error| format!("{step}: {error:#}")))
    }

    fn reload(&mut self) -> Result<()> {
        let next = RuleSet { is_swapped: !self.world.rules.is_swapped };
        next.put(&self.rules)?;
        self.mount.signal(Signal::HUP)?;
        self.reloads += 1;
        let mut last = String::new();
        let done = wait_until(Duration::from_secs(20), || match self.mount.status() {
            Ok(status) if status.0["rules"]["reloads"] == self.reloads => true,
            answer => {
                last = format!("{answer:?}");
                false
            }
        });
        ensure!(done, "the rules were not read again ({} times): {last}\n{}", self.reloads, self.mount.log());
        self.world.rules = next;
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        self.world.check()
    }

    fn end(mut self) -> Result<()> {
        drop(self.hands);
        self.world = World::default();
        let status = self.mount.unmount()?;
        ensure!(status.success(), "the server ended with {status}:\n{}", self.mount.log());
        Ok(())
    }
}

/// Makes folders, files, and files with a name in two of the folders, before there is a mount. Where there are several sources each folder
/// is in one of them, but the one that rules do not speak of, which is in all.
fn fill(sources: &[PathBuf], world: &mut World) -> Result<()> {
    let open = |path: &Path, mode| -> Result<()> {
        chown(path, Some(OWNER), Some(OWNER))?;
        Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
    };
    for (top, number) in TOPS.iter().zip(900_000..) {
        let source = &sources[usize::try_from(number)? % sources.len()];
        let everywhere = sources.iter().filter(|here| *here == source || *top == "free");
        for source in everywhere {
            for folder in [(*top).to_owned(), format!("{top}/sub")] {
                fs::create_dir(source.join(&folder))?;
                open(&source.join(&folder), 0o707)?;
                world.model.folders.insert(folder);
            }
        }
        let (first, second) = (format!("{top}/a"), format!("{top}/sub/b"));
        fs::write(source.join(&first), bytes_of(number))?;
        open(&source.join(&first), 0o606)?;
        world.model.made(sources, &first)?;
        fs::write(source.join(&second), bytes_of(number + 100))?;
        open(&source.join(&second), 0o606)?;
        let id = world.model.made(sources, &second)?;
        if *top != "free" {
            let free = format!("free/{top}");
            fs::hard_link(source.join(&second), source.join(&free))?;
            world.model.name(&free, id);
        }
    }
    Ok(())
}
