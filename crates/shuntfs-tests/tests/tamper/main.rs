//! A tamperer made from a seed: somebody who can write the folder below and the store changes both in every way, while files are
//! open and mapped, and others get at the bytes of sealed files by every way that there is. What they get is as it was
//! sealed, or an error.
//!
//! `SHUNTFS_TAMPER_OPERATIONS=N` says how many steps each test takes (2500), `SHUNTFS_TAMPER_SEED=N` which seed comes first (1).
//! What fails is made short, and printed with its seed.

mod case;
mod ground;
mod look;
mod race;
mod step;
mod tree;

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use shuntfs_testkit::mounted::Transport;
use shuntfs_testkit::{Serial, serial};

use crate::case::{Case, Tally};

/// Steps between a mount and the next one; long runs take more of them, because each mount takes a second.
const STEPS_OF_CASE: u64 = 1250;
const STEPS_OF_LONG_CASE: u64 = 20_000;
const LONG_FROM: u64 = 100_000;

#[test]
fn on_a_device() -> Result<()> {
    tamper(Transport::Device)
}

#[test]
fn on_cloned_devices() -> Result<()> {
    tamper(Transport::Cloned)
}

#[test]
fn on_io_uring() -> Result<()> {
    tamper(Transport::Uring)
}

fn number(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text}")),
        Err(_) => Ok(default),
    }
}

fn tamper(transport: Transport) -> Result<()> {
    let _serial: Serial = serial();
    let (wanted, first) = (number("SHUNTFS_TAMPER_OPERATIONS", 2500)?, number("SHUNTFS_TAMPER_SEED", 1)?);
    let steps_of_case = if wanted < LONG_FROM { STEPS_OF_CASE } else { STEPS_OF_LONG_CASE };
    let (start, mut tally) = (Instant::now(), Tally::default());
    for seed in first.. {
        let case = Case::new(seed, transport);
        let steps = steps_of_case.min(wanted - tally.steps);
        let Some(found) = case.run(steps, &mut tally)? else { return Ok(()) };
        if let Some(what) = found {
            bail!("SHUNTFS_TAMPER_SEED={seed} on {}, {case}: {what}", transport.name());
        }
        if tally.steps >= wanted {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{}: {tally} in {seconds:.1} s, from seed {first} on", transport.name());
    if wanted >= 2500 && !tally.is_worth_something() {
        bail!("next to nothing was read, or refused: {tally}");
    }
    Ok(())
}
