//! `shunt export`: a disk image as a file.

mod answers;
mod args;
mod check;
mod command;
mod kept;
mod passed;
mod serve;

pub use args::{AllowOther, ExportArgs, FormatChoice, HostCacheChoice};
pub(crate) use args::{HELP, USAGE};
pub(crate) use check::remove_made;
pub(crate) use command::run;
