//! What was measured, as data: it goes to JSON and comes back, so that an old run can be shown again.
//!
//! A [`Run`] has tables ([`Report`]), a table has [`Column`]s (targets) and [`Row`]s (figures), a row has one [`Cell`] for
//! each column. What is derived from the samples (medians, ratios, verdicts) is worked out once, by [`Run::settle`].

mod cell;
mod column;
mod row;
mod run;
mod table;
mod unit;

pub use cell::Cell;
pub use column::{Column, Kind};
pub use row::{Goal, Measure, Row};
pub use run::{FORMAT, Run, Version};
pub use table::Report;
pub(crate) use table::Tail;
pub use unit::{Better, Unit};
