//! A case: branches, a mount of them and calls, and what is left of it where it differs.

use std::path::PathBuf;

use super::op::{Mount, Op};
use super::pool::Pool;
use super::step::Model;
use super::tree::{Inode, ROOT};
use super::{Outcome, compare, disk};

/// After so many calls everything is compared.
const COMPARED_EVERY: usize = 40;

/// What is done, and to what.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) pool: Pool,
    pub(crate) ops: Vec<Op>,
}

impl Case {
    /// Does it on empty folders; how many calls succeeded.
    ///
    /// # Errors
    /// The difference, and the number of calls before it.
    pub(crate) fn run<M: Mount>(
        &self,
        branches: &[PathBuf],
        mount: impl FnOnce(&Pool, &[PathBuf]) -> M,
    ) -> Outcome {
        for (branch, at) in self.pool.branches.iter().zip(branches) {
            disk::lay_out(branch, at);
        }
        let mut mount = mount(&self.pool, branches);
        let (mut model, mut succeeded) = (Model::new(self.pool.clone()), 0);
        for (index, op) in self.ops.iter().enumerate() {
            let Some(op) = model.fit(op.clone()) else { continue };
            let (expected, seen) = (model.call(&op), mount.call(&op));
            let is_same = match (&expected, &seen) {
                (Ok(expected), Ok(seen)) => seen.is_as(expected),
                (expected, seen) => expected == seen,
            };
            let whole = (index + 1) % COMPARED_EVERY == 0 || index + 1 == self.ops.len();
            let difference = if !is_same {
                Some(format!("{op:?}: model {expected:?}, mount {seen:?}"))
            } else if whole {
                self.whole(&model, &mount, branches)
            } else {
                mount.breaches()
            };
            succeeded += usize::from(seen.is_ok());
            if let Some(difference) = difference {
                let more = mount.end().map(|more| format!("; {more}")).unwrap_or_default();
                return Err((index + 1, difference + &more));
            }
        }
        match mount.end() {
            Some(difference) => Err((self.ops.len(), difference)),
            None => Ok(succeeded),
        }
    }

    fn whole(&self, model: &Model, mount: &impl Mount, branches: &[PathBuf]) -> Option<String> {
        let on_disk = || {
            let mut pairs = model.pool.branches.iter().zip(branches);
            pairs.find_map(|(branch, top)| disk::difference(branch, top))
        };
        let shown = || compare::difference(&model.pool, mount);
        on_disk().or_else(shown).or_else(on_disk).or_else(|| mount.breaches())
    }

    /// The same without the calls, and the names on branches, that it takes not: `fails` says whether there is a difference.
    pub(crate) fn shrunk(mut self, first: usize, mut fails: impl FnMut(&Self) -> Option<usize>) -> Self {
        self.ops.truncate(first);
        let mut size = self.ops.len().next_power_of_two();
        while size > 0 {
            let mut at = 0;
            while at < self.ops.len() {
                let mut less = self.clone();
                less.ops.drain(at..(at + size).min(self.ops.len()));
                match fails(&less) {
                    Some(first) => {
                        less.ops.truncate(first);
                        self = less;
                    }
                    None => at += size,
                }
            }
            size /= 2;
        }
        for branch in 0..self.pool.branches.len() {
            // From the bottom up.
            for (path, _) in self.pool.branches[branch].walk().into_iter().rev() {
                let mut less = self.clone();
                less.forget(branch, &path);
                if fails(&less).is_some() {
                    self = less;
                }
            }
        }
        self
    }

    /// Takes a path away that is on a branch at the start, where nothing is in it.
    fn forget(&mut self, branch: usize, path: &str) {
        let branch = &mut self.pool.branches[branch];
        let (folder, name) = path.rsplit_once('/').unwrap();
        let all = branch.walk();
        let at = |path: &str| all.iter().find(|(known, _)| known == path).map(|(_, inode)| *inode);
        let inode = at(path).unwrap();
        if !branch.inodes[inode].is_folder() || branch.names(inode).is_empty() {
            branch.unlink(at(folder).unwrap_or(ROOT), name);
        }
    }

    /// What is needed to do it again.
    pub(crate) fn told(&self) -> String {
        let mut told = format!("create {}, action {}\n", self.pool.create.name, self.pool.action.name());
        for (index, branch) in self.pool.branches.iter().enumerate() {
            told += &format!("branch {index}: {:?}, is full: {}\n", branch.mode, branch.is_full);
            for (path, inode) in branch.walk() {
                let Inode { kind, attributes, .. } = &branch.inodes[inode];
                told += &format!("  {path} inode {inode} {kind:?} {attributes:?}\n");
            }
        }
        for op in &self.ops {
            told += &format!("{op:?}\n");
        }
        told
    }
}
