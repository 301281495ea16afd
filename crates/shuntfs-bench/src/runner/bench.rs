//! One figure: lower state, cold caches, fresh mount, workload, and a look at what it did.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::figures::Measured;
use crate::build::{Building, Project};
use crate::calls::{self, Times};
use crate::case::{Amount, Call, Calls, Case, Fio, GitStep, Load, Sealed, TreeStep, Work};
use crate::fio::{self, Written};
use crate::git::Repository;
use crate::listed;
use crate::lower::{Lower, Need, WARM};
use crate::meta;
use crate::mounted::Mounted;
use crate::probe;
use crate::process;
use crate::progress::Progress;
use crate::report::Kind;
use crate::sealed;
use crate::status;
use crate::stop::Stop;
use crate::target::{Mounting, Ours, Places, Target};
use crate::tree::Tree;

/// What exists while the rounds run.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) tree: Option<Tree>,
    /// The same on several branches.
    spread: Option<Tree>,
    pub(super) project: Option<Project>,
    /// What is built beside calls.
    beside: Option<Project>,
    repository: Option<Repository>,
    pub(super) lower: Lower,
    pub(super) stop: Stop,
    pub(super) progress: Progress,
    pub(super) amount: Amount,
    /// The case that the caches were dropped for last.
    dropped_for: Option<String>,
    /// Whether the last workload read bytes that were to come from the device and did not.
    pub(super) cached: bool,
}

impl Bench {
    pub(super) fn set_up(
        need: Need,
        amount: Amount,
        folder: Option<&Path>,
        stop: &Stop,
        progress: Progress,
    ) -> Result<Self> {
        let lower = Lower::make(need, folder, stop)?;
        progress.say(&format!("lower file system: {}", lower.about));
        Ok(Self {
            tree: None,
            spread: None,
            project: None,
            beside: None,
            repository: None,
            lower,
            stop: stop.clone(),
            progress,
            amount,
            dropped_for: None,
            cached: false,
        })
    }

    /// Compares the start of a large file, read through a fresh mount with cold caches, with the lower file. Speed at the
    /// price of wrong bytes is none.
    pub(super) fn check_bytes(
        &mut self,
        target: &Target,
        sealed: Option<&Sealed>,
        case: Option<&Case>,
    ) -> Result<()> {
        const LEN: u64 = 64 << 20;
        match sealed {
            Some(sealed) => self.prepare_sealed(sealed)?,
            None => self.lower.ensure_large_files(1, &self.amount)?,
        }
        if self.amount.cold_each {
            self.lower.drop_caches(&self.stop)?;
        }
        let mut places = self.lower.places(&target.mounting);
        if let Some(case) = case {
            places.branches = self.branches(case)?;
        }
        if sealed.is_some() {
            places.source = self.lower.sealed();
        }
        let mounted = Mounted::start(target, &places, &self.stop)?;
        let mut compare = Command::new("cmp");
        compare.arg("-n").arg(LEN.to_string());
        compare.arg(mounted.shared_file()).arg(places.source.join(fio::large_file(0)));
        let same = process::run_ok(&mut compare, self.amount.limit, &self.stop);
        let moved = target.flow.map_or(Ok(()), |flow| {
            let shunt =
                target.mounting.words().and_then(|words| words.first()).context("no server of ours")?;
            status::check_flow(&status::of(shunt, mounted.root(), &self.stop)?, flow)
        });
        let down = mounted.end();
        same.context("does not show the bytes of the lower folder")?;
        moved.and(down)
    }

