//! The workloads, as data.

use std::time::Duration;

use crate::limits;
use crate::report::{Goal, Measure, Unit};

/// One workload, with a figure or more.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// The row's name, unique in its table; `--case` searches it.
    pub(crate) name: String,
    /// What cases that differ in the number of jobs alone have in common.
    pub(crate) group: String,
    /// Processes at work, where the table has the case with several numbers of them.
    pub(crate) jobs: Option<u32>,
    /// What is run.
    pub(crate) work: Work,
    /// What is taken from a run; each is a row.
    pub(crate) outputs: Vec<Output>,
}

/// A figure of a case.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    /// What is put behind the case's name.
    pub(crate) suffix: &'static str,
    /// What it counts.
    pub(crate) unit: Unit,
    /// What is aimed at.
    pub(crate) goal: Option<Goal>,
    /// The column that ratios are to, where that is not the table's baseline.
    pub(crate) beside: Option<&'static str>,
    /// The best ratio that a peer is on record with.
    pub(crate) peer_on_record: Option<f64>,
    /// What keeps it from being better, in a sentence.
    pub(crate) limit: Option<&'static str>,
}

impl Case {
    /// Makes a case with one figure.
    pub(crate) fn new(name: impl Into<String>, work: Work, unit: Unit) -> Self {
        let name = name.into();
        Self { group: name.clone(), name, jobs: None, work, outputs: vec![Output::new("", unit)] }
    }

    /// Makes a data case.
    pub(crate) fn fio(name: impl Into<String>, fio: Fio, unit: Unit) -> Self {
        Self::new(name, Work::Fio(fio), unit)
    }

    /// Makes it one of several that differ in the number of jobs alone.
    pub(crate) fn of_jobs(mut self, jobs: u32) -> Self {
        self.name = format!("{} j{jobs}", self.group);
        self.jobs = Some(jobs);
        self
    }

    /// Takes another figure from the same run.
    pub(crate) fn and(mut self, suffix: &'static str, unit: Unit) -> Self {
        self.outputs.push(Output::new(suffix, unit));
        self
    }

    /// Sets the goal of the last figure.
    pub(crate) fn goal(mut self, columns: &[&str], measure: Measure, value: f64) -> Self {
        if let Some(output) = self.outputs.last_mut() {
            let columns = columns.iter().map(|&name| name.to_owned()).collect();
            output.goal = Some(Goal { columns, measure, value });
        }
        self
    }

    /// Sets the ratio to another column that one of the columns shall reach.
    pub(crate) fn reach_beside(mut self, beside: &'static str, columns: &[&str], ratio: f64) -> Self {
        if let Some(output) = self.outputs.last_mut() {
            output.beside = Some(beside);
        }
        self.goal(columns, Measure::Ratio, ratio)
    }

    /// Sets the ratio that one of the columns shall reach.
    pub(crate) fn reach(self, columns: &[&str], ratio: f64) -> Self {
        self.goal(columns, Measure::Ratio, ratio)
    }

    /// Says of every figure what keeps it from being better, where the server moves the bytes.
    pub(crate) fn served_limit(mut self) -> Self {
        for output in &mut self.outputs {
            output.limit = Some(limits::of_served(&self.work));
        }
        self
    }

    /// Says what keeps the last figure from being better.
    pub(crate) fn limit(mut self, limit: &'static str) -> Self {
        if let Some(output) = self.outputs.last_mut() {
            output.limit = Some(limit);
        }
        self
    }
}

impl Output {
    fn new(suffix: &'static str, unit: Unit) -> Self {
        Self { suffix, unit, goal: None, beside: None, peer_on_record: None, limit: None }
    }
}

/// What a case runs.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// Data through fio, on large files that exist.
    Fio(Fio),
    /// One of fio's file engines, on many small files.
    Meta(Meta),
    /// A walk over a whole tree by the program that a user would run.
    Tree(TreeStep),
    /// A build of a C project, sources and objects below the folder.
    Build,
    /// One request and its answer, with nothing remembered.
    RoundTrip,
    /// Data through fio, on a file that was sealed.
    Sealed(Sealed),
}

/// A read of a sealed file.
#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    /// How it is read, where no program of the column's own reads it.
    pub(crate) fio: Fio,
    /// What seals it, and says how its tree was read.
    pub(crate) shunt: String,
    /// How long the lower file system takes for each READ more than it does, in milliseconds.
    pub(crate) delay_ms: u32,
}

impl Sealed {
    /// The length of the file, where that is not less: what verified reads are measured with elsewhere.
    const LEN_MAX: u64 = 250 << 20;

    /// Returns the amounts for the sealed file.
    pub(crate) fn amount(amount: &Amount) -> Amount {
        Amount { file_len: amount.file_len.min(Self::LEN_MAX), ..*amount }
    }
}

