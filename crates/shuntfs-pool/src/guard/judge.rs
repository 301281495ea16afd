//! One place where what operations do is judged.

use shuntfs::Result;

use super::change::{Change, Spot};
use crate::rules::{Asking, Told};
use crate::shared::Shared;
use crate::who::Who;

/// What may refuse the operations of one request.
pub(crate) struct Guard<'s> {
    pub(super) shared: &'s Shared,
    pub(super) who: Who,
    /// The rules of the moment that the request came, where there are any.
    pub(crate) asking: Option<Asking<'s>>,
}

/// What was judged and may be done: once, because whoever does it takes it.
#[derive(Debug)]
#[must_use = "what was judged is to be done"]
pub(crate) struct Judged<C: Change> {
    pub(super) change: C,
    pub(super) who: Who,
    pub(super) terms: C::Terms,
}

impl<'s> Guard<'s> {
    pub(crate) fn new(shared: &'s Shared, who: Who) -> Self {
        let asking = shared.rules.as_ref().map(|engine| Asking::new(shared, engine, who));
        Self { shared, who, asking }
    }

    /// Looks names up for nobody: for the mover, from which nothing is hidden, and which shows nobody what it sees.
    pub(crate) fn of_nobody(shared: &'s Shared) -> Self {
        Self { shared, who: Who::told(0, 0), asking: None }
    }

    /// Who asks.
    pub(crate) fn who(&self) -> Who {
        self.who
    }

    /// Judges for somebody who does not ask.
    pub(crate) fn told(shared: &'s Shared, told: &'s Told<'s>) -> Self {
        let asking = shared.rules.as_ref().map(|engine| Asking::told(shared, engine, told));
        Self { shared, who: Who::told(told.caller.uid, told.caller.gid), asking }
    }

    /// Judges what an operation is about to do.
    ///
    /// # Errors
    /// EROFS for changes of a pool that is read-only; then those of the rules, so that nothing else tells of a name that is
    /// hidden; then EPERM for what is sealed; then those of the file's own state.
    pub(crate) fn judge<C: Change>(&self, change: C) -> Result<Judged<C>> {
        if change.writes() {
            self.shared.check_writable()?;
        }
        let terms = match &self.asking {
            Some(asking) => change.ask_rules(asking)?,
            None => change.without_rules(),
        };
        change.ask_seals(self.shared, &terms)?;
        change.ask_state(self.shared)?;
        Ok(Judged { change, who: self.who, terms })
    }

    /// Whether callers may see what a name means in different ways.
    pub(crate) fn varies(&self, spot: Spot<'_>) -> bool {
        // Asked of every name of a listing, so most are spared their path. Where none is known nothing is taken for granted.
        let asking = self.asking.as_ref().filter(|asking| asking.rules().hides() || asking.rules().redacts());
        asking.is_some_and(|asking| asking.possible_at(spot).map_or(true, |possible| possible.varies))
    }
}
