//! One column beside another, or beside a goal: a ratio of medians, how sure it is, and what may be said.
//!
//! The interval is a percentile bootstrap: rounds are drawn again and again, with replacement, and the middle 95 % of the
//! ratios of medians are kept. Columns that have a figure of every round are drawn together, because a minute in which the
//! machine is slow slows a whole round. With five rounds the interval of a single median is that from the least to the largest
//! figure, which holds the true median 15 times in 16.
//!
//! What was measured in turns of milliseconds is compared round by round: the ratio is the median of the rounds' ratios, because how fast the
//! machine was in a round says nothing about them.

use serde::{Deserialize, Serialize};

use super::cell::{Cell, median};
use super::unit::Better;

/// Fewer rounds than this decide nothing: the range of four figures holds the true median 7 times in 8.
pub(super) const ROUNDS_MIN: usize = 5;

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The whole interval is above what must be reached; of a goal, at it or above.
    Ahead,
    /// The whole interval is below.
    Behind,
    /// Neither, or there are too few rounds.
    CannotTell,
}

/// Our column of a row beside a peer, or beside the goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The peer's column; `goal`.
    pub with: String,
    /// How good our median is: the ratio to the peer's, to the baseline's for a goal that is a ratio, or to the goal itself.
    /// More is better, whatever the unit.
    pub ratio: f64,
    /// The ratio to reach: 1, or the goal's.
    pub to_reach: f64,
    /// The 95 % interval of the ratio; nothing where there are fewer than five rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// What that says.
    pub verdict: Verdict,
}

/// How a row was measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds {
    /// How often.
    pub(super) count: usize,
    /// Whether the columns took turns within each round.
    pub(super) in_turns: bool,
}

impl From<usize> for Rounds {
    fn from(count: usize) -> Self {
        Self { count, in_turns: false }
    }
}

/// How good one cell is beside another one: 1 as good, more is better. Nothing where one has no figure, or there is no such ratio.
pub(super) fn ratio(cells: [&Cell; 2], better: Better, in_turns: bool) -> Option<f64> {
    let ratio = match of_rounds(cells, better).filter(|_| in_turns) {
        Some(mut ratios) => {
            ratios.sort_by(f64::total_cmp);
            median(&ratios)?
        }
        None => better.ratio(cells[0].median?, cells[1].median?),
    };
    Some(ratio).filter(|ratio| ratio.is_finite())
}

/// The ratio of each round; nothing where a round failed, or there are no figures of single rounds.
fn of_rounds([one, other]: [&Cell; 2], better: Better) -> Option<Vec<f64>> {
    let are_whole = one.error.is_none() && other.error.is_none() && !one.samples.is_empty();
    let pairs = one.samples.iter().zip(&other.samples);
    (are_whole && one.samples.len() == other.samples.len())
        .then(|| pairs.map(|(one, other)| better.ratio(*one, *other)).collect())
}

impl Comparison {
    /// Compares our cell with a peer's; nothing where one of them has no figure.
    pub(super) fn with_peer(
        peer: &str,
        cells: [&Cell; 2],
        better: Better,
        rounds: impl Into<Rounds>,
    ) -> Option<Self> {
        let mut comparison = Self::new(peer, cells, better, (1.0, rounds.into()))?;
        comparison.verdict = match comparison.interval.map(printed) {
            Some((low, _)) if low > 1.0 => Verdict::Ahead,
            Some((_, high)) if high < 1.0 => Verdict::Behind,
            _ => Verdict::CannotTell,
        };
        Some(comparison)
    }

    /// Compares our cell with the one that the goal's ratio is to.
    pub(super) fn with_goal(
        to_reach: f64,
        cells: [&Cell; 2],
        better: Better,
        rounds: impl Into<Rounds>,
    ) -> Option<Self> {
        let mut comparison = Self::new("goal", cells, better, (to_reach, rounds.into()))?;
        let (to_reach, _) = printed((to_reach, to_reach));
        comparison.verdict = match comparison.interval.map(printed) {
            Some((low, _)) if low >= to_reach => Verdict::Ahead,
            Some((_, high)) if high < to_reach => Verdict::Behind,
            _ => Verdict::CannotTell,
        };
        Some(comparison)
    }

    fn new(with: &str, cells: [&Cell; 2], better: Better, (to_reach, rounds): (f64, Rounds)) -> Option<Self> {
        let [ours, theirs] = cells;
        let ratio = ratio(cells, better, rounds.in_turns)?;
        let interval = if ours.samples.is_empty() || theirs.samples.is_empty() {
            of_ranges(cells, better).filter(|_| rounds.count >= ROUNDS_MIN)
        } else if let Some(ratios) = of_rounds(cells, better).filter(|_| rounds.in_turns) {
            bootstrap(&[ratios.len()], |drawn| middle(&ratios, drawn.first()?))
        } else {
            of_medians(cells, better)
        };
        let interval = interval.filter(|(low, high)| low.is_finite() && high.is_finite());
        Some(Self { with: with.to_owned(), ratio, to_reach, interval, verdict: Verdict::CannotTell })
    }

