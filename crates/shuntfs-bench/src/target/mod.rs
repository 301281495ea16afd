//! The targets: ways to reach the same bytes.

mod choice;
mod ours;
mod peers;
mod reach;
mod template;

pub(crate) use choice::{check_names, choose};
pub(crate) use ours::Ours;
pub(crate) use peers::{peers, peers_of_branches, peers_of_calls, peers_uncached, storage_daemons};
pub(crate) use reach::{Mounting, Target};
pub(crate) use template::{Places, fill, parse};
