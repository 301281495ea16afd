//! The report for a person to read: one HTML file that needs nothing else, and its plots as SVG files.
//!
//! No script and no other file is loaded, so that the page can be mailed, archived and opened anywhere. A style sheet
//! turns the plots dark where the reader's machine is (`html/plot/style.rs`). What is said by a colour is said by a word or a
//! shape, too. The same run gives the same bytes.

mod head;
mod page;
mod plot;
mod state;
mod table;
mod words;

#[cfg(test)]
mod tests;

pub use page::page;
pub use plot::{Plot, plots};