    /// Takes one sample. It is taken on a fresh mount, mounted after the caches were dropped: nothing that a case did
    /// before can be cached, and a server that breaks in one case does not fail the next.
    pub(super) fn sample(&mut self, case: &Case, target: &Target) -> Result<Measured> {
        let passing;
        let target = if matches!(case.work, Work::Calls(Calls { call: Call::Open, .. })) {
            passing = target.clone().passing();
            &passing
        } else {
            target
        };
        let branches = self.branches(case)?;
        let is_spread = branches.len() > 1 && target.shows_branches();
        let prepared = if is_spread { self.prepare_on(case, &branches) } else { self.prepare(case) };
        prepared.context("cannot prepare")?;
        // What single calls take is a matter of the server, and not of the disk.
        let warm = matches!(case.work, Work::Calls(_));
        if !warm && (self.amount.cold_each || self.dropped_for.as_ref() != Some(&case.name)) {
            self.lower.drop_caches(&self.stop)?;
            self.dropped_for = Some(case.name.clone());
        }
        let mut places = Places { branches, ..self.lower.places(&target.mounting) };
        let below = self.below(case, &mut places)?;
        let mounted = Mounted::start(target, &places, &self.stop)?;
        let measured = self.run(case, target, &places.branches, &mounted);
        let down = mounted.end();
        let below_down = below.map_or(Ok(()), Mounted::end);
        let measured = measured?;
        down?;
        below_down?;
        match &case.work {
            Work::Tree(step) if is_spread => {
                self.spread.as_ref().context("no tree")?.verify_on(*step, &places.branches)?;
            }
            Work::Meta(meta) if is_spread => meta::verify(meta, &places.branches, &self.amount)?,
            _ => self.verify(case, target, &places.source, &measured)?,
        }
        Ok(measured)
    }

    /// Returns the folders that a case shows as one. What fills them gets empty ones, and what exists already is on the last.
    fn branches(&self, case: &Case) -> Result<Vec<PathBuf>> {
        let source = self.lower.source();
        let is_filled = matches!(case.work, Work::Meta(_) | Work::Tree(_));
        match case.branches {
            0 | 1 => Ok(vec![source]),
            count if is_filled => (0..count).map(|number| self.lower.branch(number)).collect(),
            count => {
                let others = (1..count).map(|number| self.lower.branch(number));
                others.chain(std::iter::once(Ok(source))).collect()
            }
        }
    }

    /// Prepares several branches for a target that shows them as one.
    fn prepare_on(&mut self, case: &Case, branches: &[PathBuf]) -> Result<()> {
        match &case.work {
            Work::Meta(meta) => meta::prepare_on(meta, branches, &self.amount),
            Work::Tree(step) => {
                if self.spread.is_none() {
                    self.spread = Some(self.packed_tree()?.elsewhere());
                }
                let tree = self.spread.as_mut().context("no tree")?;
                tree.prepare_on(*step, branches, &self.amount, &self.stop)
            }
            // What exists already is the same for every target.
            _ => self.prepare(case),
        }
    }

    /// Shows the sealed file to the targets that are measured with it, with a slower file system between where the case has one.
    fn below(&self, case: &Case, places: &mut Places) -> Result<Option<Mounted>> {
        let Work::Sealed(sealed) = &case.work else { return Ok(None) };
        places.source = self.lower.sealed();
        if sealed.delay_ms == 0 {
            return Ok(None);
        }
        let slow = Ours::slow(sealed.delay_ms)?;
        let below =
            Mounted::start(&slow, &Places { mount_point: self.lower.slow(), ..places.clone() }, &self.stop)?;
        places.source = self.lower.slow();
        Ok(Some(below))
    }

    fn prepare_sealed(&self, sealed: &Sealed) -> Result<()> {
        self.lower.ensure_sealed(&sealed.shunt, &Sealed::amount(&self.amount), &self.stop)
    }

    fn prepare(&mut self, case: &Case) -> Result<()> {
        let source = self.lower.source();
        match &case.work {
            Work::Fio(fio) => {
                self.lower.ensure_large_files(if fio.shared { 1 } else { fio.jobs }, &self.amount)
            }
            Work::Meta(meta) => meta::prepare(meta, &source, &self.amount),
            Work::Tree(step) => self.prepare_tree(*step, &source),
            Work::List(_) => listed::prepare(&self.branches(case)?, &self.amount),
            Work::Build => self.prepare_build(&source),
            Work::Git(step) => self.prepare_git(*step, &source),
            Work::Calls(calls) => {
                self.prepare_load(calls.load)?;
                calls::prepare(calls, &source, &self.amount)
            }
            Work::Sealed(sealed) => self.prepare_sealed(sealed),
            Work::RoundTrip => Ok(std::fs::write(source.join(probe::FILE), "probe\n")?),
            Work::Turns(_) => bail!("it is for all targets at once"),
        }
    }

    fn packed_tree(&mut self) -> Result<&mut Tree> {
        if self.tree.is_none() {
            self.tree = Some(Tree::pack(self.lower.work(), &self.amount, &self.stop)?);
        }
        self.tree.as_mut().context("no tree")
    }

