//! Listings whose folder was closed before they were at their end.
//!
//! An NFS server opens a folder for each request, goes to the cookie that the last one ended with, and closes it. A cookie of a merge is a number of records: in
//! a listing that has not been there as many names are left out as were removed before it, and `rm -r` ends with ENOTEMPTY; and each request would list the folder
//! from its start. So where handles last, what leads to the cookies of such a listing stays for the next one of its folder: its trail, and the names that
//! it has noted, but nothing that is open. A close may come after the next request (those of kernel threads are put off until a moment later before Linux 6.8), and
//! then the listing that is open still is asked.
//!
//! Two listings of one folder have cookies of the same numbers, and nothing tells whose one is. The last one that has been there is taken. So if several clients list
//! a folder from which names go, at the same time and about as far, names may be left out or repeated.

use std::collections::VecDeque;
use std::sync::Weak;

use parking_lot::Mutex;
use shuntfs::{Errno, NodeId};

use super::noted::Noted;
use super::trail::Trail;
use crate::node::Place;

/// How many there are at most. Each takes up to 32 KiB, what its folder's marks take, and its share in the names that are noted.
const CLOSED_MAX: usize = 16;

/// What a listing knows when its folder is closed.
#[derive(Debug)]
pub(crate) struct Past {
    /// Where it reads the folder.
    pub(super) places: Vec<Weak<Place>>,
    pub(super) trail: Trail,
    pub(super) noted: Noted,
    /// The error of a branch that could not be read, which is told at the end.
    pub(super) failed: Option<Errno>,
}

/// Whether a listing reads a folder in the same places as another one.
pub(super) fn are_same<'p>(
    places: impl ExactSizeIterator<Item = &'p Weak<Place>>,
    others: &[Weak<Place>],
) -> bool {
    places.len() == others.len() && places.zip(others).all(|(one, other)| one.ptr_eq(other))
}

/// Those of one merge.
#[derive(Debug, Default)]
pub(crate) struct Closed(Mutex<VecDeque<(NodeId, Past)>>);

impl Closed {
    /// Keeps one, for which the oldest may have to go.
    pub(super) fn keep(&self, folder: NodeId, past: Past) {
        let oldest = {
            let mut all = self.0.lock();
            let oldest = if all.len() < CLOSED_MAX { None } else { all.pop_front() };
            all.push_back((folder, past));
            oldest
        };
        drop(oldest);
    }

    /// The last one of a folder that is read in these places and has been where so many records were listed.
    pub(super) fn take(&self, folder: NodeId, places: &[Weak<Place>], to: usize) -> Option<Past> {
        let mut all = self.0.lock();
        let at = all.iter().rposition(|(id, past)| {
            *id == folder && are_same(past.places.iter(), places) && past.trail.leads_to(to)
        })?;
        all.remove(at).map(|(_, past)| past)
    }

    /// A folder is not known any more.
    pub(crate) fn forget(&self, folder: NodeId) {
        let gone = {
            let mut all = self.0.lock();
            if !all.iter().any(|(id, _)| *id == folder) {
                return;
            }
            let (gone, kept) = all.drain(..).partition::<Vec<_>, _>(|(id, _)| *id == folder);
            all.extend(kept);
            gone
        };
        drop(gone);
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::branch::MountIndex;
    use crate::node::Identity;
    use shuntfs_sys::Stat;
    use std::sync::Arc;

    fn place() -> Arc<Place> {
        Arc::new(Place::new(Identity::new(&Stat::default(), MountIndex::own(0), None)))
    }

    fn past(places: &[Weak<Place>], listed: u64) -> Past {
        let mut trail = Trail::new();
        (0..listed).for_each(|position| trail.add(position));
        Past { places: places.to_vec(), trail, noted: Noted::new(Arc::default()), failed: None }
    }

    #[test]
    fn the_last_listing_that_has_been_there_is_taken() {
        let (closed, folder) = (Closed::default(), NodeId::new(7).unwrap());
        let held = [place(), place()];
        let places = held.each_ref().map(Arc::downgrade);
        for listed in [10, 20, 15] {
            closed.keep(folder, past(&places, listed));
        }
        closed.keep(NodeId::new(8).unwrap(), past(&places, 20));
        let listed =
            |places: &[Weak<Place>], to| closed.take(folder, places, to).map(|past| past.trail.listed());
        let turned = [places[1].clone(), places[0].clone()];
        assert_eq!([listed(&places[..1], 5), listed(&turned, 5), listed(&places, 21)], [None; 3]);
        assert_eq!(listed(&places, 16), Some(20));
        assert_eq!([0; 3].map(|_| listed(&places, 3)), [Some(15), Some(10), None]);
        closed.keep(folder, past(&places, 5));
        closed.forget(folder);
        assert_eq!((listed(&places, 5), closed.0.lock().len()), (None, 1));
    }

    #[test]
    fn the_oldest_one_goes_first() {
        let (closed, folder) = (Closed::default(), NodeId::new(7).unwrap());
        (1..20).for_each(|listed| closed.keep(folder, past(&[], listed)));
        let lens: Vec<_> = closed.0.lock().iter().map(|(_, past)| past.trail.listed()).collect();
        assert_eq!(lens, Vec::from_iter(4..20));
    }
}
