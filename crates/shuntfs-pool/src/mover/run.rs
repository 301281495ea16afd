//! One run over all branches.

use std::cell::RefCell;
use std::ffi::CString;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use shuntfs::{Errno, LookupCount, Name, NodeId, Result};
use shuntfs_rules::{MoveStep, Rules};

use super::due::{Asked, Usage, times_of};
use super::facts::{MoverError, MoverFacts, MoverFile, MoverNews, MoverOutcome};
use super::oldest::{Candidate, Oldest};
use super::walk::Walk;
use crate::error::errno;
use crate::facts::hex_of;
use crate::find::{self, Found};
use crate::guard::{Arrival, Guard, Spot};
use crate::merge::{self, Errand, Unmoved};
use crate::name_buf::NameBuf;
use crate::node::Node;
use crate::rules::{Engine, OfFound};
use crate::shared::{Folder, Shared};

/// How often is told how far a run is.
const TELL: Duration = Duration::from_millis(250);

/// Is told what happens; whether to go on.
type Tell<'t> = &'t mut (dyn FnMut(MoverNews) -> bool + Send + 't);

/// The mover of a merge: how far it is, or how the last run ended.
#[derive(Debug, Default)]
pub(crate) struct Mover(Mutex<Option<MoverFacts>>);

impl Mover {
    /// What is known of the last run, which may be under way; `None` before the first.
    pub(crate) fn facts(&self) -> Option<MoverFacts> {
        self.0.lock().clone()
    }

    fn begin(&self, facts: &MoverFacts) -> std::result::Result<Turn<'_>, MoverError> {
        let mut held = self.0.lock();
        if held.as_ref().is_some_and(|facts| facts.running) {
            return Err(MoverError::Busy);
        }
        *held = Some(facts.clone());
        Ok(Turn(self))
    }
}

/// The right to run, until this is dropped.
struct Turn<'m>(&'m Mover);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(facts) = &mut *self.0.0.lock() {
            facts.running = false;
        }
    }
}

/// Runs the mover once, in a thread of its own; how it ended. May take as long as all disks together.
///
/// # Errors
/// [`MoverError`], and then nothing was looked at.
pub(crate) fn run(
    shared: &Shared,
    is_dry: bool,
    tell: Tell<'_>,
) -> std::result::Result<MoverFacts, MoverError> {
    let merge = shared.merge.as_ref().ok_or(MoverError::NotOfOneFolder)?;
    let engine = shared.all_rules().ok_or(MoverError::NoRules)?;
    let rules = engine.rules();
    if rules.moves().all(|(_, steps)| steps.is_empty()) {
        return Err(MoverError::NoRules);
    }
    shared.check_writable().map_err(MoverError::ReadOnly)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let facts = MoverFacts { running: true, dry_run: is_dry, started_s: now, ..MoverFacts::default() };
    let _turn = merge.mover.begin(&facts)?;
    let work = move || -> std::result::Result<MoverFacts, MoverError> {
        // As whoever makes files for users: it takes nothing that is reserved for root, and passes no quota.
        shuntfs_sys::prepare_thread().map_err(|error| MoverError::Thread(errno(error)))?;
        let begun = Instant::now();
        let progress = RefCell::new(Progress { mover: &merge.mover, facts, tell, begun, told: begun });
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let mut run = Run { shared, engine, rules, now, is_dry, progress, planned: Vec::new() };
        for number in shared.branches.order().iter().copied() {
            run.branch(number);
        }
        Ok(run.progress.into_inner().end())
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("shunt-mover".into()).spawn_scoped(scope, work);
        let thread = thread.map_err(|_| MoverError::Thread(Errno::AGAIN))?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// How far it is, and who is told.
struct Progress<'t> {
    mover: &'t Mover,
    facts: MoverFacts,
    tell: Tell<'t>,
    begun: Instant,
    told: Instant,
}

impl Progress<'_> {
    fn note(&mut self) {
        self.facts.took_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        *self.mover.0.lock() = Some(self.facts.clone());
    }

    fn say(&mut self, news: MoverNews) {
        self.facts.cancelled |= !(self.tell)(news);
    }

    /// Tells how far it is, where that was not told a moment ago.
    fn tick(&mut self) {
        if self.told.elapsed() >= TELL {
            self.note();
            self.told = Instant::now();
            self.say(MoverNews::Progress(self.facts.clone()));
        }
    }

    fn file(&mut self, file: MoverFile) {
        let (facts, bytes) = (&mut self.facts, file.bytes);
        match file.outcome {
            MoverOutcome::Moved | MoverOutcome::WouldMove => {
                facts.moved_files += 1;
                facts.moved_bytes += bytes;
            }
            MoverOutcome::Left => facts.left_files += 1,
            MoverOutcome::Failed => facts.failures += 1,
        }
        self.note();
        self.say(MoverNews::File(file));
        self.tick();
    }

    fn end(mut self) -> MoverFacts {
        (self.facts.running, self.facts.branch, self.facts.searching) = (false, None, false);
        self.note();
        self.facts
    }
}