    fn prepare_tree(&mut self, step: TreeStep, source: &Path) -> Result<()> {
        let (amount, stop) = (self.amount, self.stop.clone());
        self.packed_tree()?.prepare(step, source, &amount, &stop)
    }

    fn prepare_build(&mut self, source: &Path) -> Result<()> {
        if self.project.is_none() {
            self.progress.now("unpacking the sources to build".to_owned());
            self.project = Some(Project::unpack(source, &self.amount, cpus()?, &self.stop)?);
        }
        self.project.as_ref().context("no project")?.prepare(source)
    }

    fn prepare_git(&mut self, step: GitStep, source: &Path) -> Result<()> {
        if self.repository.is_none() {
            self.progress.now("making a git repository".to_owned());
            self.repository = Some(Repository::make(source, self.lower.work(), &self.amount, &self.stop)?);
        }
        let repository = self.repository.as_mut().context("no repository")?;
        repository.prepare(step, source, &self.amount, &self.stop)
    }

    /// Makes ready what is built beside calls: in a folder of its own, so that it asks nothing of the mount.
    fn prepare_load(&mut self, load: Load) -> Result<()> {
        if load == Load::Make && self.beside.is_none() {
            let amount = Amount { real_build: false, ..self.amount };
            self.beside = Some(Project::unpack(self.lower.work(), &amount, cpus()?, &self.stop)?);
        }
        Ok(())
    }

    fn run(
        &mut self,
        case: &Case,
        target: &Target,
        branches: &[PathBuf],
        mounted: &Mounted,
    ) -> Result<Measured> {
        let (root, amount, stop) = (mounted.root(), &self.amount, &self.stop);
        let is_spread = branches.len() > 1 && target.shows_branches();
        let mut measured = Measured::default();
        match &case.work {
            Work::Fio(fio) => return self.run_fio(fio, &self.amount.clone(), target, mounted),
            Work::Sealed(sealed) => return self.run_sealed(sealed, target, mounted),
            Work::Meta(meta) => {
                measured.counted = Some(meta::run(meta, root, amount, self.lower.can_drop, stop)?);
            }
            Work::Tree(step) => {
                let tree = if is_spread { self.spread.as_mut() } else { self.tree.as_mut() };
                measured.elapsed = Some(tree.context("no tree")?.run(*step, root, amount, stop)?);
            }
            Work::List(step) => {
                measured.elapsed = Some(listed::run(*step, (target, root), branches, amount, stop)?);
            }
            Work::Build => {
                let project = self.project.as_ref().context("no project")?;
                measured.elapsed = Some(project.run(root, amount, stop)?);
            }
            Work::Git(step) => {
                let repository = self.repository.as_mut().context("no repository")?;
                measured.elapsed = Some(repository.run(*step, root, amount, stop)?);
            }
            Work::Calls(calls) => {
                let before = mounted.server_cpu_s();
                measured.times = Some(self.run_calls(calls, target, root)?);
                measured.server_cpu_s =
                    mounted.server_cpu_s().zip(before).map(|(after, before)| after - before);
            }
            Work::Turns(_) => bail!("it is for all targets at once"),
            Work::RoundTrip => {
                let file = root.join(probe::FILE);
                let file = (!matches!(target.mounting, Mounting::Pipe)).then_some(file.as_path());
                measured.latency = Some(probe::measure(file, amount, stop)?);
            }
        }
        Ok(measured)
    }

    fn run_calls(&self, calls: &Calls, target: &Target, root: &Path) -> Result<Times> {
        let building = self.beside.as_ref().filter(|_| calls.load == Load::Make);
        let building = building.map(|project| project.start(self.lower.work())).transpose()?;
        let times = calls::measure(calls, &[root], &self.amount, &self.stop)?;
        building.map_or(Ok(()), Building::end)?;
        let times = times.first().copied().context("no call was timed")?;
        self.check_requests(target, root, calls.call, &times)?;
        Ok(times)
    }

    pub(super) fn check_requests(
        &self,
        target: &Target,
        root: &Path,
        call: Call,
        times: &Times,
    ) -> Result<()> {
        let ours = target.mounting.words().filter(|_| target.kind == Kind::Ours);
        let Some(shunt) = ours.and_then(|words| words.first()) else { return Ok(()) };
        calls::check_requests(shunt, root, call, times, &self.stop)
    }

