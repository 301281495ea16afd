//! The words of `-o`, as users know them from fstab, and what each means here.
//!
//! One table ([`OPTIONS`]) says how each is parsed, and one ([`SECTIONS`]) what it does, costs and risks: they feed the help of the flags,
//! too, the man pages and `docs/options.md`.

mod parse;
mod table;
mod texts;

pub(crate) use parse::check;
pub use parse::{OptionError, Unknown, absolute, parse};
pub use table::{Effect, OPTIONS, Row, Setter, help};
pub(crate) use table::{branch_timeout, inode_calc, move_on_full, replace_hung, stall_after, tree_cache};
pub(crate) use texts::described;
pub use texts::{SECTIONS, Section, Text};
