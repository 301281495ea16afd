//! Policies, as mergerfs documents them; those whose outcome does not hang on chance or on the clock.

use shuntfs::Errno;

use super::tree::{Branch, Mode};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    Anywhere,
    /// Only where the folder is.
    Existing,
    /// Where the folder is, else where the one around it is.
    MostShared,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    First,
    All,
    /// Of equal ones the last.
    MostFree,
    /// Of equal ones the last.
    LeastFree,
}

/// A policy for what is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Create {
    pub(crate) name: &'static str,
    reach: Reach,
    choice: Choice,
}

const fn create(name: &'static str, reach: Reach, choice: Choice) -> Create {
    Create { name, reach, choice }
}

/// Those that do not go by space.
pub(crate) const ANY_DISKS: [Create; 4] = [
    create("ff", Reach::Anywhere, Choice::First),
    create("epff", Reach::Existing, Choice::First),
    create("all", Reach::Anywhere, Choice::All),
    create("epall", Reach::Existing, Choice::All),
];

/// Those that do, for disks of sizes that differ by far.
pub(crate) const SIZED_DISKS: [Create; 6] = [
    create("mfs", Reach::Anywhere, Choice::MostFree),
    create("lfs", Reach::Anywhere, Choice::LeastFree),
    create("epmfs", Reach::Existing, Choice::MostFree),
    create("eplfs", Reach::Existing, Choice::LeastFree),
    create("mspmfs", Reach::MostShared, Choice::MostFree),
    create("msplfs", Reach::MostShared, Choice::LeastFree),
];

impl Create {
    /// Whether nothing goes to where its folder is not.
    pub(crate) fn keeps_paths(self) -> bool {
        self.reach != Reach::Anywhere
    }

    /// The branches on which something is made in a folder at this depth. `depths` says how many folders of the way are on each.
    pub(crate) fn pick(
        self,
        branches: &[Branch],
        depth: usize,
        depths: &[usize],
    ) -> Result<Vec<usize>, Errno> {
        let levels = match self.reach {
            Reach::Anywhere => vec![0],
            Reach::Existing => vec![depth],
            Reach::MostShared => (0..=depth).rev().collect(),
        };
        let mut error = Errno::NOENT;
        for level in levels {
            error = Errno::NOENT;
            let mut fit = Vec::new();
            for (index, branch) in branches.iter().enumerate() {
                if branch.mode != Mode::ReadWrite {
                    error = Errno::ROFS;
                } else if depths[index] < level {
                    // The weakest reason.
                } else if branch.is_full {
                    if error != Errno::ROFS {
                        error = Errno::NOSPC;
                    }
                } else {
                    fit.push(index);
                }
            }
            let free = |index: &&usize| branches[**index].free;
            let one = match self.choice {
                Choice::All if !fit.is_empty() => return Ok(fit),
                Choice::All | Choice::First => fit.first(),
                Choice::MostFree => fit.iter().max_by_key(free),
                Choice::LeastFree => fit.iter().rev().min_by_key(free),
            };
            if let Some(one) = one {
                return Ok(vec![*one]);
            }
        }
        Err(error)
    }
}

/// A policy for what is removed or moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    All,
    First,
}

impl Action {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "epall",
            Self::First => "epff",
        }
    }
}
