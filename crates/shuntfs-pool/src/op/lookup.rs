//! LOOKUP.

use shuntfs::{Entry, Errno, NodeId, Result};

use crate::find;
use crate::guard::{Arrival, Guard};
use crate::merge;
use crate::name_buf::NameBuf;
use crate::node::Marks;
use crate::shared::Shared;
use crate::who::Who;

/// LOOKUP: two lower calls.
pub(crate) fn lookup(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf) -> Result<Entry> {
    if let Some(merge) = shared.merge.as_ref().filter(|_| merge::is_named(shared, parent, name)) {
        return Ok(merge.control.entry(shared));
    }
    let folder = shared.folder(parent)?;
    let spot = folder.spot(name);
    let guard = Guard::new(shared, who);
    guard.check_sight(spot)?;
    match find::find(shared, spot) {
        // A hidden name gets a bare ENOENT, which the kernel does not keep for others.
        Ok(found) => guard.arrive(spot, found, Arrival::Met).map(|arrived| arrived.entry(shared)),
        Err(Errno::NOENT) => {
            guard.check_absence(spot)?;
            let is_doubtful = folder.node.has(Marks::DOUBTFUL)
                || shared.merge.as_ref().is_some_and(merge::Merge::doubts_names);
            if shared.is_ours_alone() && !is_doubtful {
                Ok(Entry::negative(shared.ttl()))
            } else {
                Err(Errno::NOENT)
            }
        }
        Err(error) => Err(error),
    }
}
