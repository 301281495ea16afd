//! A whole run.

use serde::{Deserialize, Serialize};

use super::compare::ROUNDS_MIN;
use super::table::Report;
use crate::machine::Machine;

/// The number of the JSON's layout.
pub const FORMAT: u32 = 2;

/// The oldest layout that is read.
pub(crate) const FORMAT_MIN: u32 = 1;

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The number of the JSON's layout: [`FORMAT`].
    pub format: u32,
    /// When it began, UTC, as `2026-11-21T15:04:05Z`.
    pub started: String,
    /// How long it took, in seconds.
    pub elapsed_s: u64,
    /// `full`, `smoke`, or what was asked for; the figures of `smoke` mean nothing.
    pub size: String,
    /// The machine.
    pub machine: Machine,
    /// The programs that took part, with what they say their version is.
    pub versions: Vec<Version>,
    /// The command line of the run.
    pub command: Vec<String>,
    /// What the lower file system is.
    pub lower: String,
    /// Rounds that were asked for.
    pub rounds: usize,
    /// What the order of columns was drawn from, in each row of each round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// Descriptors that each program may have open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<u64>,
    /// Rounds more that cases got whose baseline wavered.
    #[serde(default)]
    pub more: usize,
    /// The tables.
    pub tables: Vec<Report>,
    /// What makes all figures doubtful, one sentence each.
    pub doubts: Vec<String>,
    /// Whether the run was ended before its last round.
    pub interrupted: bool,
}

/// A program and its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The program.
    pub program: String,
    /// What it says.
    pub version: String,
}

impl Run {
    /// Returns whether every round of every table was run, and every cell has a figure or a reason.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.interrupted && self.tables.iter().all(Report::is_whole)
    }

    /// Works out medians, ratios, verdicts and doubts from the samples; call it once.
    pub fn settle(&mut self) {
        self.tables.iter_mut().for_each(Report::settle);
        self.judge();
        self.doubts.extend(self.machine.doubts());
        if self.interrupted {
            self.doubts.push("Interrupted: later rows have fewer figures than earlier ones.".to_owned());
        }
        if self.rounds < ROUNDS_MIN {
            self.doubts.push(format!("{} round(s): fewer than {ROUNDS_MIN} decide nothing.", self.rounds));
        }
    }

    /// Compares our columns with goals and peers, from what is known of each cell.
    pub(crate) fn judge(&mut self) {
        // Of a run that was ended nobody knows how many rounds each row had, unless its figures were kept.
        let rounds = if self.interrupted { 0 } else { self.rounds };
        self.tables.iter_mut().for_each(|report| report.judge(rounds));
    }
}
