//! Random work on files and on names, against models.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;
use shuntfs_testkit::exercise::{FileExercise, NameExercise};
use shuntfs_testkit::identity::Identity;

use crate::stage::{Over, Shape, Stage, number};

/// Seeds that work at the same time.
const SEEDS: u64 = 4;

/// Threads that work until they are to stop, each with a seed of its own.
struct Workers<E> {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<E>>>,
}

impl<E: Send + 'static> Workers<E> {
    fn start(folder: &Path, new: fn(&Path, u64) -> Result<E>, step: fn(&mut E) -> Result<()>) -> Self {
        Self::start_until(Arc::default(), folder, new, step)
    }

    /// The same; others may have them stop.
    fn start_until(
        stop: Arc<AtomicBool>,
        folder: &Path,
        new: fn(&Path, u64) -> Result<E>,
        step: fn(&mut E) -> Result<()>,
    ) -> Self {
        let first = number("SHUNTFS_TEST_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 8);
        let start = |seed: u64| {
            let (stop, path) = (Arc::clone(&stop), folder.join(seed.to_string()));
            std::thread::spawn(move || {
                let mut exercise = new(&path, seed)?;
                while !stop.load(Ordering::Relaxed) {
                    step(&mut exercise)?;
                }
                Ok(exercise)
            })
        };
        Self { threads: (first..first + SEEDS).map(start).collect(), stop }
    }

    /// Whether one has ended, which is because something failed.
    fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    fn stop(self) -> Vec<E> {
        self.stop.store(true, Ordering::Relaxed);
        let join = |thread: JoinHandle<Result<E>>| thread.join().expect("nothing in it panics");
        self.threads
            .into_iter()
            .map(|thread| join(thread).unwrap_or_else(|error| panic!("{error:#}")))
            .collect()
    }

    /// Until `count` servers were replaced.
    fn over_servers(self, name: &str, stage: &mut Stage, count: u64) -> Vec<E> {
        let failed = || self.has_failed().then(|| "a thread has failed".to_owned());
        let raged =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.rages(name, count, failed)));
        // What a thread says of its failure comes first.
        let exercises = self.stop();
        raged.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        exercises
    }
}

#[test]
fn privileged_files_have_their_bytes_over_kills() {
    files_have_their_bytes(Over::Kills);
}

#[test]
fn privileged_files_have_their_bytes_over_upgrades() {
    files_have_their_bytes(Over::Upgrades);
}

fn files_have_their_bytes(over: Over) {
    for &kind in over.kinds() {
        for flow in ["passthrough", "relay", "served"] {
            let Some(mut stage) = Stage::new(over, kind, flow) else { return };
            let name = format!("files on {kind}, {flow}");
            let workers = Workers::start(&stage.work(), FileExercise::new, FileExercise::step);
            // A third each: the flows are one storm.
            let count = over.count().div_ceil(3);
            let exercises = workers.over_servers(&name, &mut stage, count);
            let steps: u64 = exercises.iter().map(FileExercise::steps).sum();
            let files: Vec<(PathBuf, Vec<u8>)> = exercises
                .into_iter()
                .map(|exercise| exercise.finish().unwrap_or_else(|error| panic!("{error:#}")))
                .collect();
            stage.ends(&format!("{name}: {count} {}, {steps} operations", over.name()), |folder| {
                for (path, bytes) in &files {
                    let found = fs::read(folder.join(path)).expect("reads");
                    assert!(found == *bytes, "{name}: {} below {}", path.display(), folder.display());
                }
            });
        }
    }
}

#[test]
fn privileged_names_are_what_they_were_made_over_kills() {
    names_are_what_they_were_made(Over::Kills);
}

#[test]
fn privileged_names_are_what_they_were_made_over_upgrades() {
    names_are_what_they_were_made(Over::Upgrades);
}

fn names_are_what_they_were_made(over: Over) {
    for &kind in over.kinds() {
        let Some(mut stage) = Stage::new(over, kind, "passthrough") else { return };
        let name = format!("names on {kind}");
        let workers = Workers::start(&stage.work(), NameExercise::new, NameExercise::step);
        let exercises = workers.over_servers(&name, &mut stage, over.count());
        let (steps, failed) = exercises
            .iter()
            .map(NameExercise::steps)
            .fold((0, 0), |(steps, failed), more| (steps + more.0, failed + more.1));
        assert!(failed > 0, "{name}: of {steps} operations none met a name that was taken or missing");
        let (count, what) = (over.count(), over.name());
        let said = format!("{name}: {count} {what}, {steps} operations, of which {failed} had to fail");
        stage.ends(&said, |folder| {
            for exercise in &exercises {
                exercise.check(&folder.join(exercise.name())).unwrap_or_else(|error| panic!("{error:#}"));
            }
        });
    }
}

/// What somebody else sees of a folder under rules while its names come and go: root moves a file to where it is denied and back, and makes hidden and
/// secret ones anew.
struct Watched {
    folder: PathBuf,
    /// What was wrong.
    wrong: Vec<String>,
}

const SECRET: &str = "name=ann key=1234 more";
const SHOWN: &str = "name=ann \0\0\0\0\0\0\0\0 more";

