//! The rules of a mount that is up.

use shuntfs_pool::RuleControl;

use super::source::RuleSource;
use crate::failure::Failure;
use crate::mounts::shown;

/// Rules that hold, and where they came from.
#[derive(Debug)]
pub(crate) struct LiveRules {
    source: RuleSource,
    control: RuleControl,
    /// What is to be said of them to whoever mounted.
    warnings: Vec<String>,
}

impl LiveRules {
    pub(crate) fn new(source: RuleSource, control: RuleControl, warnings: Vec<String>) -> Self {
        Self { source, control, warnings }
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
        let taken = self.source.read().and_then(|rules| {
            let count = rules.rules().len();
            self.source.warnings(&rules).iter().for_each(|warning| tracing::warn!("{warning}"));
            self.control.replace(rules).map_err(|error| Failure::new(error.to_string())).map(|()| count)
        });
        match taken {
            Ok(count) => tracing::info!(file = self.file(), count, "the rules were read again"),
            Err(error) => {
                tracing::error!("the rules stay as they were: {error}");
                self.control.failed(error.to_string());
            }
        }
    }
}
