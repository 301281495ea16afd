//! One list of small cases that says what a file system does.
//!
//! A case does something in a folder of its own and writes down what it saw: values, error names, fields of stat
//! without the ones that differ between any two file systems. The runner lets it do so on the bare lower file system
//! (the oracle) and on a mount that shows a sibling folder of the same lower file system, and compares observation by
//! observation. Afterwards it compares three trees: the oracle's, the mount's as seen through the mount, and the
//! mount's as seen below.
//!
//! Some differences come from the kernel and no server can undo them: a case names these as its [`Limit`]s, with the
//! value that a mount shows instead. Any other value there is still a difference.

mod case;
mod cases;
mod ctx;
mod errno;
mod observation;
mod runner;

pub use case::{Case, Limit, Outcome, TREE};
pub use cases::cases;
pub use ctx::Ctx;
pub use errno::errno_name;
pub use observation::{Observation, Seen, bytes};
pub use runner::{Report, Subject, case_limit, compare, run_case};
