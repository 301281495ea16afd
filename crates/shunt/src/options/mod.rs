//! The words of `-o`, as users know them from fstab, and what each means here.
//!
//! One table ([`OPTIONS`]) feeds the parser, the help, the man page and the names in `docs/options.md`.

mod parse;
mod table;

pub(crate) use parse::check;
pub use parse::{OptionError, Unknown, absolute, parse};
pub use table::{Effect, OPTIONS, Row, Setter, help};
pub(crate) use table::{branch_timeout, inode_calc, move_on_full, replace_hung, stall_after, tree_cache};
