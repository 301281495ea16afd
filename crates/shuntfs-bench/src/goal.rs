//! What the peers reached on one machine, and what shuntfs aims at, as data.
//!
//! Measured on one machine (2 cores, Linux 6.18, noisy; ext4 on a loop device over RAM, medians of 2 rounds) with
//! libfuse 3.19-rc's `passthrough_hp`, mergerfs 2.42 with `passthrough.io=rw` and bindfs 1.14. Ratios are to the bare lower
//! file system of the same run: they carry over to another machine roughly, as operations a second do not.

/// Which of shunt's targets a goal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// What `shunt mount` does when nothing is said.
    Default,
    /// io_uring without kernel passthrough.
    Served,
}

/// One row of what the peers reached, with the goal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded {
    /// The case's name.
    pub(crate) case: &'static str,
    /// Ratios of libfuse plain, libfuse on io_uring, libfuse with passthrough, mergerfs with passthrough, bindfs.
    pub(crate) peers: [f64; 5],
    /// The ratio that is aimed at.
    pub(crate) goal: f64,
    /// By which target.
    pub(crate) role: Role,
}

impl Recorded {
    /// Returns the best ratio that a peer reached.
    pub(crate) fn best_peer(&self) -> f64 {
        self.peers.iter().copied().fold(0.0, f64::max)
    }
}

/// Returns the recorded row of every case of the table `peers`.
pub(crate) fn recorded() -> &'static [Recorded] {
    RECORDED
}

/// Returns the ratio that is aimed at in a case.
pub(crate) fn goal_of(case: &str) -> Option<f64> {
    Some(recorded().iter().find(|row| row.case == case)?.goal)
}

const fn plain(case: &'static str, peers: [f64; 5], goal: f64) -> Recorded {
    Recorded { case, peers, goal, role: Role::Default }
}

const fn served(case: &'static str, peers: [f64; 5], goal: f64) -> Recorded {
    Recorded { case, peers, goal, role: Role::Served }
}

const RECORDED: &[Recorded] = &[
    plain("seed0 read 4k", [0.84, 0.74, 1.11, 0.94, 0.81], 1.0),
    plain("seed0 randread 4k", [0.53, 1.09, 1.01, 0.79, 0.68], 1.0),
    plain("seed0 write 4k", [0.18, 0.53, 0.16, 1.07, 0.10], 0.95),
    plain("seed0 randwrite 4k", [0.07, 0.25, 0.08, 0.69, 0.04], 0.9),
    served("seed3 paged 128k j1", [0.82, 1.10, 0.92, 1.04, 0.85], 1.1),
    served("seed3 paged 128k j2", [0.99, 0.89, 0.59, 1.18, 1.23], 1.0),
    served("seed3 paged 1m j1", [0.35, 0.64, 0.40, 0.72, 0.75], 0.8),
    served("seed3 dio 1m j1", [0.35, 0.62, 0.99, 0.99, 0.38], 0.75),
    served("seed3 dio 1m j2", [0.37, 0.44, 0.96, 0.98, 0.45], 0.6),
    served("seed3 dio 4k rand j1", [0.38, 0.88, 1.06, 0.95, 0.52], 0.95),
    served("seed3 dio 4k rand j2", [0.67, 0.97, 0.80, 1.06, 0.54], 1.0),
    served("seed4 dio 4k aio32", [0.23, 0.24, 0.99, 0.96, 0.07], 0.35),
    served("seed4 diow 4k aio32", [0.29, 0.28, 0.08, 0.93, 0.04], 0.4),
    plain("seed3 mmap 4k j1", [0.83, 0.87, 0.96, 1.34, 0.95], 1.0),
    plain("seed3 create j1", [0.38, 0.49, 0.33, 0.36, 0.39], 0.65),
    plain("meta stat cold", [0.94, 0.97, 0.95, 0.86, 0.72], 1.0),
    plain("meta delete", [0.36, 0.46, 0.46, 0.40, 0.39], 0.65),
    plain("seed3 create j2", [0.38, 0.58, 0.40, 0.34, 0.39], 0.7),
    plain("meta delete j2", [0.39, 0.51, 0.45, 0.41, 0.41], 0.7),
    plain("tree untar", [0.06, 0.14, 0.10, 0.14, 0.05], 0.5),
    plain("tree find cold", [0.22, 0.39, 0.22, 0.12, 0.07], 0.6),
    plain("tree find warm", [0.30, 0.68, 0.29, 0.13, 0.04], 0.9),
    plain("tree grep cold", [0.40, 0.67, 0.59, 0.57, 0.34], 0.8),
    plain("tree rm", [0.09, 0.26, 0.13, 0.13, 0.13], 0.5),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_peer_is_the_largest_ratio() {
        let row = recorded().iter().find(|row| row.case == "seed3 mmap 4k j1").unwrap();
        assert!((row.best_peer() - 1.34).abs() < f64::EPSILON);
    }
}
