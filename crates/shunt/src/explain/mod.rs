//! What would become of something that somebody might do: `shunt explain`, and what `shunt why` says of users.

mod args;
mod branches;
mod command;
mod permissions;
mod place;
mod verdict;

pub use args::{ExplainArgs, ExplainOneArgs, ExplainTwoArgs, ExplainWhat};
pub(crate) use branches::Answer as Placement;
pub use branches::{CategoryChoice, ExplainPlaceArgs};
pub(crate) use command::{new_at, run};
pub(crate) use place::{Located, NODES_ARE_TOLD, locate};
pub(crate) use verdict::{NOT_CONSIDERED, of_all, print};
