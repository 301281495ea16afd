//! What survives a server: words in a file in memory, which its successor maps after it.
//!
//! A page of words at the start, then tables of records of one length. There are no pointers, only places. A record is written first and
//! made valid last, by one word; it is made invalid first, before what it names is closed. So a server that is killed between any two
//! stores leaves each record whole, or as if it had never been: it may leave a descriptor that no record names, a lookup that nobody has,
//! a backing id; never a record of what does not exist. Only processes die here, and a store of a dead one is seen, so the order of the program
//! is all that it takes.
//!
//! What is found is not believed, since a wild store may be why the server died. Each record has a check over all of its words and its place,
//! counts have one of their own, and descriptors must be the files that were written down. The first thing that is wrong has all of
//! it refused: to go on with the rest would be to guess.

mod backings;
mod counters;
mod layout;
mod left;
mod nodes;
mod opens;
mod requests;
mod rings;

pub(crate) use counters::KeptCounters;
pub use layout::{STATE_VERSION, STATE_VERSIONS, StoreError};
pub(crate) use layout::{Store, StoredHandover};
pub use left::{LeftNode, LeftNodes};
pub use nodes::{KeptNode, KeptNodes, NodePlace};
pub(crate) use opens::{FoundOpen, OpenRecord, Table};
pub(crate) use requests::{Begun, Requests, keeps_result};
pub(crate) use rings::StoredRings;

#[cfg(test)]
mod test;