struct Run<'r> {
    shared: &'r Shared,
    engine: &'r Engine,
    rules: Arc<Rules>,
    /// In seconds since 1970, the same for all files.
    now: i64,
    is_dry: bool,
    progress: RefCell<Progress<'r>>,
    /// What a dry run would have moved to each branch by now, in bytes.
    planned: Vec<(u16, u64)>,
}

/// A branch that files are moved from.
struct Source {
    number: u16,
    /// How full it was when the run came to it, and how many bytes were moved away since.
    usage: Usage,
    freed: u64,
}

/// A rule's word on a file.
struct Due<'d> {
    rule: &'d str,
    step: &'d MoveStep,
    time: i64,
}

impl Run<'_> {
    fn is_cancelled(&self) -> bool {
        self.progress.borrow().facts.cancelled
    }

    /// Moves what is due from one branch.
    fn branch(&mut self, number: u16) {
        let branch = self.shared.branches.at(number);
        if self.is_cancelled() || !self.is_source(number) {
            return;
        }
        {
            let mut progress = self.progress.borrow_mut();
            progress.facts.branch = Some(branch.source().to_string_lossy().into_owned());
            progress.note();
        }
        let below = self.shared.under_way(|| branch.below_now());
        let mut source = match below {
            Ok(below) => Source { number, usage: Usage::of(&below), freed: 0 },
            Err(error) => return self.failed(number, b"", unseen(error)),
        };
        let mut after = None;
        loop {
            let Some((files, has_more)) = self.search(&source, after.take()) else { return };
            self.progress.borrow_mut().facts.searching = false;
            for file in &files {
                if self.is_cancelled() {
                    return;
                }
                self.visit(&mut source, file);
            }
            match files.into_iter().next_back().filter(|_| has_more) {
                Some(last) => after = Some(last),
                None => return,
            }
        }
    }

    /// Whether some step may move files from a branch, unless it was removed meanwhile.
    fn is_source(&self, number: u16) -> bool {
        let branch = self.shared.branches.at(number);
        let is_in_use = self.shared.branches.order().contains(&number);
        if !is_in_use || branch.health.is_aside() || branch.is_still_read_only() {
            return false;
        }
        let is_here = |names: &[String]| names.iter().any(|name| self.called(name) == Some(number));
        let leaves = |step: &MoveStep| {
            if step.from.is_empty() { !is_here(&step.to) } else { is_here(&step.from) }
        };
        self.rules.moves().any(|(_, steps)| steps.iter().any(leaves))
    }

    fn called(&self, name: &str) -> Option<u16> {
        merge::branch_called(&self.shared.branches, name)
    }

    /// What is due on a branch behind this file, the oldest first, and whether there is more behind that; `None` where it was to end.
    fn search(&self, source: &Source, after: Option<Candidate>) -> Option<(Vec<Candidate>, bool)> {
        self.progress.borrow_mut().facts.searching = true;
        let branch = self.shared.branches.at(source.number);
        let walk = self.shared.under_way(|| Walk::new(self.shared, branch));
        let mut walk = match walk {
            Ok(walk) => walk,
            Err(error) => {
                self.failed(source.number, b"", unseen(error));
                return None;
            }
        };
        let is_first = after.is_none();
        let mut oldest = Oldest::after(after);
        while let Some(met) = self.shared.under_way(|| walk.next()) {
            match met.what {
                Ok(found) => self.consider(source, (met.path, found), is_first, &mut oldest),
                // It was told when that was met first.
                Err(error) if is_first => self.failed(source.number, &met.path, unseen(error)),
                Err(_) => {}
            }
            let mut progress = self.progress.borrow_mut();
            progress.facts.seen += 1;
            progress.tick();
            if progress.facts.cancelled {
                return None;
            }
        }
        let (files, has_more) = oldest.into_files();
        self.expect(source, &files);
        Some((files, has_more))
    }

    /// Counts how much there is to do, as far as that can be known before: where a branch is too full, only what it takes.
    fn expect(&self, source: &Source, files: &[Candidate]) {
        let mut progress = self.progress.borrow_mut();
        let mut freed = source.freed;
        for file in files {
            if file.fuller_than.is_none_or(|percent| source.usage.is_fuller(percent, freed)) {
                freed = freed.saturating_add(file.bytes);
                progress.facts.due_files += 1;
                progress.facts.due_bytes += file.bytes;
            }
        }
    }

    /// Keeps a file that is due.
    fn consider(
        &self,
        source: &Source,
        (path, found): (Vec<u8>, Found),
        is_first: bool,
        oldest: &mut Oldest,
    ) {
        let due = self.shared.under_way(|| self.due(source, &path, &found));
        let candidate = match due {
            Ok(None) => return,
            Ok(Some(due)) => (due.time, due.step.fuller_than, merge::needed(&found.stat)),
            Err(why) => {
                if is_first {
                    self.failed(source.number, &path, why);
                }
                return;
            }
        };
        let (time, fuller_than, bytes) = candidate;
        oldest.add(Candidate { time, path, bytes, fuller_than });
    }

    /// What the rules say of a file on a branch.
    ///
    /// # Errors
    /// Why they cannot say it.
    fn due<'d>(
        &'d self,
        source: &Source,
        path: &[u8],
        found: &Found,
    ) -> std::result::Result<Option<Due<'d>>, String> {
        let file = OfFound { shared: self.shared, found, path };
        let said = self.rules.moves_of(&file).map_err(|failed| {
            self.engine.refuse(&self.rules, path, &failed);
            format!("a rule cannot be evaluated: {}", failed.why)
        })?;
        let Some((rule, steps)) = said else { return Ok(None) };
        let times = times_of(&found.stat);
        let asked = Asked {
            branch: source.number,
            times,
            now: self.now,
            called: &|name| self.called(name),
            is_fuller: &|percent| self.is_fuller(source, percent),
        };
        let due =
            asked.step(steps).and_then(|step| Some(Due { rule: &rule.name, step, time: step.time(&times)? }));
        Ok(due)
    }

    /// Whether a branch is fuller than that. What was moved away counts as free, though its file system may take its time to say so.
    fn is_fuller(&self, source: &Source, percent: u8) -> bool {
        if !source.usage.is_fuller(percent, source.freed) {
            return false;
        }
        let now = self.shared.branches.at(source.number).below_now();
        self.is_dry || now.is_ok_and(|below| Usage::of(&below).is_fuller(percent, 0))
    }

    /// Moves a file that is due still.
    fn visit(&mut self, source: &mut Source, file: &Candidate) {
        if file.fuller_than.is_some_and(|percent| !self.is_fuller(source, percent)) {
            return;
        }
        let begun = self.progress.borrow().facts.done_bytes;
        let moved = self.try_move(source, file);
        {
            let mut progress = self.progress.borrow_mut();
            progress.facts.done_files += 1;
            progress.facts.done_bytes = begun.saturating_add(file.bytes);
        }
        let Some((news, to)) = moved else { return };
        if let Some(to) = to {
            source.freed = source.freed.saturating_add(news.bytes);
            if self.is_dry {
                match self.planned.iter_mut().find(|(number, _)| *number == to) {
                    Some((_, bytes)) => *bytes += news.bytes,
                    None => self.planned.push((to, news.bytes)),
                }
            }
        }
        self.progress.borrow_mut().file(news);
    }

    /// Looks a file up as the kernel would, asks its rules again, and moves it. What became of it, and the branch that it is on now; `None` where
    /// it went or is not due any more.
    fn try_move(&self, source: &Source, file: &Candidate) -> Option<(MoverFile, Option<u16>)> {
        let called = |number: u16| self.shared.branches.at(number).source().to_string_lossy().into_owned();
        let news = |bytes: u64, rule: Option<&str>, moved: std::result::Result<u16, Unmoved>| {
            let outcome = match &moved {
                Ok(_) if self.is_dry => MoverOutcome::WouldMove,
                Ok(_) => MoverOutcome::Moved,
                Err(Unmoved::Failed(_)) => MoverOutcome::Failed,
                Err(_) => MoverOutcome::Left,
            };
            let news = MoverFile {
                path: String::from_utf8_lossy(&file.path).into_owned(),
                path_hex: hex_of(&file.path),
                from: called(source.number),
                to: moved.as_ref().ok().map(|to| called(*to)),
                bytes,
                rule: rule.map(str::to_owned),
                outcome,
                why: moved.as_ref().err().map(ToString::to_string),
            };
            (news, moved.ok())
        };
        let mut visit = match self.shared.under_way(|| Visit::to(self.shared, &file.path)) {
            Ok(visit) => visit,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => return None,
            Err(error) => return Some(news(file.bytes, None, Err(Unmoved::Failed(error)))),
        };
        let found = match self.shared.under_way(|| visit.find()) {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::STALE) => return None,
            Err(error) => return Some(news(file.bytes, None, Err(Unmoved::Failed(error)))),
        };
        let bytes = merge::needed(&found.stat);
        if found.identity.mount.branch != source.number || !found.stat.is_file() {
            // What is seen by this name is another one.
            return Some(news(bytes, None, Err(Unmoved::Copies)));
        }
        let due = match self.shared.under_way(|| self.due(source, &file.path, &found)) {
            Ok(due) => due?,
            Err(_) => return Some(news(bytes, None, Err(Unmoved::Failed(Errno::ACCES)))),
        };
        let to: Vec<u16> = due.step.to.iter().filter_map(|name| self.called(name)).collect();
        let stat = found.stat;
        let node = match self.shared.under_way(|| visit.arrive(found)) {
            Ok(node) => node,
            Err(Errno::NOENT | Errno::STALE) => return None,
            Err(error) => return Some(news(bytes, Some(due.rule), Err(Unmoved::Failed(error)))),
        };
        let errand = Errand {
            spot: visit.spot(),
            stat: &stat,
            to: &to,
            makes_room: due.step.fuller_than.is_some(),
            spoken_for: &|number| {
                self.planned.iter().find(|(to, _)| *to == number).map_or(0, |(_, bytes)| *bytes)
            },
            copied: &|more| {
                let mut progress = self.progress.borrow_mut();
                progress.facts.done_bytes += more;
                progress.tick();
            },
        };
        let moved = merge::carry_out(self.shared, &node, &errand, self.is_dry);
        Some(news(bytes, Some(due.rule), moved))
    }

    /// It is not known of a file, or of what is in a folder, whether it is due.
    fn failed(&self, number: u16, path: &[u8], why: String) {
        let from = self.shared.branches.at(number).source();
        tracing::warn!(path = %String::from_utf8_lossy(path), branch = ?from, why, "the mover leaves it out");
        self.progress.borrow_mut().file(MoverFile {
            path: String::from_utf8_lossy(path).into_owned(),
            path_hex: hex_of(path),
            from: from.to_string_lossy().into_owned(),
            to: None,
            bytes: 0,
            rule: None,
            outcome: MoverOutcome::Failed,
            why: Some(why),
        });
    }
}

