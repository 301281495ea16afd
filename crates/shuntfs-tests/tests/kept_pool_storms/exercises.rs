//! Random work on files and on names, against models.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;
use shuntfs_testkit::exercise::{FileExercise, NameExercise};

use crate::stage::{Stage, kills, number};

/// Seeds that work at the same time.
const SEEDS: u64 = 4;

/// Threads that work until they are to stop, each with a seed of its own.
struct Workers<E> {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<E>>>,
}

impl<E: Send + 'static> Workers<E> {
    fn start(folder: &Path, new: fn(&Path, u64) -> Result<E>, step: fn(&mut E) -> Result<()>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
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

    /// Until `count` servers were killed.
    fn over_kills(self, name: &str, stage: &mut Stage, count: u64) -> Vec<E> {
        let failed = || self.has_failed().then(|| "a thread has failed".to_owned());
        let killed =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.kills(name, count, failed)));
        // What a thread says of its failure comes first.
        let exercises = self.stop();
        killed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        exercises
    }
}

#[test]
fn privileged_files_have_their_bytes_over_kills() {
    for kind in ["device", "cloned"] {
        for flow in ["passthrough", "relay", "served"] {
            let Some(mut stage) = Stage::new(kind, flow) else { return };
            let name = format!("files on {kind}, {flow}");
            let workers = Workers::start(&stage.work(), FileExercise::new, FileExercise::step);
            // A third each: the flows are one storm.
            let count = kills().div_ceil(3);
            let exercises = workers.over_kills(&name, &mut stage, count);
            let steps: u64 = exercises.iter().map(FileExercise::steps).sum();
            let files: Vec<(PathBuf, Vec<u8>)> = exercises
                .into_iter()
                .map(|exercise| exercise.finish().unwrap_or_else(|error| panic!("{error:#}")))
                .collect();
            stage.ends(&format!("{name}: {count} kills, {steps} operations"), |folder| {
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
    for kind in ["device", "cloned"] {
        let Some(mut stage) = Stage::new(kind, "passthrough") else { return };
        let name = format!("names on {kind}");
        let workers = Workers::start(&stage.work(), NameExercise::new, NameExercise::step);
        let exercises = workers.over_kills(&name, &mut stage, kills());
        let (steps, failed) = exercises
            .iter()
            .map(NameExercise::steps)
            .fold((0, 0), |(steps, failed), more| (steps + more.0, failed + more.1));
        assert!(failed > 0, "{name}: of {steps} operations none met a name that was taken or missing");
        let said = format!("{name}: {} kills, {steps} operations, of which {failed} had to fail", kills());
        stage.ends(&said, |folder| {
            for exercise in &exercises {
                exercise.check(&folder.join(exercise.name())).unwrap_or_else(|error| panic!("{error:#}"));
            }
        });
    }
}
