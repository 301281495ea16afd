//! What is seen while files are hashed: a bar on a terminal, else nothing.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shuntfs_seal::Progress;

/// A bar on standard error.
#[derive(Debug)]
pub(super) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    pub(super) fn start(what: &str) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let draw = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, draw);
        bar.set_message(what.to_owned());
        set_template(&bar, "{msg} {spinner} {pos} names, {elapsed}");
        if on_terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar }
    }

    /// Something is done whose end is not known.
    fn waiting(&self, what: &str) {
        self.bar.reset();
        self.bar.set_message(what.to_owned());
        set_template(&self.bar, "{msg} {spinner} {elapsed}");
    }
}

impl Progress for Bar {
    fn found(&self, names: u64) {
        self.bar.set_position(names);
    }

    fn to_hash(&self, _files: u64, bytes: u64) {
        self.bar.reset();
        self.bar.set_length(bytes);
        set_template(&self.bar, "{msg} {bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} to go");
    }

    fn hashed(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn file_done(&self) {}

    fn storing(&self) {
        self.waiting("writing to the disk");
    }

    fn enabling(&self) {
        self.waiting("turning fs-verity on");
    }
}

fn set_template(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
