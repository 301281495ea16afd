//! What is seen of long work: a bar on a terminal, otherwise nothing.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shuntfs_pool::MoverFacts;
use shuntfs_seal::Progress;

use crate::mounts::shown;

const WAITING: &str = "{msg} {spinner} {elapsed}";
const FINDING: &str = "{msg} {spinner} {human_pos} names, {elapsed}";
const MOVING: &str = "{msg} {bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} to go";

/// A bar on standard error, gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// Begins with something whose end is not known, which counts names.
    pub(crate) fn start(what: &str) -> Self {
        let bar = Self::waiting(what);
        set_template(&bar.bar, FINDING);
        bar
    }

    /// Begins with something whose end is not known.
    pub(crate) fn waiting(what: &str) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let draw = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, draw);
        bar.set_message(shown(what));
        set_template(&bar, WAITING);
        if on_terminal {
            // What is soon over is seen, too.
            bar.tick();
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar }
    }

    /// Something else is waited for.
    pub(crate) fn wait_for(&self, what: &str) {
        self.bar.reset();
        self.bar.set_message(shown(what));
        set_template(&self.bar, WAITING);
        self.bar.tick();
    }

    /// How far a run of the mover is.
    pub(crate) fn of_mover(&self, facts: &MoverFacts) {
        // A length is known while files are moved.
        if facts.searching != self.bar.length().is_none() {
            self.bar.reset();
            set_template(&self.bar, if facts.searching { FINDING } else { MOVING });
        }
        self.bar.set_message(facts.branch.as_deref().map(shown).unwrap_or_default());
        if facts.searching {
            self.bar.unset_length();
            self.bar.set_position(facts.seen);
        } else {
            self.bar.set_length(facts.due_bytes);
            self.bar.set_position(facts.done_bytes.min(facts.due_bytes));
        }
    }

    /// Does something while the bar does not exist.
    pub(crate) fn aside<T>(&self, act: impl FnOnce() -> T) -> T {
        self.bar.suspend(act)
    }

    /// Takes it away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Bar {
    fn found(&self, names: u64) {
        self.bar.set_position(names);
    }

    fn to_hash(&self, _files: u64, bytes: u64) {
        self.bar.reset();
        self.bar.set_length(bytes);
        set_template(&self.bar, MOVING);
    }

    fn hashed(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn file_done(&self) {}

    fn storing(&self) {
        self.wait_for("writing to the disk");
    }

    fn enabling(&self) {
        self.wait_for("turning fs-verity on");
    }
}

fn set_template(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.end();
    }
}
