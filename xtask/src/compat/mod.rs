//! `cargo xtask compat`: the program on the kernels that people have, each in a virtual machine.
//!
//! A kernel comes from a Debian package ([`kernel`]) and is booted by QEMU, without KVM, with the files of this machine as
//! its root ([`guest`]), so that it runs the programs that were built here ([`checks`]). What they print is judged here
//! ([`outcome`]).

mod apt;
mod checks;
mod cpio;
mod guest;
mod kernel;
mod modules;
mod outcome;
mod plan;
mod run;

pub(crate) use run::run;
