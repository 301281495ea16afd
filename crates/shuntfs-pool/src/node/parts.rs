//! Where a folder is that may be on several branches.

use std::ffi::CStr;
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs::{Generation, LowerFile, NodeId};

use super::place::Place;

/// A folder, and a name in it.
pub(crate) type Way = (NodeId, Box<CStr>);

/// The places of a folder, one on each branch that has it. Others may join and leave while it is in use.
#[derive(Debug)]
pub(crate) struct Parts {
    known: Mutex<Known>,
    /// The inode number that it is shown with: that of the first look, because programs that walk a tree compare it.
    pub(crate) ino: u64,
    /// The generation of its number, where that lasts.
    pub(crate) generation: Option<Generation>,
}

#[derive(Debug)]
struct Known {
    /// In the order of the branches; never empty once it was found.
    places: Vec<Arc<Place>>,
    /// On branches that are set aside.
    aside: Vec<Arc<Place>>,
    /// The branch whose attributes are shown.
    shown: u16,
    /// How it is found; `None` for the root, and for a folder that has lost its name.
    way: Option<Way>,
    /// Whether names are known to be compared byte by byte in all of these places.
    is_exact: bool,
}

impl Parts {
    /// A folder with these places, in the order of the branches.
    pub(crate) fn new(ino: u64, places: Vec<Place>, shown: u16, way: Option<Way>) -> Self {
        let places = places.into_iter().map(Arc::new).collect();
        Self {
            known: Mutex::new(Known { places, aside: Vec::new(), shown, way, is_exact: false }),
            ino,
            generation: None,
        }
    }

    /// The same with a number that lasts and has this generation, if there is one.
    pub(crate) fn with_generation(self, generation: Option<Generation>) -> Self {
        Self { generation, ..self }
    }

    /// The place whose attributes are shown.
    pub(crate) fn shown(&self) -> Arc<Place> {
        self.shown_if_found().expect("a folder was found before it is used")
    }

    /// The same; `None` of a folder that a predecessor knew, and that was not looked for yet.
    pub(crate) fn shown_if_found(&self) -> Option<Arc<Place>> {
        let known = self.known.lock();
        let shown = known.places.iter().find(|place| place.mount().branch == known.shown);
        shown.or(known.places.first()).cloned()
    }

    /// All places, in the order of the branches.
    pub(crate) fn all(&self) -> Vec<Arc<Place>> {
        self.known.lock().places.clone()
    }

    /// The place on a branch.
    pub(crate) fn on(&self, branch: u16) -> Option<Arc<Place>> {
        self.known.lock().on(branch).cloned()
    }

    /// It was looked for, and is in these places; where not all branches could be asked, also in others that were known.
    pub(crate) fn found(&self, places: Vec<Place>, shown: u16, is_doubtful: bool, order: &[u16]) {
        let mut known = self.known.lock();
        known.shown = shown;
        let before = if is_doubtful { known.places.clone() } else { Vec::new() };
        known.set(places);
        for place in before {
            if known.on(place.mount().branch).is_none() {
                known.places.push(place);
            }
        }
        known.sort(order);
    }

    /// It is in one more place, which is the one that is shown where that is the first.
    pub(crate) fn join(&self, place: Place, order: &[u16], shows_first: bool) {
        let mut known = self.known.lock();
        let branch = place.mount().branch;
        known.places.retain(|other| other.mount().branch != branch);
        known.places.push(Arc::new(place));
        known.is_exact = false;
        known.reorder(order, shows_first);
    }

    /// The order of the branches is another one, and with it which of them is shown, where that is the first.
    pub(crate) fn reorder(&self, order: &[u16], shows_first: bool) {
        self.known.lock().reorder(order, shows_first);
    }

    /// A branch is set aside: what it has is left out, unless it alone has the folder, which is asked of it in vain.
    pub(crate) fn set_aside(&self, branch: u16) {
        let mut known = self.known.lock();
        if known.places.len() < 2 {
            return;
        }
        if let Some(at) = known.places.iter().position(|place| place.mount().branch == branch) {
            let place = known.places.remove(at);
            known.aside.retain(|other| other.mount().branch != branch);
            known.aside.push(place);
        }
    }

    /// A branch that was set aside is taken back.
    pub(crate) fn take_back(&self, branch: u16, order: &[u16], shows_first: bool) {
        let mut known = self.known.lock();
        if let Some(at) = known.aside.iter().position(|place| place.mount().branch == branch) {
            let place = known.aside.remove(at);
            if known.on(branch).is_none() {
                known.places.push(place);
            }
            known.reorder(order, shows_first);
        }
    }

    /// Whether it is on a branch that is set aside, as far as is known.
    pub(crate) fn is_partly_aside(&self) -> bool {
        !self.known.lock().aside.is_empty()
    }

    /// It was removed from a branch, and is on others.
    pub(crate) fn leave(&self, branch: u16) {
        let mut known = self.known.lock();
        known.aside.retain(|place| place.mount().branch != branch);
        if known.places.len() > 1 {
            known.places.retain(|place| place.mount().branch != branch);
        }
    }

