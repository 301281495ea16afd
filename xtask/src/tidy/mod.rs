//! The house rules that a program can check. Each rule is a file with its failing samples as tests.

mod dependencies;
pub(crate) mod links;
mod messages;
mod modules;
mod mounts;
mod outline;
mod prose;
mod published;
mod scan;
mod size;
mod source;
mod threats;
mod unsafety;
mod words;

pub(crate) use scan::check;