    /// Returns how much of what must be reached is reached: 1 is all of it.
    pub(crate) fn part(&self) -> f64 {
        self.ratio / self.to_reach
    }
}

/// Two digits behind the point: a verdict shall not contradict the figures beside it.
fn printed((low, high): (f64, f64)) -> (f64, f64) {
    let round = |ratio: f64| (ratio * 100.0).round() / 100.0;
    (round(low), round(high))
}

/// The widest interval that least and largest allow, of runs whose history has no single figures; nothing where a round failed, and
/// it is not known how many are left.
fn of_ranges([ours, theirs]: [&Cell; 2], better: Better) -> Option<(f64, f64)> {
    if ours.error.is_some() || theirs.error.is_some() {
        return None;
    }
    let ((low, high), (least, largest)) = ours.range.zip(theirs.range)?;
    let one = better.ratio(low, largest);
    let other = better.ratio(high, least);
    Some((one.min(other), one.max(other)))
}

/// The interval of the ratio of medians. Columns with as many figures are drawn together.
fn of_medians(cells: [&Cell; 2], better: Better) -> Option<(f64, f64)> {
    let [ours, theirs] = cells.map(|cell| cell.samples.as_slice());
    let of_the_same_rounds = of_rounds(cells, better).is_some();
    let counts = if of_the_same_rounds { vec![ours.len()] } else { vec![ours.len(), theirs.len()] };
    bootstrap(&counts, |drawn| {
        let (first, last) = (drawn.first()?, drawn.last()?);
        Some(better.ratio(middle(ours, first)?, middle(theirs, last)?))
    })
}

/// Draws rounds again and again, of each number of them, and keeps the middle 95 % of what `ratio` says of each draw.
fn bootstrap(counts: &[usize], ratio: impl Fn(&[Vec<usize>]) -> Option<f64>) -> Option<(f64, f64)> {
    const RESAMPLES: usize = 2000;
    /// Of so many ratios, those that are left out at either end: 2.5 %.
    const TAIL: usize = RESAMPLES / 40;
    if counts.iter().any(|count| *count < ROUNDS_MIN) {
        return None;
    }
    // Always the same draws: the same run gives the same page.
    let mut random = fastrand::Rng::with_seed(0x5eed);
    let mut ratios = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let mut draw = |&count: &usize| (0..count).map(|_| random.usize(..count)).collect();
        ratios.push(ratio(&counts.iter().map(&mut draw).collect::<Vec<_>>())?);
    }
    ratios.sort_by(f64::total_cmp);
    Some((ratios[TAIL], ratios[RESAMPLES - 1 - TAIL]))
}

