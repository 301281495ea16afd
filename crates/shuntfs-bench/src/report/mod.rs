//! What was measured, as data: it goes to JSON and comes back, so that an old run can be shown again.
//!
//! A [`Run`] has tables ([`Report`]), a table has [`Column`]s (targets) and [`Row`]s (figures), a row has one [`Cell`] for
//! each column. What is derived from the samples (medians, ratios, verdicts) is worked out once, by [`Run::settle`]; a run that is read
//! again is judged again, so that old ones get the verdicts of today.

mod cell;
mod column;
mod compare;
mod row;
mod run;
mod table;
mod unit;

pub use cell::Cell;
pub use column::{Column, Kind};
pub use compare::{Comparison, Verdict};
pub use row::{Goal, Measure, Row};
pub(crate) use run::FORMAT_MIN;
pub use run::{FORMAT, Run, Version};
pub use table::Report;
pub(crate) use table::Tail;
pub use unit::{Better, Unit};
