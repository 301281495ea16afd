//! File systems that others wrote for fuser, as they are published, on `shuntfs-fuser`: fuser's own examples on each transport; and, with
//! the feature `peers` (`cargo xtask fuser`), published crates with their own tests, pjdfstest, and what all of it costs beside fuser.
//!
//! They are taken from cargo's copy of the registry and built in packages of their own below the target folder, in which `fuser` is a
//! dependency with another package's name, or is patched. Nothing of them is changed or kept.

#[cfg_attr(not(feature = "peers"), expect(dead_code, reason = "some of it is for the peers"))]
mod build;
#[cfg(feature = "peers")]
mod composefs;
#[cfg(feature = "peers")]
mod crates;
mod examples;
#[cfg(feature = "peers")]
mod pjdfs;
mod server;
#[cfg(feature = "peers")]
mod speed;
