//! What is asked and told at the control socket.

use serde::{Deserialize, Serialize};

use super::document::TraceLine;

/// Which requests are asked for.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceQuestion {
    /// These operations alone, by their names; all where there are none.
    pub operations: Vec<String>,
    /// This process alone, or this thread.
    pub pid: Option<u32>,
    /// A pattern of paths below the mount.
    pub path: Option<String>,
    /// Those that took so many nanoseconds at least.
    pub slower_than_ns: u64,
    /// Those alone that failed.
    pub errors: bool,
}

/// What is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TraceNews {
    /// From now on requests are told.
    Begins,
    /// One that was answered.
    Request(Box<TraceLine>),
    /// So many did not fit, because they were not taken in time.
    Dropped(u64),
    /// The connection has ended.
    Ends,
}
