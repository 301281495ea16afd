//! What requests ask for and how they are answered, one by one, for whoever looks.
//!
//! While nobody does, a request costs one load of a flag (`server.rs`: `Gate`), which lies beside what each request reads anyway. While somebody
//! does, the queue's thread notes what a request asks for before the answer overwrites it (`trail.rs`), and puts a record into a ring of its
//! own for each who looks (`hub.rs`). The rings are bounded: who reads too slowly is told how many records are missing.

mod filter;
mod hub;
mod record;
mod trail;

pub use filter::TraceFilter;
pub(crate) use hub::{Hub, Observed};
pub use hub::{Trace, TraceError, Traced};
pub use record::{NodePlace, TraceRecord};
pub(crate) use trail::{Trail, begin};
