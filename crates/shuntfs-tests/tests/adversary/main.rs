//! A generated adversary for rules: three users do whatever comes to a seed's mind on one mount, and a model that knows
//! every name and every rule watches that nobody gets a byte, a name or a change that a rule denies.
//!
//! `SHUNTFS_ADVERSARY_OPERATIONS` says how many operations each transport gets (20,000), `SHUNTFS_ADVERSARY_SEED` with which
//! seed they begin. A finding is shrunk to the fewest steps that still show it, and printed with its seed.

mod act;
mod episode;
mod generate;
mod judge;
mod model;
mod race;
mod rules;
mod step;

use anyhow::{Result, bail, ensure};
use shuntfs_testkit::mounted::{Flow, Transport};
use shuntfs_testkit::say;

use crate::episode::{Episode, Outcome};

/// Steps of one mount: enough for names to get a history, few enough to be shrunk. Long runs take more of them, because each
/// mount takes half a second.
const STEPS: usize = 4000;
const STEPS_OF_LONG_RUN: usize = 20_000;
const LONG_FROM: u64 = 100_000;

fn number(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(default),
    }
}

fn attack(transport: Transport, make: impl Fn(u64, usize) -> Episode) -> Result<()> {
    let operations = number("SHUNTFS_ADVERSARY_OPERATIONS", 20_000)?;
    let first = number("SHUNTFS_ADVERSARY_SEED", 1)?;
    let steps = if operations < LONG_FROM { STEPS } else { STEPS_OF_LONG_RUN };
    let (mut done, mut succeeded, mut seed) = (0, 0, first);
    while done < operations {
        let episode = make(seed, steps);
        match episode.run()? {
            Outcome::Skipped => return Ok(()),
            Outcome::Clean { steps, granted } => {
                done += steps;
                succeeded += granted;
            }
            Outcome::Found(finding) => {
                let (name, steps) = (transport.name(), finding.steps.len());
                say(&format!(
                    "seed {seed} on {name}: {} after {steps} steps; making them fewer",
                    finding.what
                ));
                let (script, finding) = episode.shrink(finding)?;
                bail!("SHUNTFS_ADVERSARY_SEED={seed} on {}: {finding}\n{script}", transport.name());
            }
        }
        seed += 1;
    }
    say(&format!(
        "adversary on {}: {done} operations, {succeeded} granted, seeds {first} to {}",
        transport.name(),
        seed - 1
    ));
    // An adversary whom everything is refused has shown nothing, and neither has one who may do everything.
    ensure!(succeeded * 10 > done && succeeded < done, "{succeeded} of {done} operations were granted");
    Ok(())
}

#[test]
fn nobody_gets_more_than_the_rules_give_on_a_device() -> Result<()> {
    attack(Transport::Device, |seed, steps| Episode::new(Transport::Device, Flow::Passthrough, seed, steps))
}

#[test]
fn nobody_gets_more_than_the_rules_give_on_cloned_devices() -> Result<()> {
    attack(Transport::Cloned, |seed, steps| Episode::new(Transport::Cloned, Flow::Delegated, seed, steps))
}

#[test]
fn nobody_gets_more_than_the_rules_give_on_io_uring() -> Result<()> {
    attack(Transport::Uring, |seed, steps| Episode::new(Transport::Uring, Flow::Passthrough, seed, steps))
}

#[test]
fn nobody_gets_more_of_two_branches_on_a_device() -> Result<()> {
    attack(Transport::Device, |seed, steps| {
        Episode::new(Transport::Device, Flow::Passthrough, seed, steps).on_branches("default")
    })
}

#[test]
fn nobody_gets_more_of_two_branches_on_io_uring() -> Result<()> {
    attack(Transport::Uring, |seed, steps| {
        Episode::new(Transport::Uring, Flow::Served, seed, steps).on_branches("second")
    })
}

#[test]
fn nobody_gets_more_while_others_change_names_below() -> Result<()> {
    attack(Transport::Device, |seed, steps| {
        Episode::new(Transport::Device, Flow::Served, seed, steps).with_changes_below()
    })
}