    /// It is not in this place any more, if it is in others. Whether it is there no more.
    pub(crate) fn leave_place(&self, place: &Arc<Place>) -> bool {
        let mut known = self.known.lock();
        let is_there = |one: &Arc<Place>| Arc::ptr_eq(one, place);
        if known.places.iter().any(is_there) {
            if known.places.len() == 1 {
                return false;
            }
            known.places.retain(|one| !is_there(one));
        }
        true
    }

    /// How it is found.
    pub(crate) fn way(&self) -> Option<Way> {
        self.known.lock().way.clone()
    }

    /// It is found in another way from now on.
    pub(crate) fn moved(&self, way: Way) {
        self.known.lock().way = Some(way);
    }

    /// It has lost its name: whatever gets that next is another folder.
    pub(crate) fn lost(&self) {
        self.known.lock().way = None;
    }

    /// Whether names are known to be compared byte by byte in all of its places.
    pub(crate) fn is_exact(&self) -> bool {
        self.known.lock().is_exact
    }

    /// Notes that they are in these places, if these are all.
    pub(crate) fn are_exact(&self, places: &[Arc<Place>]) {
        let mut known = self.known.lock();
        let is_among = |place: &Arc<Place>| places.iter().any(|other| Arc::ptr_eq(place, other));
        known.is_exact = known.places.iter().all(is_among);
    }

    /// They may be compared otherwise from now on.
    pub(crate) fn may_fold(&self) {
        self.known.lock().is_exact = false;
    }

    /// Whether a descriptor of it is open.
    pub(crate) fn is_held(&self) -> bool {
        let known = self.known.lock();
        known.places.iter().chain(&known.aside).any(|place| place.is_held())
    }

    /// Whether one is open without which it can be reached.
    pub(crate) fn can_give_up(&self) -> bool {
        self.known.lock().places.iter().any(|place| place.handle().is_some() && place.is_held())
    }

    /// Gives up the descriptors without which it can be reached; one of them.
    pub(crate) fn give_up(&self, must_stay: impl Fn() -> bool) -> Option<Arc<LowerFile>> {
        let mut one = None;
        let all: Vec<_> = {
            let known = self.known.lock();
            known.places.iter().chain(&known.aside).cloned().collect()
        };
        for place in all {
            one = place.give_up(|| place.handle().is_none() || must_stay()).or(one);
        }
        one
    }
}

impl Known {
    fn on(&self, branch: u16) -> Option<&Arc<Place>> {
        self.places.iter().find(|place| place.mount().branch == branch)
    }

    fn reorder(&mut self, order: &[u16], shows_first: bool) {
        self.sort(order);
        if shows_first && let Some(first) = self.places.first() {
            self.shown = first.mount().branch;
        }
    }

    /// In this order; what is on no branch of it comes last.
    fn sort(&mut self, order: &[u16]) {
        let rank = |place: &Arc<Place>| order.iter().position(|number| *number == place.mount().branch);
        self.places.sort_by_key(|place| rank(place).unwrap_or(usize::MAX));
    }

    /// Takes these for the places; those that were known already stay, with their descriptors.
    fn set(&mut self, places: Vec<Place>) {
        let before = std::mem::take(&mut self.places);
        let same = |place: Place| match before.iter().find(|known| known.inode() == place.inode()) {
            Some(known) => Arc::clone(known),
            None => Arc::new(place),
        };
        self.places = places.into_iter().map(same).collect();
        self.is_exact &= self.places.iter().all(|place| before.iter().any(|known| Arc::ptr_eq(place, known)));
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::branch::MountIndex;
    use crate::node::Identity;
    use shuntfs_sys::Stat;

    fn parts(branches: &[u16]) -> Parts {
        let place =
            |branch: &u16| Place::new(Identity::new(&Stat::default(), MountIndex::own(*branch), None));
        Parts::new(1, branches.iter().map(place).collect(), branches[0], None)
    }

    fn on(parts: &Parts) -> Vec<u16> {
        parts.all().iter().map(|place| place.mount().branch).collect()
    }

    #[test]
    fn a_branch_that_is_set_aside_is_left_out_until_it_is_taken_back() {
        let order = [2, 0, 1];
        let parts = parts(&[2, 0, 1]);
        parts.set_aside(2);
        assert_eq!(
            (on(&parts), parts.shown().mount().branch, parts.is_partly_aside()),
            (vec![0, 1], 0, true)
        );
        parts.set_aside(2);
        parts.set_aside(7);
        parts.take_back(7, &order, true);
        assert_eq!(on(&parts), [0, 1]);
        parts.take_back(2, &order, true);
        assert_eq!(
            (on(&parts), parts.shown().mount().branch, parts.is_partly_aside()),
            (vec![2, 0, 1], 2, false)
        );
        // One that was removed meanwhile does not come back.
        parts.set_aside(0);
        parts.leave(0);
        parts.take_back(0, &order, true);
        assert_eq!(on(&parts), [2, 1]);
    }

    #[test]
    fn the_only_place_stays() {
        let parts = parts(&[0, 1]);
        parts.set_aside(1);
        parts.set_aside(0);
        assert_eq!((on(&parts), parts.is_partly_aside()), (vec![0], true));
        // Whoever takes the one back sets the other aside again.
        parts.take_back(1, &[0, 1], true);
        parts.set_aside(0);
        assert_eq!(on(&parts), [1]);
    }
}
