//! A name that was made below, and of which the kernel has not heard yet.

use shuntfs::Name;

use super::change::Spot;
use crate::shared::Shared;

/// A name that is there below. Where what follows fails, the caller hears that its creation failed, and the kernel is told to
/// look the name up again: it believes, in default forever, that there is none. It is not removed again, because by now
/// it may be somebody else's.
#[derive(Debug)]
#[must_use = "the kernel hears of it, or is to look"]
pub(crate) struct Untold<'s> {
    shared: &'s Shared,
    spot: Spot<'s>,
}

impl<'s> Untold<'s> {
    pub(super) fn new(shared: &'s Shared, spot: Spot<'s>) -> Self {
        Self { shared, spot }
    }

    /// The answer tells of it.
    pub(crate) fn told(self) {
        std::mem::forget(self);
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if let (Some(notifier), Some(name)) = (self.shared.notifier.get(), Name::new(self.spot.c_name())) {
            notifier.doubt(self.spot.folder.id, name);
        }
    }
}
