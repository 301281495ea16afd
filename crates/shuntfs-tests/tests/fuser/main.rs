//! File systems that others wrote for fuser, as they are published, on `shuntfs-fuser`: fuser's own examples on each transport, and, where
//! `SHUNTFS_FUSER_PEERS=all` says so, published crates with their own tests, and pjdfstest.
//!
//! They are taken from cargo's copy of the registry and built in packages of their own below the target folder, in which `fuser` is a
//! dependency with another package's name, or is patched. Nothing of them is changed or kept.

mod build;
mod crates;
mod examples;
mod pjdfs;
mod server;
