//! The run: which tables, on what, in which order.

mod bench;
mod figures;
mod measure;
mod plan;
mod rounds;
mod skeleton;
mod turns;

pub use measure::measure;
pub(crate) use plan::list;
