//! What names mean while they are judged and changed.
//!
//! A file with several names is judged by all of them, so two changes of names must not pass each other between judgement and
//! deed: one would give a file that is about to lose its protecting name another one that does not protect. So where rules go by
//! names, one change of names comes after the other.

use shuntfs::{Errno, Result};
use shuntfs_sys::Stat;

use super::change::Spot;
use super::judge::Guard;
use crate::find::{self, Found};
use crate::merge::{Here, Order};
use crate::rules::Asking;

/// What one name means on one branch, and the paths by which it is judged.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) found: Found,
    /// All of them that matter to the caller, the one that it was found by among them.
    pub(super) paths: Vec<Vec<u8>>,
}

impl Subject {
    pub(super) fn is_folder(&self) -> bool {
        self.found.stat.is_dir()
    }

    /// How many names it has below.
    pub(super) fn links(&self) -> u32 {
        self.found.stat.nlink
    }
}

/// What the names of one request mean, to the end of it.
#[derive(Debug)]
pub(crate) struct Held<'g> {
    /// For each name what it means on each branch that has it. Empty where no rule takes anything from anybody.
    subjects: Vec<Vec<Subject>>,
    order: Option<Order<'g>>,
}

impl Held<'_> {
    /// What the first name means, or the second, on each branch that has it; nothing where there is nothing.
    pub(super) fn subjects(&self, index: usize) -> &[Subject] {
        self.subjects.get(index).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether other changes of names have gone on meanwhile, because this one hung on a disk: what is known of names may be of before.
    pub(super) fn is_late(&self) -> bool {
        self.order.as_ref().is_some_and(|order| !order.is_held())
    }

    /// Refuses what was not there when the first name was judged, or the second: a branch that was set aside may have come back with it.
    ///
    /// # Errors
    /// ESTALE, so that the kernel asks once more.
    pub(super) fn check_judged(&self, index: usize, all: &[Here]) -> Result<()> {
        let Some(subjects) = self.subjects.get(index) else { return Ok(()) };
        let is_judged = |here: &Here| {
            let inode = |stat: &Stat| (stat.dev, stat.ino);
            subjects.iter().any(|subject| {
                let found = &subject.found;
                found.identity.mount.branch == here.mount.branch && inode(&found.stat) == inode(&here.stat)
            })
        };
        if all.iter().all(is_judged) { Ok(()) } else { Err(Errno::STALE) }
    }
}

impl<'s> Guard<'s> {
    /// Holds what these names mean, about to be made, removed or moved.
    ///
    /// # Errors
    /// Those of looking them up, and EACCES where something may be taken from the caller for the sake of a name that is not
    /// known.
    pub(crate) fn hold(&self, spots: &[Spot<'_>]) -> Result<Held<'s>> {
        let order = self.shared.one_change_of_names();
        let asking = self.asking.as_ref().filter(|asking| asking.rules().restricts());
        let subjects = asking
            .map_or(Ok(Vec::new()), |asking| spots.iter().map(|spot| subjects_of(asking, *spot)).collect());
        Ok(Held { subjects: subjects?, order })
    }
}

/// What a name means below, whether the kernel knows it or not, on each branch that has it.
fn subjects_of(asking: &Asking<'_>, spot: Spot<'_>) -> Result<Vec<Subject>> {
    let copies = find::copies(asking.shared, spot)?;
    copies.into_iter().map(|found| subject_of(asking, spot, found)).collect()
}

fn subject_of(asking: &Asking<'_>, spot: Spot<'_>, found: Found) -> Result<Subject> {
    let path = asking.path_of(spot)?;
    if found.stat.is_dir() {
        return Ok(Subject { found, paths: asking.paths_at(spot)? });
    }
    let links = found.stat.nlink;
    let mut known = asking.engine.names_of_inode(asking.shared, &found.identity, links);
    known.is_all |= links <= 1;
    let mut paths = asking.all_of(known, &asking.of_found(&found, &path))?;
    paths.push(path);
    asking.shared.add_aliases(&mut paths);
    paths.sort_unstable();
    paths.dedup();
    Ok(Subject { found, paths })
}
