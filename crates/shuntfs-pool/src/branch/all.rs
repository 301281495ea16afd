//! The branches of a pool: those in use, in their order, and those that were taken out while something on them was open.
//!
//! A branch has a number for as long as the pool is mounted, because nodes name it; so what is added gets a new number, and the
//! order is a list of numbers. Branches are found by number without a lock, because every operation does.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use super::tree::Branch;

/// How many branches there may be from the mount to its end, with those that were removed.
const NUMBERS_MAX: usize = 4096;

/// What was agreed on with the kernel by what the branches were when the pool was mounted. It stays so, whichever come and go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreed {
    /// Whether one of them may be on an overlay or on FUSE.
    pub(crate) stacked: bool,
    /// Whether the kernel enforces POSIX ACLs.
    pub(crate) acls: bool,
}

/// All branches.
#[derive(Debug)]
pub(crate) struct Branches {
    known: Box<[OnceLock<Box<Branch>>]>,
    /// Those in use.
    order: RwLock<Arc<[u16]>>,
    /// Kept, because branches that were removed cannot be asked any more.
    agreed: OnceLock<Agreed>,
}

impl Branches {
    /// The only branch of a pool.
    pub(crate) fn one(branch: Branch) -> Self {
        let known: Box<[_]> = Box::new([OnceLock::from(Box::new(branch))]);
        Self { known, order: RwLock::new(Arc::new([0])), agreed: OnceLock::new() }
    }

    /// Several, which may change. They are numbered from 0 on.
    pub(crate) fn several(branches: Vec<Branch>) -> Self {
        let order = (0_u16..).take(branches.len()).collect();
        let free = (branches.len()..NUMBERS_MAX).map(|_| OnceLock::new());
        let known = branches.into_iter().map(|branch| OnceLock::from(Box::new(branch))).chain(free).collect();
        Self { known, order: RwLock::new(order), agreed: OnceLock::new() }
    }

    /// Whether a number is that of a branch that is held.
    pub(crate) fn has(&self, number: u16) -> bool {
        let known = self.known.get(usize::from(number)).and_then(OnceLock::get);
        known.is_some_and(|branch| !branch.is_let_go())
    }

    /// The branch with a number.
    pub(crate) fn at(&self, number: u16) -> &Branch {
        let known = self.known.get(usize::from(number)).and_then(OnceLock::get);
        known.expect("numbers are given out for branches that are known")
    }

    #[cfg(test)]
    pub(crate) fn first_mut(&mut self) -> &mut Branch {
        self.known[0].get_mut().expect("there is always one")
    }

    /// Leaves numbers for so many more branches only.
    #[cfg(test)]
    pub(crate) fn leave_numbers(&mut self, count: usize) {
        let all = self.known().count() + count;
        let mut known = std::mem::take(&mut self.known).into_vec();
        known.truncate(all);
        self.known = known.into_boxed_slice();
    }

    /// The numbers of those in use, in their order.
    pub(crate) fn order(&self) -> Arc<[u16]> {
        Arc::clone(&self.order.read())
    }

    /// Those in use, in their order.
    pub(crate) fn in_use(&self) -> Vec<&Branch> {
        self.order().iter().map(|number| self.at(*number)).collect()
    }

    /// Those in use, and those that were removed.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Branch> {
        self.known.iter().map_while(OnceLock::get).map(|branch| &**branch)
    }

    /// Those that were removed and are held still.
    pub(crate) fn removed(&self) -> impl Iterator<Item = (u16, &Branch)> {
        let numbered = (0_u16..).zip(self.known());
        let order = self.order();
        numbered.filter(move |(number, branch)| !branch.is_let_go() && !order.contains(number))
    }

    /// The numbers that the next branches get: as many as there are left.
    pub(crate) fn free_numbers(&self) -> Range<u16> {
        let number = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        number(self.known().count())..number(self.known.len())
    }

    /// What was agreed on with the kernel; asked for once.
    pub(crate) fn agreed(&self, ask: impl FnOnce() -> Agreed) -> Agreed {
        *self.agreed.get_or_init(ask)
    }

    /// Makes a branch known by the next number. Whoever adds one is alone in it.
    pub(crate) fn add(&self, number: u16, branch: Branch) {
        let is_new = self.known[usize::from(number)].set(Box::new(branch)).is_ok();
        assert!(is_new, "the branch {number} is known already");
    }

    /// Takes these for those in use.
    pub(crate) fn set_order(&self, order: Vec<u16>) {
        *self.order.write() = order.into();
    }
}
