//! What is told of an image that is open.

use serde::{Deserialize, Serialize};

use crate::options::{Format, HostCache};

/// An image that is open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImageStatus {
    /// Its format.
    pub format: Format,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether writes beyond the end make it larger.
    pub growable: bool,
    /// What happens to the host's page cache.
    pub cache: HostCache,
    /// The internal snapshot that is shown.
    pub snapshot: Option<String>,
    /// The files, from the image down its backing chain.
    pub layers: Vec<Layer>,
    /// Whether the file system of the image keeps the locks that guard it against others.
    pub locked: bool,
}

/// One file of an image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Layer {
    /// Where it is.
    pub path: String,
    /// Its format.
    pub format: Format,
}
