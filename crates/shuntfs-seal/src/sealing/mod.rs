//! Sealing: walk the tree ([`scan`]), hash what is new ([`hash`], [`known`]), write trees and manifest ([`stage`]), make
//! them durable, and only then put the new seal instead of the old one ([`run`]).

mod attach;
mod enable;
mod error;
mod hash;
mod home;
mod issue;
mod known;
mod making;
mod marker;
mod prune;
mod repair;
mod run;
mod scan;
mod stage;

pub use attach::attach;
pub use enable::Enabled;
pub use error::SealError;
pub(crate) use hash::settle;
pub use home::Allowed;
pub use known::Belief;
pub use run::{Report, SealOptions, seal_tree};
pub use scan::Progress;
