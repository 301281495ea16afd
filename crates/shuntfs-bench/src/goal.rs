//! What shuntfs aims at in the cases of the table `peers`, as data: ratios to the bare lower file system of the same run, which
//! carry over to another machine roughly, as operations a second do not. They came of what peers reached on a machine of 2 cores.

/// What is aimed at in a case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim {
    /// The case's name.
    pub(crate) case: &'static str,
    /// The ratio to reach.
    pub(crate) ratio: f64,
    /// Whether by io_uring without kernel passthrough; else by what `shunt mount` does when nothing is said.
    pub(crate) is_served: bool,
}

/// Returns what is aimed at in every case of the table `peers`.
pub(crate) fn goals() -> &'static [Aim] {
    GOALS
}

/// Returns the ratio that is aimed at in a case.
pub(crate) fn goal_of(case: &str) -> Option<f64> {
    Some(goals().iter().find(|goal| goal.case == case)?.ratio)
}

const fn plain(case: &'static str, ratio: f64) -> Aim {
    Aim { case, ratio, is_served: false }
}

const fn served(case: &'static str, ratio: f64) -> Aim {
    Aim { case, ratio, is_served: true }
}

const GOALS: &[Aim] = &[
    plain("seed0 read 4k", 1.0),
    plain("seed0 randread 4k", 1.0),
    plain("seed0 write 4k", 0.95),
    plain("seed0 randwrite 4k", 0.9),
    served("seed3 paged 128k j1", 1.1),
    served("seed3 paged 128k j2", 1.0),
    served("seed3 paged 1m j1", 0.8),
    served("seed3 dio 1m j1", 0.75),
    served("seed3 dio 1m j2", 0.6),
    served("seed3 dio 4k rand j1", 0.95),
    served("seed3 dio 4k rand j2", 1.0),
    served("seed4 dio 4k aio32", 0.35),
    served("seed4 diow 4k aio32", 0.4),
    plain("seed3 mmap 4k j1", 1.0),
    plain("seed3 create j1", 0.65),
    plain("meta stat cold", 1.0),
    plain("meta delete", 0.65),
    plain("seed3 create j2", 0.7),
    plain("meta delete j2", 0.7),
    plain("tree untar", 0.5),
    plain("tree find cold", 0.6),
    plain("tree find warm", 0.9),
    plain("tree grep cold", 0.8),
    plain("tree rm", 0.5),
];