/// The way to a name, with everything on it looked up as by the kernel. That is taken back when this is dropped.
struct Visit<'s> {
    shared: &'s Shared,
    guard: Guard<'s>,
    looked_up: Vec<NodeId>,
    folder: Folder,
    name: NameBuf,
}

impl<'s> Visit<'s> {
    /// Looks up the folders of a path, which are those that the mount shows.
    ///
    /// # Errors
    /// Those of lookups, ENOENT for names that nobody sees, and ENOTDIR.
    fn to(shared: &'s Shared, path: &[u8]) -> Result<Self> {
        let mut names = path.split(|byte| *byte == b'/').map(name_of);
        let first = names.next().ok_or(Errno::NOENT)??;
        let (folder, guard) = (shared.folder(NodeId::ROOT)?, Guard::of_nobody(shared));
        let mut visit = Self { shared, guard, looked_up: Vec::new(), folder, name: first };
        for name in names {
            let name = name?;
            let found = visit.find()?;
            if !found.stat.is_dir() {
                return Err(Errno::NOTDIR);
            }
            let node = visit.arrive(found)?;
            visit.folder = shared.folder(node.id)?;
            visit.name = name;
        }
        Ok(visit)
    }

    fn spot(&self) -> Spot<'_> {
        self.folder.spot(&self.name)
    }

    /// What the name means.
    ///
    /// # Errors
    /// Those of the lookup.
    fn find(&self) -> Result<Found> {
        self.guard.check_sight(self.spot())?;
        find::find(self.shared, self.spot())
    }

    /// The node of that.
    ///
    /// # Errors
    /// Those of the lookup.
    fn arrive(&mut self, found: Found) -> Result<Arc<Node>> {
        let node = self.guard.arrive(self.folder.spot(&self.name), found, Arrival::Met)?.node;
        self.looked_up.push(node.id);
        Ok(node)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.looked_up.iter().rev().for_each(|id| self.shared.forget(*id, LookupCount(1)));
    }
}

fn unseen(error: Errno) -> String {
    format!("it cannot be looked at: {error}")
}

fn name_of(name: &[u8]) -> Result<NameBuf> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    NameBuf::new(Name::new(&name).ok_or(Errno::INVAL)?)
}
