//! `shunt upgrade`: a mount that is kept goes on with another build of the program, while it is in use.
//!
//! The command names the program, and the server looks at it ([`candidate`]): what was looked at is what runs, because it is held by a
//! descriptor from then on. The keeper then tries it, and becomes it (`shuntfs-keeper`); that one reads the same command line, and goes on in
//! `mount/passed.rs`, or in `export/passed.rs`.

pub(crate) mod candidate;
mod command;
pub(crate) mod outdated;

pub use command::UpgradeArgs;
pub(crate) use command::run;
