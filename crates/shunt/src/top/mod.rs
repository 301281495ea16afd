//! `shunt top`: what the mounts do, as it happens.
//!
//! Servers count anyway, so nearly all of it is the difference of two answers to `shunt status`. By file and by process they count while
//! somebody looks ([`crate::load`]): while nobody does, nothing of it costs anything. One thread asks ([`live`]), [`rates`] makes numbers of an interval, and [`draw`] makes a picture of them, in a terminal, or as text.

mod args;
mod command;
mod draw;
mod live;
mod load;
mod once;
mod panel;
mod rates;
mod words;

pub use args::TopArgs;
pub(crate) use command::run;
