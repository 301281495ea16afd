//! Branches as a request notes them for another server: one bit each.
//!
//! The branches may be others, or in another order, when the next server reads the note. So a bit belongs to the number of a branch, which no other
//! branch ever gets, and not to its place in the order.

/// So many branches can be noted of a request.
pub(crate) const MARKED_MAX: usize = 64;

/// The bits of these branches, where so many are in use.
pub(super) fn mask(in_use: &[u16], all: impl IntoIterator<Item = u16>) -> u64 {
    all.into_iter().filter_map(|branch| bit(in_use, branch)).fold(0, |mask, bit| mask | 1 << bit)
}

/// Whether a branch is among them.
pub(super) fn has(mask: u64, in_use: &[u16], branch: u16) -> bool {
    bit(in_use, branch).is_some_and(|bit| mask >> bit & 1 == 1)
}

/// The last six bits of its number. Where two branches have the same ones, which takes 64 branches since the mount began, it is the place among all in
/// use by their numbers: that stays when they are reordered, and when others come.
fn bit(in_use: &[u16], branch: u16) -> Option<usize> {
    let last = |number: u16| usize::from(number) % MARKED_MAX;
    let seen = in_use.iter().fold(0_u64, |seen, number| seen | 1 << last(*number));
    if !in_use.contains(&branch) {
        return None;
    }
    if seen.count_ones() as usize == in_use.len() {
        return Some(last(branch));
    }
    let place = in_use.iter().filter(|number| **number < branch).count();
    Some(place).filter(|place| *place < MARKED_MAX)
}

#[cfg(test)]
mod test {
    use super::*;

    fn noted(mask: u64, in_use: &[u16]) -> Vec<u16> {
        let mut noted: Vec<u16> =
            in_use.iter().copied().filter(|branch| has(mask, in_use, *branch)).collect();
        noted.sort_unstable();
        noted
    }

    /// A bit meant a place in the order: when that had changed, another server removed and moved names on other branches than those that were noted.
    #[test]
    fn a_note_means_the_same_branches_in_another_order() {
        let mask = mask(&[0, 1, 2], [0, 2]);
        assert_eq!(noted(mask, &[2, 0, 1]), [0, 2]);
        assert_eq!(noted(mask, &[3, 1, 2, 0]), [0, 2], "another one came before");
        assert_eq!(noted(mask, &[1, 2]), [2], "one went");
        assert!(noted(mask, &[3, 1]).is_empty());
    }

    #[test]
    fn branches_beyond_the_64th_are_noted_too() {
        let mask = mask(&[0, 64, 65], [64]);
        assert_eq!(noted(mask, &[65, 64, 0]), [64]);
        assert_eq!(noted(mask, &[66, 65, 64, 0]), [64]);
        let all: Vec<u16> = (0..70).collect();
        assert_eq!(noted(super::mask(&all, [69, 3]), &all), [3], "there are no more bits");
        assert_eq!(super::mask(&[1], [7]), 0, "it is not in use");
    }
}
