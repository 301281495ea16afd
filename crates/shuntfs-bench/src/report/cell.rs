//! One figure over the rounds.

use serde::{Deserialize, Serialize};

/// One figure over the rounds, in its row's unit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Every round's figure, in order; empty in the history of runs before 2026-11-24, which keeps what follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    /// The middle one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// The least and the largest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
    /// How good the median is beside the table's baseline (bare, pipe): 1 as good, more is better, whatever the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The same beside the column that the table's headline compares with ([`Report::against`](super::Report::against)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// What went wrong, the first time something did; there may be figures from other rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why it was not measured, where it cannot be: no error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl Cell {
    /// Returns how far the figures lie apart, as a part of the median.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        let (least, largest) = self.range?;
        Some((largest - least) / self.median?)
    }

    pub(crate) fn fail(&mut self, error: &anyhow::Error) {
        self.error.get_or_insert_with(|| format!("{error:#}"));
    }

    /// Works out median and range; those of a cell of the history stay.
    pub(super) fn settle(&mut self) {
        if self.samples.is_empty() {
            return;
        }
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        self.median = median(&sorted);
        self.range = sorted.first().copied().zip(sorted.last().copied());
    }
}

pub(super) fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(samples: &[f64]) -> Cell {
        let mut cell = Cell { samples: samples.to_vec(), ..Cell::default() };
        cell.settle();
        cell
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(settled(&[]).median, None);
        assert_eq!(settled(&[3.0, 1.0, 2.0]).median, Some(2.0));
        assert_eq!(settled(&[4.0, 1.0, 2.0, 3.0]).median, Some(2.5));
    }

    #[test]
    fn spread_is_relative_to_the_median() {
        let cell = settled(&[100.0, 104.0, 90.0]);
        assert_eq!(cell.range, Some((90.0, 104.0)));
        assert!((cell.spread().unwrap() - 0.14).abs() < 1e-9);
    }
}
