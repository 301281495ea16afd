//! One mount, and so many steps on it from one seed, one after the other.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::mem::discriminant;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::{Lower, LowerKind};
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::seeded::{Random, shrink};

use crate::ground::Ground;
use crate::look::{Seen, Viewer};
use crate::step::{self, Step};
use crate::tree::Sealed;

/// How long a mount may be up: long runs take many steps on a machine that others use.
const LIMIT_SECONDS: u64 = 3600;
/// After a block was found bad it is examined again a second later.
const MENDED_AFTER: Duration = Duration::from_secs(15);

/// What is drawn from a seed before the steps are.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    transport: Transport,
    kind: LowerKind,
    flow: Flow,
    pub(crate) is_required: bool,
    keeps_cache: bool,
}

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    pub(crate) changes: u64,
    pub(crate) good: u64,
    pub(crate) refused: u64,
    pub(crate) mounts: u64,
}

/// A mount of what was sealed.
pub(crate) struct Stage {
    pub(crate) mount: Mounted,
    pub(crate) ground: Ground,
    _lower: Lower,
}

/// Where the steps come from.
enum Script<'s> {
    Random(Box<Random>, u64),
    List(&'s [Step]),
}

/// What is wrong.
#[derive(Clone, Debug)]
enum Finding {
    /// Something else was seen than was sealed.
    Seen(String),
    /// What was mended is not shown.
    Lasting(String),
}

/// How steps ended.
enum End {
    /// This machine cannot run them.
    Skipped,
    Well,
    /// With the last of these.
    Badly(Vec<Step>, Finding),
}

impl Case {
    pub(crate) fn new(seed: u64, transport: Transport) -> Self {
        let mut random = Random::new(seed);
        // Only what is not as the sealer left it may show through, so where passthrough could be had matters most.
        let kinds = [LowerKind::Ext4, LowerKind::Tmpfs, LowerKind::Xfs, LowerKind::Btrfs];
        Self {
            seed,
            transport,
            is_required: seed.is_multiple_of(2),
            kind: kinds[random.below(kinds.len())],
            flow: Flow::ALL[random.below(Flow::ALL.len())],
            keeps_cache: random.below(2) == 0,
        }
    }

    /// Takes so many steps; what was found, made short. `None` where the machine lacks what it takes.
    pub(crate) fn run(&self, steps: u64, tally: &mut Tally) -> Result<Option<Option<String>>> {
        let random = Random::new(self.seed ^ 0x7461_6d70);
        match self.play(Script::Random(Box::new(random), steps), tally)? {
            End::Skipped => Ok(None),
            End::Well => Ok(Some(None)),
            End::Badly(taken, what) => {
                println!("seed {}, {self}: {what} after {} steps; making them fewer", self.seed, taken.len());
                let mut last = what;
                let short = shrink(&taken, |steps| {
                    let end = self.play(Script::List(steps), &mut Tally::default())?;
                    Ok::<_, anyhow::Error>(match end {
                        // What another fault leads to is another fault.
                        End::Badly(_, what) if discriminant(&what) == discriminant(&last) => {
                            last = what;
                            true
                        }
                        _ => false,
                    })
                })?;
                let list: Vec<String> = short.iter().map(|step| format!("    {step:?}")).collect();
                Ok(Some(Some(format!("{last}, by\n{}", list.join("\n")))))
            }
        }
    }

    /// Makes the tree, seals it and mounts it for so long at the most.
    pub(crate) fn stage(&self, limit_seconds: u64) -> Result<Option<Stage>> {
        let Some(lower) = Lower::make(self.kind)? else { return Ok(None) };
        let (source, beside) = (lower.folder("source")?, lower.folder("beside")?);
        let sealed = Sealed::make(&source, &beside, self.seed)?;
        fs::create_dir(source.join("out"))?;
        let mut spec = MountSpec::new(&source, self.transport, self.flow).limit(limit_seconds);
        spec.args.extend(sealed.arguments(&beside));
        spec.args.push(if self.is_required { "--verify=required" } else { "--verify=if-sealed" }.into());
        if !self.keeps_cache && !self.is_required {
            spec.args.extend(["--cache".into(), "none".into()]);
        }
        let Some(mount) = Mounted::start(&spec)? else { return Ok(None) };
        Ok(Some(Stage { mount, ground: Ground { source, beside, sealed }, _lower: lower }))
    }

    fn play(&self, mut script: Script<'_>, tally: &mut Tally) -> Result<End> {
        let Some(stage) = self.stage(LIMIT_SECONDS)? else { return Ok(End::Skipped) };
        tally.mounts += 1;
        let Stage { mount, ground, .. } = &stage;
        let mut viewer = Viewer::new(ground, mount.path(), self.is_required);
        let mut taken = Vec::new();
        loop {
            let step = match &mut script {
                Script::Random(_, 0) | Script::List([]) => break,
                Script::Random(random, left) => {
                    *left -= 1;
                    step::next(random)
                }
                Script::List(list) => {
                    let (first, rest) = list.split_first().context("it is not empty")?;
                    *list = rest;
                    first.clone()
                }
            };
            taken.push(step.clone());
            tally.steps += 1;
            match take(&step, ground, &mut viewer).with_context(|| format!("{step:?}\n{}", mount.log()))? {
                Seen::Nothing => tally.changes += 1,
                Seen::Good => tally.good += 1,
                Seen::Refused => tally.refused += 1,
                Seen::Wrong(what) => return Ok(End::Badly(taken, Finding::Seen(what))),
            }
        }
        viewer.release();
        Ok(match self.lasting(&stage)? {
            Some(what) => End::Badly(taken, Finding::Lasting(what)),
            None => End::Well,
        })
    }

    /// What was mended below is shown again, so that errors are not all there is; where it is not, what that is.
    pub(crate) fn lasting(&self, stage: &Stage) -> Result<Option<String>> {
        let Stage { mount, ground, .. } = stage;
        ensure!(!mount.was_bitten(), "the mount took too long");
        ground.heal()?;
        if self.keeps_cache && !self.is_required {
            // What changes below is not promised to be seen.
            return Ok(None);
        }
        let viewer = Viewer::new(ground, mount.path(), self.is_required);
        let mut last = None;
        wait_until(MENDED_AFTER, || {
            last = viewer.first_unreadable();
            last.is_none()
        });
        Ok(last.map(|name| format!("{name} is mended and cannot be read")))
    }
}

/// Takes a step of either side.
fn take(step: &Step, ground: &Ground, viewer: &mut Viewer<'_>) -> Result<Seen> {
    match step {
        Step::Below(change) => ground.tamper(change)?,
        Step::Store(file, change) => ground.tamper_store(*file, change),
        Step::Look(look) => return Ok(viewer.look(look)),
    }
    Ok(Seen::Nothing)
}

impl Tally {
    /// Whether enough of the reads were answered, and enough refused, for either to say something.
    pub(crate) fn is_worth_something(&self) -> bool {
        let looks = self.good + self.refused;
        self.good * 10 > looks && self.refused * 50 > looks
    }
}

impl Display for Finding {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let (Self::Seen(what) | Self::Lasting(what)) = self;
        out.write_str(what)
    }
}

impl Display for Case {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let what = if self.is_required { "required" } else { "if-sealed" };
        let cache = if self.keeps_cache { "default" } else { "none" };
        write!(out, "{what} on {} with flow {:?} and cache {cache}", self.kind, self.flow)
    }
}

impl Display for Tally {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { steps, changes, good, refused, mounts } = self;
        write!(
            out,
            "{steps} steps on {mounts} mounts: {changes} changes, {good} looks as sealed, {refused} refused"
        )
    }
}
