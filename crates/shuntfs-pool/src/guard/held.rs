//! What names mean while they are judged and changed.
//!
//! A file with several names is judged by all of them, so two changes of names must not pass each other between judgement and
//! deed: one would give a file that is about to lose its protecting name another one that does not protect. So where rules go by
//! names, one change of names comes after the other.

use parking_lot::MutexGuard;
use shuntfs::{Errno, Result};

use super::change::Spot;
use super::judge::Guard;
use crate::find;
use crate::node::Identity;
use crate::rules::Asking;

/// What one name means, and the paths by which it is judged.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) identity: Identity,
    pub(super) is_folder: bool,
    /// How many names it has below.
    pub(super) links: u32,
    /// All of them that matter to the caller, the one that it was found by among them.
    pub(super) paths: Vec<Vec<u8>>,
}

/// What the names of one request mean, to the end of it.
#[derive(Debug)]
pub(crate) struct Held<'g> {
    /// One for each name; `None` where there is nothing. Empty where no rule takes anything from anybody.
    subjects: Vec<Option<Subject>>,
    _order: Option<MutexGuard<'g, ()>>,
}

impl Held<'_> {
    /// What the first name means, or the second.
    pub(super) fn subject(&self, index: usize) -> Option<&Subject> {
        self.subjects.get(index)?.as_ref()
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
            .map_or(Ok(Vec::new()), |asking| spots.iter().map(|spot| subject_of(asking, *spot)).collect());
        Ok(Held { subjects: subjects?, _order: order })
    }
}

/// What a name means below, whether the kernel knows it or not; `None` where there is nothing.
fn subject_of(asking: &Asking<'_>, spot: Spot<'_>) -> Result<Option<Subject>> {
    let found = match find::find(asking.shared, spot) {
        Err(Errno::NOENT) => return Ok(None),
        found => found?,
    };
    let (identity, is_folder, links) = (found.identity, found.stat.is_dir(), found.stat.nlink);
    let path = asking.path_of(spot)?;
    if is_folder {
        return Ok(Some(Subject { identity, is_folder, links, paths: asking.paths_at(spot)? }));
    }
    let mut known = asking.engine.names_of_inode(asking.shared, &identity, links);
    known.is_all |= links <= 1;
    let mut paths = asking.all_of(known, &asking.of_name(spot, &path))?;
    paths.push(path);
    asking.shared.add_aliases(&mut paths);
    paths.sort_unstable();
    paths.dedup();
    Ok(Some(Subject { identity, is_folder, links, paths }))
}
