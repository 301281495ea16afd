//! The rules of a mount that is up.

use std::sync::{Arc, Mutex, PoisonError};

use shuntfs_pool::{Ledger, RuleControl};
use shuntfs_rules::Rules;

use super::source::{InForce, RuleSource};
use crate::failure::Failure;
use crate::mounts::shown;

/// Rules that hold, and where they came from.
#[derive(Debug)]
pub(crate) struct LiveRules {
    source: RuleSource,
    control: RuleControl,
    /// What must be said of them to whoever mounted.
    warnings: Vec<String>,
    /// Where those in force are written down for the next server, and what is written there, if there may be one.
    kept: Option<(Arc<Ledger>, Mutex<InForce>)>,
}

impl LiveRules {
    pub(crate) fn new(source: RuleSource, control: RuleControl, warnings: Vec<String>) -> Self {
        Self { source, control, warnings, kept: None }
    }

    /// The same rules, and those in their place, are written down for the next server.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn kept_in(self, ledger: Arc<Ledger>, in_force: InForce) -> Result<Self, Failure> {
        let kept = |error| Failure::new(format!("the rules cannot be written down: {error}"));
        let words = in_force.words();
        if ledger.rules() != words {
            ledger.takes_rules(&words).map_err(kept)?;
        }
        Ok(Self { kept: Some((ledger, Mutex::new(in_force))), ..self })
    }

    /// What is probably not meant in the rules that were mounted with.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(crate) fn control(&self) -> &RuleControl {
        &self.control
    }

    /// The file, as it is shown.
    pub(crate) fn file(&self) -> String {
        shown(self.source.file())
    }

    /// Reads the file again. One with a mistake changes nothing, and is told of.
    pub(crate) fn read_again(&self) {
        let taken = self.source.read().and_then(|(rules, in_force)| {
            let count = rules.rules().len();
            self.source.warnings(&rules).iter().for_each(|warning| tracing::warn!("{warning}"));
            self.replace(rules, in_force).map(|()| count)
        });
        match taken {
            Ok(count) => tracing::info!(file = self.file(), count, "the rules were read again"),
            Err(error) => {
                tracing::error!("the rules stay as they were: {error}");
                self.control.failed(error.to_string());
            }
        }
    }

    /// Takes other rules: first for the next server, so that none shows what this one denies.
    fn replace(&self, rules: Rules, next: InForce) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
        let replace = |rules| self.control.replace(rules).map_err(|error| failed(&error));
        let Some((ledger, in_force)) = &self.kept else { return replace(rules) };
        // The next server would not ask whether they may be taken.
        self.control.check(&rules).map_err(|error| failed(&error))?;
        let mut in_force = in_force.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.takes_rules(&next.words()).map_err(|error| failed(&error))?;
        match replace(rules) {
            Ok(()) => *in_force = next,
            Err(failure) => {
                ledger.takes_rules(&in_force.words()).map_err(|error| failed(&error))?;
                return Err(failure);
            }
        }
        Ok(())
    }
}