/// How fio moves data.
#[derive(Debug, Clone)]
pub(crate) struct Fio {
    /// The system calls.
    pub(crate) engine: Engine,
    /// The order and direction.
    pub(crate) pattern: Pattern,
    /// The block.
    pub(crate) block: Block,
    /// Whether the file is opened with `O_DIRECT`.
    pub(crate) direct: bool,
    /// Processes.
    pub(crate) jobs: u32,
    /// Whether all processes work on one file, and not each on a large file of its own.
    pub(crate) shared: bool,
}

impl Fio {
    /// Makes a workload of one process that goes through the page cache.
    pub(crate) const fn new(engine: Engine, pattern: Pattern, block: Block) -> Self {
        Self { engine, pattern, block, direct: false, jobs: 1, shared: false }
    }

    /// Goes around the page cache.
    pub(crate) const fn direct(mut self) -> Self {
        self.direct = true;
        self
    }

    /// Sets the number of processes.
    pub(crate) const fn jobs(mut self, jobs: u32) -> Self {
        self.jobs = jobs;
        self
    }

    /// Whether what it reads goes into the page cache.
    pub(crate) const fn fills_caches(&self) -> bool {
        !self.direct && matches!(self.pattern, Pattern::Read | Pattern::RandRead)
    }

    /// Lets all processes work on one file.
    pub(crate) const fn shared(mut self) -> Self {
        self.shared = true;
        self
    }
}

/// fio's engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
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
pub(crate) enum Pattern {
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
    pub(crate) const fn as_fio(self) -> &'static str {
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
pub(crate) struct Block(pub(crate) u32);

/// One of fio's file engines.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    /// What is done to each file.
    pub(crate) step: MetaStep,
    /// Processes, each with files of its own in one folder.
    pub(crate) jobs: u32,
}

/// What is done to each of many files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaStep {
    /// `open(O_CREAT)` and close.
    Create,
    /// `stat` of an existing file.
    Stat,
    /// `unlink` of an existing file.
    Delete,
}

/// A walk over a whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeStep {
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
    /// Bytes of the large file of one job; see [`Amount::file_len_of`].
    pub(crate) file_len: u64,
    /// Small files of one job; see [`Amount::files_of`].
    pub(crate) files: u64,
    /// Files of the tree, at most.
    pub(crate) tree_files: usize,
    /// Sources of the generated C project, should there be no real one.
    pub(crate) sources: usize,
    /// Whether a real project is built where there is one.
    pub(crate) real_build: bool,
    /// Requests of which each round trip's time is taken.
    pub(crate) round_trips: u32,
    /// Whether the caches are dropped for every figure, and not just once for a case: that takes most of a small run's time.
    pub(crate) cold_each: bool,
    /// A data case ends after this time, or when the file was read or written once.
    pub(crate) runtime: Duration,
    /// No step takes longer; one that does is killed and reported.
    pub(crate) limit: Duration,
    /// A build may take longer.
    pub(crate) build_limit: Duration,
}

impl Amount {
    /// Returns the bytes that each of several jobs reads or writes: from three jobs on all of them share what two have,
    /// so that a machine of many cores does not need a file system of their number.
    pub(crate) fn file_len_of(&self, jobs: u32) -> u64 {
        /// fio works on whole blocks, of which the largest is this long.
        const GRAIN: u64 = 1 << 20;
        if jobs <= 2 {
            return self.file_len;
        }
        (self.file_len * 2 / u64::from(jobs) / GRAIN).max(1) * GRAIN
    }

    /// Returns the small files of each of several jobs, shared alike.
    pub(crate) fn files_of(&self, jobs: u32) -> u64 {
        if jobs <= 2 { self.files } else { (self.files * 2 / u64::from(jobs)).max(1) }
    }
}

#[cfg(test)]
impl Amount {
    /// Amounts for tests.
    pub(crate) const TINY: Self = Self {
        file_len: 4 << 20,
        files: 10,
        tree_files: 10,
        sources: 3,
        real_build: false,
        round_trips: 10,
        cold_each: false,
        runtime: Duration::from_secs(1),
        limit: Duration::from_secs(30),
        build_limit: Duration::from_secs(30),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_jobs_share_what_two_have() {
        let amount = Amount { file_len: 1 << 30, ..Amount::TINY };
        assert_eq!(amount.file_len_of(1), 1 << 30);
        assert_eq!(amount.file_len_of(2), 1 << 30);
        assert_eq!(amount.file_len_of(4), 512 << 20);
        assert_eq!(amount.file_len_of(4096), 1 << 20);
    }

    #[test]
    fn a_case_of_several_jobs_says_so_in_its_name() {
        let fio = Fio::new(Engine::Psync, Pattern::Read, Block(128)).jobs(4);
        let case = Case::fio("paged 128k", fio, Unit::MibPerSec).of_jobs(4).and(", CPU", Unit::CpuSecPerGib);
        assert_eq!(
            (case.name.as_str(), case.group.as_str(), case.jobs),
            ("paged 128k j4", "paged 128k", Some(4))
        );
        assert_eq!(case.outputs.len(), 2);
    }
}
