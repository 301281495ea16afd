//! Intervals as text and as JSON, for pipes and programs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::draw::{self, View};
use super::rates::{self, Rates};
use crate::failure::Failure;
use crate::json::{self, One};
use crate::run::output_failure;
use crate::survey::{Asked, Follow, Survey};

/// How wide text is that goes to no terminal.
const WIDTH: u16 = 100;

/// Prints one interval, or each as JSON until nobody reads any more.
///
/// # Errors
/// Where the mounts cannot be asked, and where it cannot be printed.
pub(super) fn run(
    paths: &[std::path::PathBuf],
    interval: Duration,
    json: Option<Repeat>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let survey = Survey::default();
    let follow = Some(Follow { interval, only: None });
    let mut before = survey.ask(paths, follow)?;
    let mut due = Instant::now() + interval;
    loop {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due = Instant::now() + interval;
        let now = survey.ask(paths, follow)?;
        let mounts = rates::all(&before, &now);
        match json {
            Some(_) => print_json(&mounts, out)?,
            None => print_text(mounts, interval, out)?,
        }
        if json != Some(Repeat::Always) {
            return fails_alone(paths, &now);
        }
        before = now;
    }
}

/// How often JSON is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repeat {
    Once,
    Always,
}

/// Whoever names a mount wants to know of it: that nothing is known is a failure.
fn fails_alone(paths: &[std::path::PathBuf], now: &[Asked]) -> Result<(), Failure> {
    match now {
        [Asked { mount, answer: Err(error), .. }] if !paths.is_empty() => {
            Err(Failure::new(format!("{mount}: {error}")))
        }
        _ => Ok(()),
    }
}

fn print_json(mounts: &[Rates], out: &mut dyn Write) -> Result<(), Failure> {
    let text = json::line(&One("mounts", &mounts))?;
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| output_failure(&error))
}

fn print_text(mounts: Vec<Rates>, interval: Duration, out: &mut dyn Write) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    let size = is_terminal.then(|| ratatui::crossterm::terminal::size().ok()).flatten();
    let width = size.map_or(WIDTH, |(columns, _)| columns);
    let view = View { mounts, selected: usize::MAX, interval_s: interval.as_secs_f64(), note: None };
    for line in draw::text(&view, width) {
        writeln!(out, "{line}").map_err(|error| output_failure(&error))?;
    }
    Ok(())
}
