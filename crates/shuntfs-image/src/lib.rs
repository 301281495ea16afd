//! Disk images as one file: what `shunt export` serves.
//!
//! An [`Image`] is opened and locked first ([`Image::open`]); an [`Export`] of it is a file system whose root is a regular
//! file with the contents of the disk. Formats:
//!
//! - `raw`, a file or a block device: its bytes are delegated, in passthrough where nothing has to be watched;
//! - `qcow2`: what an image says of its clusters is read and kept by the crate imago; the bytes of the clusters themselves
//!   go between the lower file and the request's own payload, on the queue's ring where there is one;
//! - `null`: zeroes, and what is written is dropped.
//!
//! Images are opened under the locks of QEMU, so that neither of the two opens for writing what the other has open.
//!
//! An export can outlive its server ([`shuntfs::takeover::Surviving`]): one process opens the [`ImageFiles`], and each server makes an
//! [`Image::surviving`] of them. Another program in the same process can take the files as they are ([`ImageFiles::taken`]).

mod chain;
mod counts;
mod error;
mod export;
mod foreign;
mod handed;
mod header;
mod lanes;
mod lock;
mod lost;
mod moving;
mod null;
mod open;
mod options;
mod order;
mod pending;
mod qcow2;
mod raw;
mod refcounts;
mod snapshots;
mod status;
mod storage;
mod surviving;
mod tables;
mod trust;

pub use error::{ImageError, Refusal};
pub use export::{Export, ExportFile};
pub use handed::{Descriptors, HandedFiles};
pub use header::{Header, HeaderError};
pub use open::{Image, ImageFiles};
pub use options::{Backing, Exported, FlowWish, Format, HostCache, ImageOptions};
pub use snapshots::{Snapshot, SnapshotError};
pub use status::{ImageStatus, Layer};
