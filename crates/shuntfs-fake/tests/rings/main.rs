//! Rings of the fake kernel, as Linux 6.14 and 7.3 have them: the same bytes come by every kind of transport, whatever the kernel refuses,
//! and a server that breaks a ring's rules is found.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../shuntfs/tests/common/wishes.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod wishes;

mod bytes;
mod cpus;
mod deeds;
mod desk;
mod on_fake;
mod refusals;
mod server;
