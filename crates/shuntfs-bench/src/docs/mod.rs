//! The page of the documentation: written from runs, which are kept beside it.
//!
//! `docs/benchmarks.md` has what is slower first, then each table as its newest run left it, then how the tables changed from
//! run to run. The runs are small JSON files in a folder beside the page (`docs/benchmarks/`), with the plots. What stands
//! below [`page::MARK`] is written by hand and stays.

mod history;
mod page;
mod update;

pub(crate) use update::update;
