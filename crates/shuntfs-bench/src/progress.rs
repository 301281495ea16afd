//! What is seen while a run goes on: a bar on a terminal, else a line for each figure.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Says what is going on, on standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    on_terminal: bool,
}

impl Progress {
    /// Starts with so many figures to take.
    pub(crate) fn start(figures: u64) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let draw = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(figures), draw);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} to go: {wide_msg}") {
            bar.set_style(style);
        }
        if on_terminal {
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        Self { bar, on_terminal }
    }

    /// Says what is measured now.
    pub(crate) fn now(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Says what came of it.
    pub(crate) fn done(&self, what: &str) {
        self.bar.inc(1);
        if !self.on_terminal {
            eprintln!("{what}");
        }
    }

    /// Says something that stays to be read.
    pub(crate) fn say(&self, text: &str) {
        if self.on_terminal { self.bar.println(text) } else { eprintln!("{text}") }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
