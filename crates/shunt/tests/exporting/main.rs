//! Images shown as files. Needs root and /dev/fuse; what QEMU's tools make or say needs them, too.

#[path = "../common/mod.rs"]
mod common;

mod bad_days;
mod cut;
mod desk;
mod direct;
mod guest;
mod journal;
mod model;
mod qcow2;
mod raw;
mod stopped;
mod trim;
mod trust;
