//! Which names a listing shows.

use shuntfs::NodeId;
use shuntfs_rules::Listing;

use super::change::Spot;
use super::judge::Guard;
use crate::rules::Asking;
use crate::shared::Shared;
use crate::who::Who;

/// The names of one folder, as one caller sees them.
pub(crate) struct Names<'g> {
    /// Where not everybody sees every name.
    asking: Option<&'g Asking<'g>>,
}

impl Guard<'_> {
    /// The names of a folder.
    pub(crate) fn names_in(&self, folder: NodeId) -> Names<'_> {
        let asking = self.asking.as_ref().filter(|asking| listing(asking, folder) != Listing::Whole);
        Names { asking }
    }
}

impl Names<'_> {
    /// Whether the caller sees a name. What cannot be told is not shown.
    pub(crate) fn has(&self, spot: Spot<'_>) -> bool {
        let Some(asking) = self.asking else { return true };
        asking.hides(spot).is_ok_and(|hidden| !hidden)
    }
}

fn listing(asking: &Asking<'_>, folder: NodeId) -> Listing {
    if !asking.rules().hides() {
        return Listing::Whole;
    }
    // By another path of the folder other names may be hidden.
    if asking.shared.has_twins() {
        return Listing::Varies;
    }
    // Where no path is known nothing is taken for granted.
    asking.engine.paths.folder(folder).map_or(Listing::Varies, |path| asking.rules().listing(&path))
}

/// Whether all callers get the same listing of a folder, so that the kernel may keep it.
pub(crate) fn is_listing_common(shared: &Shared, who: Who, folder: NodeId) -> bool {
    Guard::new(shared, who).asking.is_none_or(|asking| listing(&asking, folder) != Listing::Varies)
}
