//! Listings that wait for their next READDIR.
//!
//! Where the kernel opens folders without telling us, a READDIR names a folder and a cookie alone. What it needs to go
//! on (a descriptor that stands at the cookie, and the records that were fetched) waits here under just that name, so
//! that several listings of one folder do not meet. That is an optimisation: one that is not found here is opened
//! anew at its cookie. Hence few are kept, and the oldest one goes first.

use std::collections::VecDeque;

use parking_lot::Mutex;
use shuntfs::NodeId;

/// Listings that are under way at once, for each of which a batch of records may wait (32 KiB).
const PARKED_MAX: usize = 16;

/// What is left of a listing after some of it was answered.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Rest<T> {
    /// It goes on here.
    More(T),
    /// Nothing: it was read to its end.
    Nothing,
}

/// Listings by folder and cookie.
#[derive(Debug)]
pub(crate) struct Parked<T> {
    waiting: Mutex<VecDeque<(NodeId, u64, Rest<T>)>>,
}

impl<T> Default for Parked<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default() }
    }
}

impl<T> Parked<T> {
    /// Keeps what goes on at `cookie`; what had to go for it is for the caller to drop.
    #[must_use = "closing a descriptor is no matter for a lock's holder"]
    pub(crate) fn put(&self, folder: NodeId, cookie: u64, rest: Rest<T>) -> Option<Rest<T>> {
        let mut waiting = self.waiting.lock();
        let oldest = if waiting.len() < PARKED_MAX { None } else { waiting.pop_front() };
        waiting.push_back((folder, cookie, rest));
        oldest.map(|(_, _, rest)| rest)
    }

    /// Takes out what goes on at `cookie`.
    pub(crate) fn take(&self, folder: NodeId, cookie: u64) -> Option<Rest<T>> {
        let mut waiting = self.waiting.lock();
        let place = waiting.iter().rposition(|(id, at, _)| (*id, *at) == (folder, cookie))?;
        waiting.remove(place).map(|(_, _, rest)| rest)
    }

    /// Drops everything of a folder: it is gone, or is listed from its start. What an earlier listing left here, its end or records
    /// that were fetched, may lack names that were made since; a listing beside it is opened anew at its cookie.
    pub(crate) fn forget(&self, folder: NodeId) {
        let dropped = {
            let mut waiting = self.waiting.lock();
            if !waiting.iter().any(|(id, _, _)| *id == folder) {
                return;
            }
            let (dropped, kept) = waiting.drain(..).partition::<Vec<_>, _>(|(id, _, _)| *id == folder);
            waiting.extend(kept);
            dropped
        };
        drop(dropped);
    }

    /// Drops everything; how many descriptors went.
    pub(crate) fn shed(&self) -> usize {
        let all = std::mem::take(&mut *self.waiting.lock());
        all.iter().filter(|(_, _, rest)| matches!(rest, Rest::More(_))).count()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn folder(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn a_listing_goes_on_where_it_stopped_and_only_once() {
        let parked = Parked::default();
        assert_eq!(parked.put(folder(2), 10, Rest::More('a')), None);
        assert_eq!(parked.put(folder(2), 20, Rest::More('b')), None);
        assert_eq!(parked.put(folder(3), 10, Rest::Nothing), None);
        assert_eq!(parked.take(folder(2), 30), None);
        assert_eq!(parked.take(folder(2), 20), Some(Rest::More('b')));
        assert_eq!(parked.take(folder(2), 20), None);
        assert_eq!(parked.take(folder(2), 10), Some(Rest::More('a')));
        assert_eq!(parked.take(folder(3), 10), Some(Rest::Nothing));
    }

    #[test]
    fn the_oldest_one_goes_first() {
        let parked = Parked::default();
        for cookie in 0..20 {
            let gone = parked.put(folder(2), cookie, Rest::More(cookie));
            assert_eq!(gone, cookie.checked_sub(16).map(Rest::More));
        }
        assert_eq!(parked.take(folder(2), 3), None);
        assert_eq!(parked.take(folder(2), 4), Some(Rest::More(4)));
        assert_eq!((parked.shed(), parked.shed()), (15, 0));
    }

    #[test]
    fn a_new_listing_believes_nothing_of_earlier_ones() {
        let parked = Parked::default();
        for (number, cookie, rest) in [(2, 1, Rest::Nothing), (2, 2, Rest::More('a')), (3, 1, Rest::Nothing)]
        {
            assert_eq!(parked.put(folder(number), cookie, rest), None);
        }
        parked.forget(folder(2));
        assert_eq!((parked.take(folder(2), 1), parked.take(folder(2), 2)), (None, None));
        assert_eq!(parked.take(folder(3), 1), Some(Rest::Nothing), "of another folder");
    }
}
