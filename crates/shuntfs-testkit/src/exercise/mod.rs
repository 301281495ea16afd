//! Random work on a file system, each step of which is compared with a model in memory.
//!
//! [`FileExercise`] works on the bytes of one file, as fsx does; [`NameExercise`] works on the names below a folder, as fsstress does. A
//! failure names the seed and the step, and the same seed makes the same steps.

mod file;
mod names;

pub use file::FileExercise;
pub use names::NameExercise;
