//! One case on all targets at once, which are mounted beside each other and called in turns.
//!
//! A machine that is shared is faster in one second than in the next. What is measured within milliseconds of each other can be compared to
//! a part in a hundred there, which one target after the other cannot.

use anyhow::{Context as _, Result};

use super::bench::Bench;
use super::figures::Measured;
use crate::calls;
use crate::case::{Call, Calls, Load};
use crate::mounted::Mounted;
use crate::target::{Places, Target};

impl Bench {
    /// Takes one sample of each target, in their order. All of them show the same folder, in which each has files of its own.
    pub(super) fn sample_in_turns(&mut self, call: Call, targets: &[&Target]) -> Result<Vec<Measured>> {
        let callers = u32::try_from(targets.len())?;
        let calls = Calls { call, callers, load: Load::Idle };
        let source = self.lower.source();
        calls::prepare(&calls, &source, &self.amount).context("cannot prepare")?;
        let mut mounted = Vec::new();
        for (number, target) in targets.iter().enumerate() {
            let places = Places {
                mount_point: self.lower.mount_point(number)?,
                branches: vec![source.clone()],
                ..self.lower.places(&target.mounting)
            };
            mounted.push(Mounted::start(target, &places, &self.stop)?);
        }
        let roots: Vec<_> = mounted.iter().map(Mounted::root).collect();
        let all = calls::measure(&calls, &roots, &self.amount, &self.stop)?;
        for ((target, root), times) in targets.iter().zip(roots).zip(&all) {
            self.check_requests(target, root, call, times)?;
        }
        mounted.into_iter().try_for_each(Mounted::end)?;
        calls::verify(&calls, &source, all.iter().map(|times| times.count).sum())?;
        Ok(all.into_iter().map(|times| Measured { times: Some(times), ..Measured::default() }).collect())
    }
}
