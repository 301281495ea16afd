//! The workloads, as data.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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
    /// How many folders the targets show as one that can.
    pub(crate) branches: usize,
}

/// A figure of a case.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    /// What is put behind the case's name.
    pub(crate) suffix: &'static str,
    /// What it counts.
    pub(crate) unit: Unit,
    /// Which of the times of single calls it is, where they are taken.
    pub(crate) quantile: Option<Quantile>,
    /// What is aimed at.
    pub(crate) goal: Option<Goal>,
    /// The column that ratios are to, where that is not the table's baseline.
    pub(crate) beside: Option<&'static str>,
}

impl Case {
    /// Makes a case with one figure.
    pub(crate) fn new(name: impl Into<String>, work: Work, unit: Unit) -> Self {
        let name = name.into();
        Self {
            group: name.clone(),
            name,
            jobs: None,
            work,
            outputs: vec![Output::new("", unit)],
            branches: 1,
        }
    }

    /// Lets the targets show so many folders as one that can.
    pub(crate) fn on_branches(mut self, count: usize) -> Self {
        self.branches = count;
        self
    }

    /// Gives it another name.
    pub(crate) fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        name.clone_into(&mut self.group);
        self
    }

    /// Makes a data case.
    pub(crate) fn fio(name: impl Into<String>, fio: Fio, unit: Unit) -> Self {
        Self::new(name, Work::Fio(fio), unit)
    }

    /// Makes a case of single calls, with a figure for each quantile of their times.
    pub(crate) fn of_calls(calls: Calls) -> Self {
        let group = calls.call.as_str();
        let output = |quantile: Quantile| Output {
            quantile: Some(quantile),
            ..Output::new(quantile.suffix(), Unit::Micros)
        };
        Self {
            name: format!("{group} {} j{}", calls.load.as_str(), calls.callers),
            group: group.to_owned(),
            jobs: None,
            work: Work::Calls(calls),
            outputs: Quantile::ALL.map(output).to_vec(),
            branches: 1,
        }
    }

    /// Makes a case of a call that all targets get in turns; the figure is what one takes in the middle.
    pub(crate) fn in_turns(call: Call) -> Self {
        let mut case = Self::new(call.as_str(), Work::Turns(call), Unit::Micros);
        case.outputs.iter_mut().for_each(|output| output.quantile = Some(Quantile::P50));
        case
    }

    /// Takes the processor time of each call, too, of who makes it and of who serves it.
    pub(crate) fn and_cpu(self, beside: Option<&'static str>) -> Self {
        let mut case = self
            .and(", CPU of the caller", Unit::CallerMicros)
            .and(", CPU of the server", Unit::ServerMicros);
        case.outputs.iter_mut().rev().take(2).for_each(|output| output.beside = beside);
        case
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
    pub(crate) fn goal(mut self, column: &str, measure: Measure, value: f64) -> Self {
        if let Some(output) = self.outputs.last_mut() {
            output.goal = Some(Goal { columns: vec![column.to_owned()], measure, value });
        }
        self
    }

    /// Has the ratios of the last figure be to another column.
    pub(crate) fn beside(mut self, column: &'static str) -> Self {
        if let Some(output) = self.outputs.last_mut() {
            output.beside = Some(column);
        }
        self
    }

    /// Sets the ratio to another column that a column shall reach.
    pub(crate) fn reach_beside(self, beside: &'static str, column: &str, ratio: f64) -> Self {
        self.beside(beside).goal(column, Measure::Ratio, ratio)
    }

    /// Sets the ratio that a column shall reach.
    pub(crate) fn reach(self, column: &str, ratio: f64) -> Self {
        self.goal(column, Measure::Ratio, ratio)
    }
}

impl Output {
    fn new(suffix: &'static str, unit: Unit) -> Self {
        Self { suffix, unit, quantile: None, goal: None, beside: None }
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
    /// The listing of a large folder.
    List(ListStep),
    /// What git does with a repository of many files.
    Git(GitStep),
    /// A build of a C project, sources and objects below the folder.
    Build,
    /// One request and its answer, with nothing remembered.
    RoundTrip,
    /// One kind of call again and again, each timed by itself.
    Calls(Calls),
    /// The times of a call, by one caller that goes from target to target, all of which are mounted at the same time.
    Turns(Call),
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

/// The listing of a large folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListStep {
    /// `ls -f` after the caches were dropped.
    Cold,
    /// `ls -f` right after another one.
    Warm,
}

/// What git does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GitStep {
    /// `git checkout` of everything into a folder that has only the repository.
    Checkout,
    /// `git status` right after another one.
    Status,
}

