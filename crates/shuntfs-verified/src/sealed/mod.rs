//! The file system of `--verify=required`: a manifest, shown.

mod attr;
mod dir;
mod fs;
mod ioctl;
mod surviving;
mod xattr;

pub use fs::{Sealed, SealedDir, SealedFile};
pub use ioctl::seal_ioctl;
pub use xattr::NODE_XATTR;
