//! Which server is asked next.

use std::collections::HashMap;

/// So many servers of one other user are asked at once.
pub(super) const OF_STRANGER: usize = 4;

/// The mounts that are still to be asked, by their places in the list. Those of this user and of root come first. Of other users,
/// who has the fewest that are being asked is next.
#[derive(Debug)]
pub(super) struct Turns {
    /// Whose server it is; `None` for this user and root.
    strangers: Vec<Option<u32>>,
    waiting: Vec<usize>,
    asked: HashMap<u32, usize>,
}

impl Turns {
    pub(super) fn new(strangers: impl Iterator<Item = Option<u32>>) -> Self {
        let strangers: Vec<Option<u32>> = strangers.collect();
        Self { waiting: (0..strangers.len()).collect(), strangers, asked: HashMap::new() }
    }

    /// Takes the next one; [`Turns::done`] follows. `None` where all are taken, and where the rest must wait for others.
    pub(super) fn next(&mut self) -> Option<usize> {
        let asked = |place: usize| {
            let stranger = self.strangers[place];
            stranger.map(|uid| self.asked.get(&uid).copied().unwrap_or_default())
        };
        let all = self.waiting.iter().enumerate().map(|(index, place)| (asked(*place), *place, index));
        let next = all.filter(|(asked, ..)| asked.is_none_or(|asked| asked < OF_STRANGER)).min();
        let (_, place, index) = next?;
        self.waiting.remove(index);
        if let Some(uid) = self.strangers[place] {
            *self.asked.entry(uid).or_default() += 1;
        }
        Some(place)
    }

    /// One was asked.
    pub(super) fn done(&mut self, place: usize) {
        if let Some(asked) = self.strangers[place].and_then(|uid| self.asked.get_mut(&uid)) {
            *asked -= 1;
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn own_mounts_come_first_and_no_other_user_has_all_turns() {
        let mut owners = vec![Some(7); 6];
        owners.extend([None, Some(8), None]);
        let mut turns = Turns::new(owners.into_iter());
        let taken: Vec<usize> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!(taken, [6, 8, 0, 7, 1, 2, 3], "two must wait");
        turns.done(0);
        turns.done(7);
        assert_eq!((turns.next(), turns.next()), (Some(4), None));
        turns.done(6);
        assert_eq!(turns.next(), None);
        turns.done(1);
        assert_eq!((turns.next(), turns.next()), (Some(5), None));
    }
}
