//! All policies.

use super::candidate::Candidate;
use super::choose::{
    Choice, Choose, all, first, least_free, least_used, least_used_percent, most_free, newest, random,
    random_by_free,
};
use super::pick::{Pick, Why};

/// What kind of operation asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Category {
    /// It changes what exists: chmod, chown, link, rename, rmdir, truncate, unlink, utimens, and setting and removing extended
    /// attributes.
    Action,
    /// It makes something new: create, mkdir, mknod, symlink.
    Create,
    /// It looks something up: access, getattr, open, readlink, and getting extended attributes.
    Search,
}

impl Category {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Action, Self::Create, Self::Search];

    /// The policy that is used where users name none.
    #[must_use]
    pub const fn default_policy(self) -> &'static str {
        match self {
            Self::Action => "epall",
            Self::Create => "pfrd",
            Self::Search => "ff",
        }
    }
}

/// Where something new may be made, as far as the folder that it comes to is concerned. What exists already is looked for where
/// it is, whatever the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// Where the folder does not exist, too.
    Anywhere,
    /// Only where it is.
    Existing,
    /// Where it is; else where the folder around it is, and so on to the top.
    MostShared,
}

/// A policy.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    name: &'static str,
    reach: Reach,
    choose: Choose,
}

const fn anywhere(name: &'static str, choose: Choose) -> Policy {
    Policy { name, reach: Reach::Anywhere, choose }
}

const fn existing(name: &'static str, choose: Choose) -> Policy {
    Policy { name, reach: Reach::Existing, choose }
}

const fn most_shared(name: &'static str, choose: Choose) -> Policy {
    Policy { name, reach: Reach::MostShared, choose }
}

/// All policies.
pub static POLICIES: [Policy; 20] = [
    anywhere("ff", first),
    anywhere("all", all),
    anywhere("mfs", most_free),
    anywhere("lfs", least_free),
    anywhere("lus", least_used),
    anywhere("lup", least_used_percent),
    anywhere("rand", random),
    anywhere("pfrd", random_by_free),
    existing("newest", newest),
    existing("epff", first),
    existing("epall", all),
    existing("epmfs", most_free),
    existing("eplfs", least_free),
    existing("eplus", least_used),
    existing("eprand", random),
    existing("eppfrd", random_by_free),
    most_shared("mspmfs", most_free),
    most_shared("msplfs", least_free),
    most_shared("msplus", least_used),
    most_shared("msppfrd", random_by_free),
];

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Policy {}

impl Policy {
    /// The policy with this name.
    #[must_use]
    pub fn of(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.name == name)
    }

    /// Its place in [`POLICIES`].
    pub(crate) fn index(&self) -> usize {
        POLICIES.iter().position(|policy| policy == self).expect("there are no others")
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Picks branches for an operation on a path with this many components; of something new, the path of the folder that it comes
    /// to. The number is random.
    #[must_use]
    pub fn pick(&self, category: Category, components: usize, branches: &[Candidate], seed: u64) -> Pick {
        let (from, to) = match (category, self.reach) {
            (Category::Create, Reach::Anywhere) => (0, 0),
            (Category::Create, Reach::MostShared) => (components, 0),
            _ => (components, components),
        };
        let mut level = from;
        loop {
            let mut reasons: Vec<Option<Why>> =
                branches.iter().map(|branch| branch.unfit(category, level)).collect();
            let fit: Vec<usize> = (0..branches.len()).filter(|place| reasons[*place].is_none()).collect();
            if fit.is_empty() && level > to {
                level -= 1;
                continue;
            }
            let among: Vec<&Candidate> = fit.iter().map(|place| &branches[*place]).collect();
            if !among.is_empty()
                && let Choice::One(chosen) = (self.choose)(&among, seed)
            {
                for (_, place) in fit.iter().enumerate().filter(|(at, _)| *at != chosen) {
                    reasons[*place] = Some(Why::NotFirst);
                }
            }
            return Pick { reasons };
        }
    }
}
