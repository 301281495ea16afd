//! The pages of the documentation: written from runs, which are kept beside them.
//!
//! `docs/benchmarks.md` has ten rows. `docs/benchmarks-full.md` has what is slower first, then each table as its newest run left
//! it, then how the tables changed from run to run. The runs are JSON files in a folder beside the pages (`docs/benchmarks/`),
//! with the plots. In both pages, what stands below [`page::MARK`] is written by hand and stays.

mod front;
mod history;
mod page;
mod update;

pub(crate) use update::update;
