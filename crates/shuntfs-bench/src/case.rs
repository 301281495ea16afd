//! The workloads, as data.

use std::time::Duration;

/// One workload with one figure.
#[derive(Debug, Clone)]
pub struct Case {
    /// The row's name, unique in its table; `--case` searches it.
    pub name: &'static str,
    /// What is run.
    pub work: Work,
}

/// What a case runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Work {
    /// Data through fio, on large files that exist.
    Fio(Fio),
    /// One of fio's file engines, on many small files.
    Meta(Meta),
    /// A walk over a whole tree by the program that a user would run.
    Tree(TreeStep),
}

/// How fio moves data.
#[derive(Debug, Clone)]
pub struct Fio {
    /// The system calls.
    pub engine: Engine,
    /// The order and direction.
    pub pattern: Pattern,
    /// The block.
    pub block: Block,
    /// Whether the file is opened with `O_DIRECT`.
    pub direct: bool,
    /// Processes, each on a large file of its own.
    pub jobs: u32,
}

/// fio's engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// `pread` and `pwrite`, one at a time.
    Psync,
    /// A mapping.
    Mmap,
    /// Linux aio with this many in flight.
    Libaio {
        /// Requests in flight.
        depth: u32,
    },
}

/// The order and direction of the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pattern {
    /// Sequential reads.
    Read,
    /// Random reads, each block once.
    RandRead,
    /// Sequential writes in place.
    Write,
    /// Random writes in place, each block once.
    RandWrite,
}

impl Pattern {
    /// Names the pattern as fio does.
    #[must_use]
    pub const fn as_fio(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::RandRead => "randread",
            Self::Write => "write",
            Self::RandWrite => "randwrite",
        }
    }
}

/// A block's length in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block(pub u32);

/// One of fio's file engines.
#[derive(Debug, Clone)]
pub struct Meta {
    /// What is done to each file.
    pub step: MetaStep,
    /// Processes, each with files of its own in one folder.
    pub jobs: u32,
}

/// What is done to each of many files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetaStep {
    /// `open(O_CREAT)` and close.
    Create,
    /// `stat` of an existing file.
    Stat,
    /// `unlink` of an existing file.
    Delete,
}

/// A walk over a whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeStep {
    /// `tar -xf` into an empty folder.
    Untar,
    /// `find -ls` after the caches were dropped.
    FindCold,
    /// `find -ls` right after another one.
    FindWarm,
    /// `grep -r` after the caches were dropped.
    GrepCold,
    /// `rm -r`.
    Remove,
}

/// How much of each workload is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    /// Bytes of each large file.
    pub(crate) file_len: u64,
    /// Small files of each job.
    pub(crate) files: u64,
    /// Files of the tree, at most.
    pub(crate) tree_files: usize,
    /// A data case ends after this time, or when the file was read or written once.
    pub(crate) runtime: Duration,
    /// No step takes longer; one that does is killed and reported.
    pub(crate) limit: Duration,
}
