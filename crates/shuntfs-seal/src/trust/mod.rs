//! Whose word is taken for a seal: keys and how many of them, one digest, one tree, and serials that do not fall.
//!
//! [`Trust`] decides; [`TrustStore`] is a folder of the administrator's with keys and the highest serials seen.

mod key_file;
mod name;
mod policy;
mod seen;
mod store;

pub use key_file::{Day, split_key_file};
pub use name::{TreeName, TreeNameError};
pub use policy::{Accepted, Trust};
pub use seen::{Seen, SeenSerial};
pub use store::{StoredKey, TrustStore};
