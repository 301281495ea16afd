//! What a figure counts, and which way is better.

use serde::{Deserialize, Serialize};

/// What a row's figures count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Unit {
    /// Operations a second.
    OpsPerSec,
    /// MiB a second.
    MibPerSec,
    /// Seconds.
    Seconds,
    /// Microseconds.
    Micros,
    /// A multiple of something that was measured in the same round.
    Times,
    /// Microseconds of processor time of who calls, for each call.
    CallerMicros,
    /// Microseconds of processor time of who serves, for each call.
    ServerMicros,
    /// Seconds of processor time (client and server) for each GiB that was moved.
    CpuSecPerGib,
    /// Seconds of processor time of the server for each GiB that was moved.
    ServerSecPerGib,
    /// Reads of a hash tree for each 4 MiB of data that was read.
    TreeReads,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

impl Unit {
    /// Returns the unit as a table's reader sees it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::OpsPerSec => "ops/s",
            Self::MibPerSec => "MiB/s",
            Self::Seconds => "s",
            Self::Micros => "us",
            Self::CallerMicros | Self::ServerMicros => "CPU us",
            Self::Times => "x",
            Self::CpuSecPerGib | Self::ServerSecPerGib => "CPU s/GiB",
            Self::TreeReads => "reads/4 MiB",
        }
    }

    /// Returns which way is better.
    #[must_use]
    pub const fn better(self) -> Better {
        match self {
            Self::OpsPerSec | Self::MibPerSec => Better::Higher,
            Self::Seconds
            | Self::Micros
            | Self::CallerMicros
            | Self::ServerMicros
            | Self::Times
            | Self::CpuSecPerGib
            | Self::ServerSecPerGib
            | Self::TreeReads => Better::Lower,
        }
    }
}

impl Better {
    /// Returns how good a figure is beside another: 1 as good, 2 twice as good, whichever way is better.
    #[must_use]
    pub fn ratio(self, figure: f64, beside: f64) -> f64 {
        match self {
            Self::Higher => figure / beside,
            Self::Lower => beside / figure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_above_one_is_always_the_better_one() {
        assert!((Better::Higher.ratio(200.0, 100.0) - 2.0).abs() < 1e-12);
        assert!((Better::Lower.ratio(5.0, 10.0) - 2.0).abs() < 1e-12);
        assert_eq!(Unit::Seconds.better(), Better::Lower);
        assert_eq!(Unit::MibPerSec.better(), Better::Higher);
    }
}
