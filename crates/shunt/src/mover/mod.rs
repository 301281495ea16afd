//! `shunt mover`: has the server of a mount move files to where its rules want them. The server alone knows who has a file open, so it does it;
//! what is here asks it, and shows how it goes.

mod command;
mod words;

pub(crate) use command::run;
pub use command::{MoverArgs, MoverOf, MoverWhat};
