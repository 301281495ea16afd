//! What would become of something that somebody might do: `shunt explain`, and what `shunt why` says of users.

mod branches;
mod command;
mod permissions;
mod place;
mod verdict;

pub use branches::{CategoryChoice, ExplainPlaceArgs};
pub(crate) use command::run;
pub(crate) use place::{Located, locate};
pub(crate) use verdict::{NOT_CONSIDERED, of_all, print};
