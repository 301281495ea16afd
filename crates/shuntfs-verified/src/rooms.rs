//! Memory for what is checked ahead: a bounded number of rooms, used again while anybody reads sequentially, and given back after.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes of a room.
pub(crate) const ROOM_LEN: usize = 1 << 20;

/// All rooms of a mount.
#[derive(Debug)]
pub(crate) struct Rooms {
    state: Mutex<State>,
    max: usize,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<Vec<u8>>,
    taken: usize,
}

/// One room; what is in it at first is what somebody left there.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    rooms: Arc<Rooms>,
}

impl Rooms {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), max })
    }

    /// A room, if not all are taken.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Room> {
        let mut state = self.state.lock();
        if state.taken == self.max {
            return None;
        }
        state.taken += 1;
        let bytes = state.free.pop();
        drop(state);
        Some(Room { bytes: bytes.unwrap_or_else(|| vec![0; ROOM_LEN]), rooms: Arc::clone(self) })
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.rooms.state.lock();
        state.taken -= 1;
        if state.taken == 0 {
            state.free.clear();
        } else {
            state.free.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn rooms_are_bounded_used_again_and_given_back() {
        let rooms = Rooms::new(2);
        let (one, mut other) = (rooms.take().unwrap(), rooms.take().unwrap());
        assert!(rooms.take().is_none() && one.len() == ROOM_LEN);
        other[0] = 7;
        drop(other);
        let again = rooms.take().unwrap();
        assert_eq!(again[0], 7, "the same memory");
        drop((one, again));
        assert!(rooms.state.lock().free.is_empty(), "nobody needs any");
    }
}
