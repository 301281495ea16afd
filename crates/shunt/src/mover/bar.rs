//! What is seen while files are moved: a bar on a terminal, else nothing.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shuntfs_pool::MoverFacts;

use crate::mounts::shown;

/// A bar on standard error.
#[derive(Debug)]
pub(super) struct Bar {
    bar: ProgressBar,
    is_searching: bool,
}

impl Bar {
    pub(super) fn start() -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let draw = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, draw);
        set_template(&bar, SEARCHING);
        if on_terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, is_searching: true }
    }

    /// How far a run is.
    pub(super) fn show(&mut self, facts: &MoverFacts) {
        if facts.searching != self.is_searching {
            self.is_searching = facts.searching;
            self.bar.reset();
            set_template(&self.bar, if facts.searching { SEARCHING } else { MOVING });
        }
        self.bar.set_message(facts.branch.as_deref().map(shown).unwrap_or_default());
        if facts.searching {
            self.bar.set_position(facts.seen);
        } else {
            self.bar.set_length(facts.due_bytes);
            self.bar.set_position(facts.done_bytes.min(facts.due_bytes));
        }
    }

    /// Does something while the bar is not there.
    pub(super) fn aside<T>(&self, act: impl FnOnce() -> T) -> T {
        self.bar.suspend(act)
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.end();
    }
}

const SEARCHING: &str = "{msg} {spinner} {human_pos} files looked at, {elapsed}";
const MOVING: &str = "{msg} {bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} to go";

fn set_template(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
