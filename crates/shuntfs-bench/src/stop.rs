//! The wish to end early: Ctrl-C, SIGTERM or SIGHUP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};

/// A flag that a signal sets; every wait of this crate looks at it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Makes SIGINT, SIGTERM and SIGHUP set the flag instead of ending the process, so that mounts are taken down.
    ///
    /// # Errors
    /// When the kernel refuses the handlers.
    pub fn on_signals() -> Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let stop = Self::default();
        // `nohup` starts us with this one ignored, and then it shall stay ignored.
        let hangup = (!ignores(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            signal_hook::flag::register(signal, Arc::clone(&stop.0)).context("cannot handle signals")?;
        }
        Ok(stop)
    }

    /// Sets the flag.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the flag is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// Returns whether this process was started with a signal ignored.
fn ignores(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_known() {
        // The Rust runtime ignores SIGPIPE and nothing else.
        assert!(ignores(signal_hook::consts::SIGPIPE));
        assert!(!ignores(signal_hook::consts::SIGINT));
    }
}
