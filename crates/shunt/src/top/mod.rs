//! `shunt top`: what the mounts do, as it happens.
//!
//! Servers count anyway, so all of it is the difference of two answers to `shunt status`: while nobody looks it costs nothing.
//! One thread asks ([`live`]), [`rates`] makes numbers of an interval, and [`draw`] makes a picture of them, in a terminal, or as text.

mod args;
mod command;
mod draw;
mod live;
mod once;
mod panel;
mod rates;
mod words;

pub use args::TopArgs;
pub(crate) use command::run;