impl Watched {
    fn new(folder: &Path, seed: u64) -> Result<Self> {
        let folder = folder.with_extension(format!("watched{seed}"));
        fs::create_dir(&folder)?;
        fs::create_dir(folder.join("denied"))?;
        fs::write(folder.join("secret"), SECRET)?;
        fs::write(folder.join("f"), "f")?;
        Ok(Self { folder, wrong: Vec::new() })
    }

    fn step(&mut self) -> Result<()> {
        let at = |name: &str| self.folder.join(name);
        let read = |name: &str| Identity::nobody().run(|| fs::read_to_string(at(name)));
        let mut wrong = Vec::new();
        let mut must = |what: &str, holds: bool, found: &io::Result<String>| {
            if !holds {
                wrong.push(format!("{what}: {found:?}"));
            }
        };
        let kind = |found: &io::Result<String>| found.as_ref().err().map(io::Error::kind);
        let found = read("f");
        must("free", found.as_ref().is_ok_and(|text| text == "f"), &found);
        fs::rename(at("f"), at("denied/f"))?;
        let found = read("denied/f");
        must("denied", kind(&found) == Some(io::ErrorKind::PermissionDenied), &found);
        fs::hard_link(at("denied/f"), at("g"))?;
        let found = read("g");
        must("denied by its other name", kind(&found) == Some(io::ErrorKind::PermissionDenied), &found);
        fs::remove_file(at("denied/f"))?;
        fs::rename(at("g"), at("f"))?;
        fs::write(at("hidden"), "hidden")?;
        let found = read("hidden");
        must("hidden", kind(&found) == Some(io::ErrorKind::NotFound), &found);
        fs::remove_file(at("hidden"))?;
        let open = Identity::nobody().run(|| fs::File::open(at("secret")))?;
        let found = io::read_to_string(&open);
        must("redacted", found.as_ref().is_ok_and(|text| text == SHOWN), &found);
        let found = fs::read_to_string(at("secret"));
        must("root's", found.as_ref().is_ok_and(|text| text == SECRET), &found);
        self.wrong = wrong;
        anyhow::ensure!(self.wrong.is_empty(), "{:?}", self.wrong);
        Ok(())
    }
}

/// Names, bytes, and what others see, all at once.
fn all_is_right(over: Over, shape: Shape) {
    for &kind in over.kinds() {
        let Some(mut stage) = Stage::of(over, kind, "passthrough", shape) else { return };
        let (name, work, stop) = (format!("{shape:?} on {kind}"), stage.work(), Arc::<AtomicBool>::default());
        let of_names = if shape.has_branches() { NameExercise::on_branches } else { NameExercise::new };
        let folder = |name: &str| {
            let path = work.join(name);
            fs::create_dir(&path).expect("makes");
            path
        };
        let names = Workers::start_until(Arc::clone(&stop), &folder("names"), of_names, NameExercise::step);
        let files =
            Workers::start_until(Arc::clone(&stop), &folder("files"), FileExercise::new, FileExercise::step);
        let watched = shape.is_ruled().then(|| {
            Workers::start_until(Arc::clone(&stop), &folder("watched"), Watched::new, Watched::step)
        });
        let has_failed = || {
            let failed =
                [names.has_failed(), files.has_failed(), watched.as_ref().is_some_and(Workers::has_failed)];
            failed
                .contains(&true)
                .then(|| format!("a thread has failed (names, files, others' look): {failed:?}"))
        };
        let raged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            stage.rages(&name, over.count(), has_failed)
        }));
        let (names, files) = (names.stop(), files.stop());
        drop(watched.map(Workers::stop));
        raged.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let steps = names.iter().map(|exercise| exercise.steps().0).sum::<u64>();
        let bytes = files.iter().map(FileExercise::steps).sum::<u64>();
        let files: Vec<(PathBuf, Vec<u8>)> =
            files.into_iter().map(|one| one.finish().unwrap_or_else(|error| panic!("{error:#}"))).collect();
        let (count, what) = (over.count(), over.name());
        let said = format!("{name}: {count} {what}, {steps} changes of names and {bytes} of bytes");
        stage.ends(&said, |work| {
            for exercise in &names {
                let folder = work.join("names").join(exercise.name());
                exercise.check(&folder).unwrap_or_else(|error| panic!("{error:#}"));
            }
            for (path, bytes) in &files {
                let found = fs::read(work.join("files").join(path)).expect("reads");
                assert!(found == *bytes, "{name}: {} in {}", path.display(), work.display());
            }
        });
    }
}

#[test]
fn privileged_a_folder_under_rules_is_right_over_kills() {
    all_is_right(Over::Kills, Shape::RuledFolder);
}

#[test]
fn privileged_a_folder_under_rules_is_right_over_upgrades() {
    all_is_right(Over::Upgrades, Shape::RuledFolder);
}

#[test]
fn privileged_branches_are_right_over_kills() {
    all_is_right(Over::Kills, Shape::Branches);
}

#[test]
fn privileged_branches_are_right_over_upgrades() {
    all_is_right(Over::Upgrades, Shape::Branches);
}

#[test]
fn privileged_branches_under_rules_are_right_over_kills() {
    all_is_right(Over::Kills, Shape::RuledBranches);
}

#[test]
fn privileged_branches_under_rules_are_right_over_upgrades() {
    all_is_right(Over::Upgrades, Shape::RuledBranches);
}