    /// Notes a read of the bare folder that did not reach the device: something was cached that should not have been.
    fn run_fio(
        &mut self,
        fio: &Fio,
        amount: &Amount,
        target: &Target,
        mounted: &Mounted,
    ) -> Result<Measured> {
        let device_before = self.lower.device_read_len();
        let cpu_before = mounted.server_cpu_s();
        let mut command = fio::command(fio, mounted.root(), &mounted.shared_file(), amount);
        if self.amount.cold_each && fio.fills_caches() {
            if fio.jobs > 1 {
                // Each job would warm for itself, and take from the others what they read.
                self.warm()?;
            } else if self.lower.lets_warm(&mut command)? {
                command.arg(format!("--exec_prerun=sh -c '{WARM}'"));
            }
        }
        // What a target shows besides the large files cannot be looked at from below.
        let marks = fio::writes(fio) && !matches!(target.mounting, Mounting::OwnFileServer(_));
        let mut written = marks.then(|| Written::by(&mut command));
        let counted = fio::in_scratch(&mut command, |command| fio::run(command, amount, &self.stop))?;
        if let Some(written) = &mut written {
            written.len = counted.len;
        }
        let server_cpu_s = mounted.server_cpu_s().zip(cpu_before).map(|(after, before)| after - before);
        let read = self.lower.device_read_len().zip(device_before).map(|(after, before)| after - before);
        let bare = matches!(target.mounting, Mounting::Bare);
        // fio counts a block of a file that it reads twice; half is well below every such effect.
        self.cached = bare
            && self.amount.cold_each
            && self.lower.can_drop
            && read.is_some_and(|len| len < counted.read_len / 2);
        Ok(Measured { counted: Some(counted), written, server_cpu_s, ..Measured::default() })
    }

    /// Makes memory ready for a workload that fills the caches.
    fn warm(&self) -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", WARM]);
        if self.lower.lets_warm(&mut command)? {
            process::run_ok(&mut command, self.amount.limit, &self.stop)?;
        }
        Ok(())
    }

    /// Reads the sealed file, and asks how often its tree was read for that.
    fn run_sealed(&mut self, sealed: &Sealed, target: &Target, mounted: &Mounted) -> Result<Measured> {
        let amount = Sealed::amount(&self.amount);
        if let Mounting::Program(words) = &target.mounting {
            let file = mounted.shared_file();
            if self.amount.cold_each {
                self.warm()?;
            }
            let counted = sealed::read_by(words, &file, &amount, &self.stop)?;
            return Ok(Measured { counted: Some(counted), ..Measured::default() });
        }
        let mut measured = self.run_fio(&sealed.fio, &amount, target, mounted)?;
        if target.kind == Kind::Ours {
            measured.tree_reads = sealed::tree_reads(&sealed.shunt, mounted.root(), &self.stop)?;
        }
        Ok(measured)
    }

    fn verify(&self, case: &Case, target: &Target, source: &Path, measured: &Measured) -> Result<()> {
        if matches!(target.mounting, Mounting::Pipe) {
            return Ok(());
        }
        match &case.work {
            Work::Meta(meta) => meta::verify(meta, &[source.to_path_buf()], &self.amount),
            Work::Tree(step) => {
                let tree = self.tree.as_ref().context("no tree")?;
                tree.verify(*step, source, &self.amount, &self.stop)
            }
            Work::Build => self.project.as_ref().context("no project")?.verify(source),
            Work::Git(step) => {
                let repository = self.repository.as_ref().context("no repository")?;
                repository.verify(*step, source, &self.amount, &self.stop)
            }
            Work::Calls(calls) => {
                calls::verify(calls, source, measured.times.context("no call was timed")?.count)
            }
            Work::Fio(fio) => measured.written.map_or(Ok(()), |written| written.verify(fio, source)),
            Work::Sealed(_) | Work::RoundTrip | Work::List(_) | Work::Turns(_) => Ok(()),
        }
    }
}

fn cpus() -> Result<u32> {
    Ok(u32::try_from(std::thread::available_parallelism().map_or(1, usize::from))?)
}
