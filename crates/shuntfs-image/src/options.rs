//! What an image must be opened as, and how it must be shown.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The format of an image.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Format {
    /// By the first bytes: `qcow2` where they say so, else `raw`.
    #[default]
    Auto,
    /// The bytes of the disk, one after the other.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
    /// No image at all: zeroes, and what is written is dropped.
    Null,
}

impl Format {
    /// Its name, as it is typed and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Null => "null",
        }
    }
}

/// What happens to the host's page cache of the image file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HostCache {
    /// It is used; `fsync` on the export makes durable what it holds.
    #[default]
    Writeback,
    /// It is bypassed (`O_DIRECT`) by all data whose offset and length are aligned as the disk wants it.
    None,
}

/// Which other files an image may have opened: those that it stands on.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Backing {
    /// As [`Backing::Follow`], but where root opens an image that others can have made, as [`Backing::None`].
    #[default]
    Auto,
    /// Whatever the image names, and what that names.
    Follow,
    /// None: an image that needs one is refused.
    None,
    /// This one, instead of what the image names; it may itself stand on nothing.
    File(PathBuf),
}

/// How opens of a raw image wish their bytes to flow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum FlowWish {
    /// In the kernel where nothing has to be watched, else as [`FlowWish::Relay`].
    #[default]
    Passthrough,
    /// Through our queues, by the library.
    Relay,
    /// Through our queues, by the file system.
    Served,
}

/// What to open.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ImageOptions {
    /// The image. Ignored for [`Format::Null`].
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// The size in bytes of [`Format::Null`].
    pub size: Option<u64>,
    /// Whether it may be written.
    pub writable: bool,
    /// What happens to the host's page cache.
    pub cache: HostCache,
    /// The internal snapshot that is shown, by name or number; the image as it is now where not said.
    pub snapshot: Option<String>,
    /// Which other files it may have opened.
    pub backing: Backing,
}

/// How an image is shown.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Exported {
    /// Whether a write beyond the end makes the disk larger. Default: it does not.
    pub growable: bool,
    /// Whether others get in, so that owner and group may be changed. Default: no.
    pub allow_other: bool,
    /// How bytes of a raw image flow.
    pub flow: FlowWish,
}

impl Exported {
    /// Says whether writes beyond the end make the disk larger.
    #[must_use]
    pub fn growable(self, growable: bool) -> Self {
        Self { growable, ..self }
    }

    /// Says whether others get in.
    #[must_use]
    pub fn allow_other(self, allow_other: bool) -> Self {
        Self { allow_other, ..self }
    }

    /// Says how bytes of a raw image flow.
    #[must_use]
    pub fn flow(self, flow: FlowWish) -> Self {
        Self { flow, ..self }
    }
}
