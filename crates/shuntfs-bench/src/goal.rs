//! What the peers reached on one machine, and what shuntfs aims at, as data.
//!
//! Measured on one machine (2 cores, Linux 6.18, noisy; ext4 on a loop device over RAM, medians of 2 rounds) with
//! libfuse 3.19-rc's `passthrough_hp`, mergerfs 2.42 with `passthrough.io=rw` and bindfs 1.14. Ratios are to the bare lower
//! file system of the same run; they carry over to another machine roughly, the operations a second do not.

use serde::Serialize;

/// Which target a goal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Role {
    /// What `shunt mount` does when nothing is said.
    Default,
    /// io_uring without kernel passthrough.
    Served,
}

/// A ratio to the bare lower file system that is aimed at.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Goal {
    /// The ratio.
    pub ratio: f64,
    /// Whose.
    pub role: Role,
}

/// One row of what the peers reached, with the goal.
#[derive(Debug, Clone, Copy)]
pub struct Recorded {
    /// The case's name.
    pub case: &'static str,
    /// Operations a second on the bare lower file system of that machine.
    pub bare: f64,
    /// Ratios of libfuse plain, libfuse on io_uring, libfuse with passthrough, mergerfs with passthrough, bindfs.
    pub peers: [f64; 5],
    /// What is aimed at.
    pub goal: Goal,
}

impl Recorded {
    /// Returns the best ratio that a peer reached.
    #[must_use]
    pub fn best_peer(&self) -> f64 {
        self.peers.iter().copied().fold(0.0, f64::max)
    }
}

/// Returns the recorded row of every case of the table `peers`.
#[must_use]
pub fn recorded() -> &'static [Recorded] {
    RECORDED
}

const fn plain(case: &'static str, bare: f64, peers: [f64; 5], ratio: f64) -> Recorded {
    Recorded { case, bare, peers, goal: Goal { ratio, role: Role::Default } }
}

const fn served(case: &'static str, bare: f64, peers: [f64; 5], ratio: f64) -> Recorded {
    Recorded { case, bare, peers, goal: Goal { ratio, role: Role::Served } }
}

const RECORDED: &[Recorded] = &[
    plain("seed0 read 4k", 111_935.0, [0.84, 0.74, 1.11, 0.94, 0.81], 1.0),
    plain("seed0 randread 4k", 27_709.0, [0.53, 1.09, 1.01, 0.79, 0.68], 1.0),
    plain("seed0 write 4k", 101_360.0, [0.18, 0.53, 0.16, 1.07, 0.10], 0.95),
    plain("seed0 randwrite 4k", 219_263.0, [0.07, 0.25, 0.08, 0.69, 0.04], 0.9),
    served("seed3 paged 128k j1", 3657.0, [0.82, 1.10, 0.92, 1.04, 0.85], 1.1),
    served("seed3 paged 128k j2", 10_535.0, [0.99, 0.89, 0.59, 1.18, 1.23], 1.0),
    served("seed3 paged 1m j1", 1995.0, [0.35, 0.64, 0.40, 0.72, 0.75], 0.8),
    served("seed3 dio 1m j1", 4017.0, [0.35, 0.62, 0.99, 0.99, 0.38], 0.75),
    served("seed3 dio 1m j2", 6509.0, [0.37, 0.44, 0.96, 0.98, 0.45], 0.6),
    served("seed3 dio 4k rand j1", 43_106.0, [0.38, 0.88, 1.06, 0.95, 0.52], 0.95),
    served("seed3 dio 4k rand j2", 41_917.0, [0.67, 0.97, 0.80, 1.06, 0.54], 1.0),
    served("seed4 dio 4k aio32", 294_736.0, [0.23, 0.24, 0.99, 0.96, 0.07], 0.35),
    served("seed4 diow 4k aio32", 244_977.0, [0.29, 0.28, 0.08, 0.93, 0.04], 0.4),
    plain("seed3 mmap 4k j1", 104_281.0, [0.83, 0.87, 0.96, 1.34, 0.95], 1.0),
    plain("seed3 create j1", 8413.0, [0.38, 0.49, 0.33, 0.36, 0.39], 0.65),
    plain("meta stat cold", 9182.0, [0.94, 0.97, 0.95, 0.86, 0.72], 1.0),
    plain("meta delete", 8470.0, [0.36, 0.46, 0.46, 0.40, 0.39], 0.65),
    plain("seed3 create j2", 11_959.0, [0.38, 0.58, 0.40, 0.34, 0.39], 0.7),
    plain("meta delete j2", 11_593.0, [0.39, 0.51, 0.45, 0.41, 0.41], 0.7),
    plain("tree untar", 1.3, [0.06, 0.14, 0.10, 0.14, 0.05], 0.5),
    plain("tree find cold", 10.0, [0.22, 0.39, 0.22, 0.12, 0.07], 0.6),
    plain("tree find warm", 19.0, [0.30, 0.68, 0.29, 0.13, 0.04], 0.9),
    plain("tree grep cold", 0.8, [0.40, 0.67, 0.59, 0.57, 0.34], 0.8),
    plain("tree rm", 4.4, [0.09, 0.26, 0.13, 0.13, 0.13], 0.5),
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