/// The median of those that were drawn.
fn middle(samples: &[f64], drawn: &[usize]) -> Option<f64> {
    let mut drawn: Vec<f64> = drawn.iter().map(|&round| samples[round]).collect();
    drawn.sort_by(f64::total_cmp);
    median(&drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(samples: &[f64]) -> Cell {
        let mut cell = Cell { samples: samples.to_vec(), ..Cell::default() };
        cell.settle();
        cell
    }

    fn peer(ours: &[f64], theirs: &[f64], better: Better) -> Comparison {
        let rounds = ours.len().max(theirs.len());
        Comparison::with_peer("peer", [&cell(ours), &cell(theirs)], better, rounds).unwrap()
    }

    #[test]
    fn a_verdict_needs_the_whole_interval() {
        use Better::{Higher, Lower};
        use Verdict::{Ahead, Behind, CannotTell};
        let (fast, slow, wide) =
            ([20.0, 21.0, 22.0, 20.5, 21.5], [10.0, 11.0, 10.5, 10.2, 10.8], [5.0, 40.0, 9.0, 30.0, 12.0]);
        for (ours, theirs, better, verdict) in [
            (&fast, &slow, Higher, Ahead),
            (&slow, &fast, Higher, Behind),
            (&fast, &slow, Lower, Behind),
            (&slow, &fast, Lower, Ahead),
            (&wide, &slow, Higher, CannotTell),
            (&fast, &fast, Higher, CannotTell),
        ] {
            let said = peer(ours, theirs, better);
            assert_eq!(said.verdict, verdict, "{said:?}");
            let (low, high) = said.interval.unwrap();
            assert!(low <= said.ratio && said.ratio <= high, "{said:?}");
        }
    }

    #[test]
    fn four_rounds_decide_nothing() {
        let said = peer(&[100.0; 4], &[1.0; 4], Better::Higher);
        assert_eq!((said.verdict, said.interval), (Verdict::CannotTell, None));
        assert!((said.ratio - 100.0).abs() < 1e-9);
    }

    /// A machine that is twice as slow in two of five rounds says nothing about either column.
    #[test]
    fn what_slows_a_whole_round_does_not_widen_the_interval() {
        let theirs = [100.0, 50.0, 101.0, 52.0, 99.0];
        let ours = theirs.map(|figure| figure * 0.9);
        let said = peer(&ours, &theirs, Better::Higher);
        assert_eq!(said.verdict, Verdict::Behind);
        let (low, high) = said.interval.unwrap();
        assert!(high - low < 1e-9, "{said:?}");
        let one_failed = peer(&ours[..5], &[100.0, 50.0, 101.0, 52.0, 99.0, 51.0], Better::Higher);
        assert_eq!(one_failed.verdict, Verdict::CannotTell, "the rounds are not known to be the same");
    }

    /// Of many pairs of columns that are truly equal, few may be told apart; of truly different ones, most.
    #[test]
    fn intervals_hold_what_they_promise() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut wrong = 0;
        let mut found = 0;
        for _ in 0..200 {
            let mut round =
                |scale: f64| (0..5).map(|_| scale * (0.8 + 0.4 * random.f64())).collect::<Vec<f64>>();
            let (one, same, double) = (round(100.0), round(100.0), round(200.0));
            wrong += u32::from(peer(&one, &same, Better::Higher).verdict != Verdict::CannotTell);
            found += u32::from(peer(&double, &one, Better::Higher).verdict == Verdict::Ahead);
        }
        assert!(wrong <= 30, "{wrong} of 200 equal pairs were told apart");
        assert!(found >= 195, "{found} of 200 different pairs were told apart");
    }

    #[test]
    fn a_goal_is_reached_at_its_printed_value() {
        let bare = cell(&[100.0; 5]);
        let verdict = |figure: f64, goal: f64| {
            let ours = cell(&[figure; 5]);
            Comparison::with_goal(goal, [&ours, &bare], Better::Higher, 5).unwrap().verdict
        };
        assert_eq!(verdict(95.0, 0.95), Verdict::Ahead);
        assert_eq!(verdict(94.6, 0.95), Verdict::Ahead, "printed as 0.95");
        assert_eq!(verdict(94.4, 0.95), Verdict::Behind);
    }

    /// The history of older runs has least, median and largest alone.
    #[test]
    fn ranges_stand_for_figures_that_were_not_kept() {
        let old = |figures: [f64; 3]| Cell {
            median: Some(figures[1]),
            range: Some((figures[0], figures[2])),
            ..Cell::default()
        };
        let [fast, slow] = [[19.0, 20.0, 22.0], [9.0, 10.0, 12.0]].map(old);
        let said = |rounds| Comparison::with_peer("peer", [&fast, &slow], Better::Higher, rounds).unwrap();
        assert_eq!((said(5).verdict, said(4).verdict), (Verdict::Ahead, Verdict::CannotTell));
        let (low, high) = said(5).interval.unwrap();
        assert!((low - 19.0 / 12.0).abs() < 1e-9 && (high - 22.0 / 9.0).abs() < 1e-9);
    }

    /// In turns: the machine was twice as fast in some rounds, in which both were.
    #[test]
    fn turns_are_compared_round_by_round() {
        let theirs: Vec<f64> = (0..9).map(|round| if round % 2 == 0 { 10.0 } else { 20.0 }).collect();
        let ours: Vec<f64> =
            theirs.iter().zip(0_u32..).map(|(one, at)| one * (0.98 + f64::from(at % 3) / 1000.0)).collect();
        let cells = [&cell(&ours), &cell(&theirs)];
        let said = |in_turns| {
            let rounds = Rounds { count: 9, in_turns };
            Comparison::with_goal(0.98, cells, Better::Higher, rounds).unwrap()
        };
        let (low, high) = said(true).interval.unwrap();
        assert!(low >= 0.98 && high <= 0.982 + 1e-9, "{low} to {high}");
        assert_eq!(said(true).verdict, Verdict::Ahead);
        assert!((said(true).ratio - 0.981).abs() < 1e-9);
        let broken = Cell { error: Some("failed".to_owned()), ..cell(&ours) };
        let rounds = Rounds { count: 9, in_turns: true };
        let broken = Comparison::with_goal(0.98, [&broken, cells[1]], Better::Higher, rounds).unwrap();
        assert_eq!(broken.verdict, Verdict::CannotTell, "nobody knows which rounds are left");
    }

    #[test]
    fn what_has_no_figure_is_not_compared() {
        let (none, zero, some) = (Cell::default(), cell(&[0.0; 5]), cell(&[1.0; 5]));
        let with = |ours: &Cell, theirs: &Cell| Comparison::with_peer("p", [ours, theirs], Better::Higher, 5);
        assert!(with(&none, &some).is_none() && with(&some, &none).is_none());
        assert!(with(&some, &zero).is_none(), "beside nothing there is no ratio");
    }
}