/// Single calls, and what else the machine does meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Calls {
    /// What is called.
    pub(crate) call: Call,
    /// Threads that call, each with files of its own.
    pub(crate) callers: u32,
    /// What is beside them.
    pub(crate) load: Load,
}

/// A call that reaches the server each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    /// `statx` with `AT_STATX_FORCE_SYNC`.
    GetAttr,
    /// `statx` of a name that this mount has not seen yet.
    Lookup,
    /// `open` of a name that does not exist yet.
    Create,
    /// `pread` of 4 KiB with `O_DIRECT`.
    Read,
    /// `open` of a file, by passthrough where the target has that.
    Open,
    /// A file's whole life: it is created, 4 KiB are written, it is closed, opened, read, and removed.
    File,
}

impl Call {
    /// The single ones, in the order of the report.
    pub(crate) const ALL: [Self; 5] = [Self::GetAttr, Self::Lookup, Self::Create, Self::Read, Self::Open];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::GetAttr => "getattr",
            Self::Lookup => "lookup",
            Self::Create => "create",
            Self::Read => "read",
            Self::Open => "open",
            Self::File => "small file",
        }
    }

    /// Returns what the request is called that a server gets.
    pub(crate) const fn request(self) -> &'static str {
        match self {
            Self::GetAttr => "GETATTR",
            Self::Lookup => "LOOKUP",
            Self::Create | Self::File => "CREATE",
            Self::Read => "READ",
            Self::Open => "OPEN",
        }
    }
}

/// What computes beside the callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Load {
    /// Nothing.
    Idle,
    /// A thread for each CPU, where the kernel puts them.
    Computing,
    /// A thread on the CPU that all callers are on, too, and so on that of the queue that serves them.
    Pinned,
    /// Four threads, where the kernel puts them.
    Four,
    /// `make` with a job for each CPU, beside the mount and not below it.
    Make,
}

impl Load {
    /// Every one, in the order of the report.
    pub(crate) const ALL: [Self; 5] = [Self::Idle, Self::Computing, Self::Pinned, Self::Four, Self::Make];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Computing => "computing",
            Self::Pinned => "pinned",
            Self::Four => "four",
            Self::Make => "make",
        }
    }
}

/// Which of all calls, the fastest first, has the time that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantile {
    /// The one in the middle.
    P50,
    /// One in a hundred takes longer.
    P99,
    /// One in a thousand takes longer.
    P999,
    /// The last.
    Longest,
}

impl Quantile {
    /// Every one, in the order of the report.
    pub(crate) const ALL: [Self; 4] = [Self::P50, Self::P99, Self::P999, Self::Longest];

    /// Returns the part of all calls that take no longer.
    pub(crate) const fn part(self) -> f64 {
        match self {
            Self::P50 => 0.5,
            Self::P99 => 0.99,
            Self::P999 => 0.999,
            Self::Longest => 1.0,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Longest => "longest",
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::P50 => ", p50",
            Self::P99 => ", p99",
            Self::P999 => ", p99.9",
            Self::Longest => ", longest",
        }
    }
}

/// How much of each workload is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    /// Bytes of the large file of one job; see [`Amount::file_len_of`].
    pub(crate) file_len: u64,
    /// Small files of one job; see [`Amount::files_of`].
    pub(crate) files: u64,
    /// Names of the large folder that is listed.
    pub(crate) entries: u64,
    /// Files of the tree, at most.
    pub(crate) tree_files: usize,
    /// Sources of the generated C project, should there be no real one.
    pub(crate) sources: usize,
    /// Whether a real project is built where there is one.
    pub(crate) real_build: bool,
    /// Requests of which each round trip's time is taken.
    pub(crate) round_trips: u32,
    /// Single calls of a case, at most...
    pub(crate) calls: u64,
    /// ...and of those that take a new name each. A server may hold a descriptor for each name.
    pub(crate) names: u64,
    /// Single calls end after this time, should there be fewer.
    pub(crate) calling: Duration,
    /// Files of the git repository.
    pub(crate) git_files: u32,
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
        entries: 100,
        tree_files: 10,
        sources: 3,
        real_build: false,
        round_trips: 10,
        calls: 100,
        names: 20,
        calling: Duration::from_secs(5),
        git_files: 60,
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
