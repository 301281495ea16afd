//! Names that come, go and move.
//!
//! A hidden name does not exist for whoever it is hidden from, and cannot be made either: EACCES, whether there is such
//! a file or not, so that nothing is overwritten and nothing told. A caller from whom something is taken can remove,
//! add or move a name only where that loosens nothing.

use std::sync::Arc;

use shuntfs::{Errno, LowerFile, NodeId, Result};
use shuntfs_rules::{Attributes, Decision, OpenWord, Use};

use super::below;
use super::change::{Change, Coming, Made, Spot};
use super::held::{Held, Subject};
use super::terms::{Terms, refused_name, unchangeable};
use crate::merge;
use crate::mode;
use crate::node::Node;
use crate::rules::{Asking, OfFound, OfNew};
use crate::sealed;
use crate::shared::Shared;

const READ: Use = Use::of(OpenWord::Read);
const WRITE: Use = Use::of(OpenWord::Write);

/// The uses of a file that are all open to whoever could copy it as well, and to nobody else.
const USES: [Use; 8] = [
    Use::LOOK,
    READ,
    READ.and(Use::of(OpenWord::Exec)),
    WRITE,
    WRITE.and(Use::of(OpenWord::Append)),
    WRITE.and(Use::of(OpenWord::Truncate)),
    READ.and(WRITE),
    Use::of(OpenWord::Truncate),
];

/// Something new gets a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameComes<'n> {
    pub(crate) spot: Spot<'n>,
    pub(crate) what: Coming<'n>,
}

/// A file is made in a folder, and has no name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamelessComes<'n> {
    pub(crate) folder: NodeId,
    pub(crate) dir: &'n LowerFile,
    pub(crate) what: Coming<'n>,
}

/// What exists gets one more name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecondName<'n> {
    pub(crate) node: &'n Arc<Node>,
    pub(crate) spot: Spot<'n>,
    /// To the end of it.
    pub(crate) held: &'n Held<'n>,
}

/// A name goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameGoes<'n> {
    pub(crate) spot: Spot<'n>,
    pub(crate) held: &'n Held<'n>,
    pub(crate) is_folder: bool,
}

/// A name goes and another comes, instead of what has it; or two are exchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameMoves<'n> {
    pub(crate) from: Spot<'n>,
    pub(crate) to: Spot<'n>,
    pub(crate) held: &'n Held<'n>,
    pub(crate) flags: u32,
}

impl Change for NameComes<'_> {
    type Terms = Terms;

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<Terms> {
        may_come(asking, &asking.paths_at(self.spot)?, self.spot.dir, self.what)
    }

    fn without_rules(&self) -> Terms {
        Terms::none()
    }

    fn ask_seals(&self, shared: &Shared, _: &Terms) -> Result<()> {
        sealed::check_name(shared, self.spot.folder.id, self.spot.name)
    }

    fn ask_state(&self, shared: &Shared) -> Result<()> {
        merge::check_name(shared, self.spot.folder.id, self.spot.name)
    }
}

impl Change for NamelessComes<'_> {
    type Terms = Terms;

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<Terms> {
        may_come(asking, &asking.paths_below(self.folder, b"")?, self.dir, self.what)
    }

    fn without_rules(&self) -> Terms {
        Terms::none()
    }

    fn ask_seals(&self, _: &Shared, _: &Terms) -> Result<()> {
        Ok(())
    }

    fn ask_state(&self, _: &Shared) -> Result<()> {
        Ok(())
    }
}

impl Change for SecondName<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        if !asking.rules().restricts() {
            return Ok(());
        }
        let (mut before, new) = (asking.paths_of(self.node)?, asking.paths_at(self.spot)?);
        if asking.who.is_begun() && before.iter().any(|path| !new.contains(path)) {
            // A server that is dead may have given it the name for this very request.
            before.retain(|path| !new.contains(path));
        }
        let decision = asking.decide_paths(self.node, &before, WRITE)?;
        unchangeable(decision.read_only, decision.append_only)?;
        let named = asking.decide_paths(self.node, &new, Use::of(OpenWord::Create))?;
        refused_name(&named)?;
        unchangeable(named.read_only, false)?;
        // The names that it has may go without anybody's asking us.
        for how in USES {
            if !asking.decide_paths(self.node, &before, how)?.is_open() {
                let is_same = |path: &Vec<u8>| {
                    let here = asking.at(path);
                    new.iter().all(|new| here.is_same_as(&asking.at(new)))
                };
                return if before.iter().all(is_same) { Ok(()) } else { Err(Errno::ACCES) };
            }
        }
        Ok(())
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, shared: &Shared, (): &()) -> Result<()> {
        sealed::check_name(shared, self.spot.folder.id, self.spot.name)
    }

    fn ask_state(&self, shared: &Shared) -> Result<()> {
        merge::check_name(shared, self.spot.folder.id, self.spot.name)?;
        // Under another name other rules may hold.
        if self.node.view.is_whole() { shared.check_branch(self.node) } else { Err(Errno::ACCES) }
    }
}

impl Change for NameGoes<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        if !asking.rules().restricts() {
            return Ok(());
        }
        let all = Meant::seen(asking, self.spot, self.held.subjects(0))?;
        all.iter().try_for_each(|file| file.may_leave().and_then(|()| file.may_lose_name()))
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, shared: &Shared, (): &()) -> Result<()> {
        sealed::check_name(shared, self.spot.folder.id, self.spot.name)
    }

    fn ask_state(&self, shared: &Shared) -> Result<()> {
        merge::check_name(shared, self.spot.folder.id, self.spot.name)
    }
}

impl Change for NameMoves<'_> {
    type Terms = ();

    fn writes(&self) -> bool {
        true
    }

    fn ask_rules(&self, asking: &Asking<'_>) -> Result<()> {
        if !asking.rules().restricts() {
            return Ok(());
        }
        if below::goes_on(asking.shared, asking.who, self) {
            return Ok(());
        }
        let Self { from, to, held, flags } = *self;
        let moved = Meant::seen(asking, from, held.subjects(0))?;
        moved.iter().try_for_each(Meant::may_leave)?;
        let met = held.subjects(1);
        if met.is_empty() {
            self.may_leave_whiteout(asking)?;
            return moved.iter().try_for_each(|file| file.may_move(to));
        }
        asking.refuse_hidden(to)?;
        let met = Meant::all(asking, to, met)?;
        if let ([moved], [met]) = (&moved[..], &met[..])
            && moved.subject.found.identity == met.subject.found.identity
        {
            // Two names of one file: nothing moves.
            return Ok(());
        }
        met.iter().try_for_each(Meant::may_leave)?;
        self.may_leave_whiteout(asking)?;
        moved.iter().try_for_each(|file| file.may_move(to))?;
        if flags & mode::RENAME_EXCHANGE != 0 {
            met.iter().try_for_each(|file| file.may_move(from))
        } else {
            met.iter().try_for_each(Meant::may_lose_name)
        }
    }

    fn without_rules(&self) {}

    fn ask_seals(&self, shared: &Shared, (): &()) -> Result<()> {
        sealed::check_name(shared, self.from.folder.id, self.from.name)?;
        sealed::check_name(shared, self.to.folder.id, self.to.name)
    }

    fn ask_state(&self, shared: &Shared) -> Result<()> {
        merge::check_name(shared, self.from.folder.id, self.from.name)?;
        merge::check_name(shared, self.to.folder.id, self.to.name)
    }
}

/// Whether something may come to be in a folder under these paths of one name, and on what terms it is open then.
fn may_come(asking: &Asking<'_>, paths: &[Vec<u8>], dir: &LowerFile, what: Coming<'_>) -> Result<Terms> {
    let attributes =
        Attributes { size: 0, owner: asking.who.uid(), group: asking.who.gid(), mode: what.permissions() };
    let (shared, within) = (asking.shared, Some((dir, matches!(what, Coming::Folder { .. }))));
    let how = Use::of(OpenWord::Create).and(what.how());
    let mut decision = Decision::default();
    for path in paths {
        decision = decision.strictest(asking.decide(&OfNew { shared, path, attributes, within }, how)?);
    }
    if what.is_file() && !decision.redact.is_empty() {
        // A partial view is never written, so a file that has one for its maker would stay empty.
        return Err(Errno::ACCES);
    }
    refused_name(&decision)?;
    unchangeable(decision.read_only, false)?;
    match what {
        Coming::File { flags, .. } => Terms::of_new(&decision, flags.0),
        // It is not open, but what is new is not sealed.
        Coming::Node { .. } if what.is_file() => Terms::of_new(&decision, mode::O_RDONLY),
        Coming::Folder { .. } | Coming::Symlink { .. } | Coming::Node { .. } => Ok(Terms::none()),
    }
}

impl NameMoves<'_> {
    /// Where a move leaves something new behind, the old name must be one that may be made.
    fn may_leave_whiteout(&self, asking: &Asking<'_>) -> Result<()> {
        if self.flags & mode::RENAME_WHITEOUT == 0 {
            return Ok(());
        }
        let made = Made { mode: mode::CHARACTER, umask: 0 };
        may_come(asking, &asking.paths_at(self.from)?, self.from.dir, Coming::Node { made, rdev: 0 })
            .map(drop)
    }
}

/// What a name means that is there, on one branch, and is about to go. Of a merge every copy is judged: policies pick which of them go.
struct Meant<'m> {
    asking: &'m Asking<'m>,
    spot: Spot<'m>,
    path: Vec<u8>,
    subject: &'m Subject,
}

impl<'m> Meant<'m> {
    /// What a name means on each branch that has it, where the caller sees it.
    ///
    /// # Errors
    /// ENOENT where there is nothing, or the name is hidden.
    fn seen(asking: &'m Asking<'m>, spot: Spot<'m>, subjects: &'m [Subject]) -> Result<Vec<Self>> {
        if subjects.is_empty() || asking.hides(spot)? {
            return Err(Errno::NOENT);
        }
        Self::all(asking, spot, subjects)
    }

    /// The same, whether the caller sees it or not.
    fn all(asking: &'m Asking<'m>, spot: Spot<'m>, subjects: &'m [Subject]) -> Result<Vec<Self>> {
        let path = asking.path_of(spot)?;
        Ok(subjects.iter().map(|subject| Self { asking, spot, path: path.clone(), subject }).collect())
    }

    /// The file under another path.
    fn under<'p>(&'p self, path: &'p [u8]) -> OfFound<'p> {
        self.asking.of_found(&self.subject.found, path)
    }

    fn decide(&self, how: Use) -> Result<Decision> {
        let mut all = Decision::default();
        for path in &self.subject.paths {
            all = all.strictest(self.asking.decide(&self.under(path), how)?);
        }
        Ok(all)
    }

    /// Whether it may leave the name: it must not be hidden, as a copy behind the one that is shown may be, and be neither read-only nor
    /// append-only.
    fn may_leave(&self) -> Result<()> {
        if self.asking.hides_found(self.spot, &self.subject.found)? {
            return Err(Errno::ACCES);
        }
        let is_fixed = |path: &Vec<u8>| {
            let possible = self.asking.at(path).possible();
            possible.read_only || possible.append_only
        };
        if !self.subject.paths.iter().any(is_fixed) {
            return Ok(());
        }
        let decision = self.decide(WRITE)?;
        unchangeable(decision.read_only, decision.append_only)
    }

    /// Whether it may lose the name and keep others: with its last name a file goes.
    fn may_lose_name(&self) -> Result<()> {
        if self.subject.is_folder() || self.subject.links() <= 1 {
            Ok(())
        } else {
            self.may_change_names(&[])
        }
    }

    /// Whether it may have another name instead of this one.
    fn may_move(&self, to: Spot<'_>) -> Result<()> {
        let new = self.asking.paths_at(to)?;
        for path in &new {
            let arrived = self.under(path);
            if self.asking.is_hidden(&arrived)? {
                return Err(Errno::ACCES);
            }
            let decision = self.asking.decide(&arrived, Use::of(OpenWord::Create))?;
            refused_name(&decision)?;
            unchangeable(decision.read_only, false)?;
        }
        if !self.subject.is_folder() {
            return self.may_change_names(&new);
        }
        let any = |paths: &[Vec<u8>], asks: &dyn Fn(&OfFound<'_>) -> Result<bool>| -> Result<bool> {
            for path in paths {
                if asks(&self.under(path))? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let below = |folder: &OfFound<'_>| self.asking.concerns_below(folder);
        let is_concerned = any(&self.subject.paths, &|folder| self.asking.concerns(folder))?
            && (any(&self.subject.paths, &below)? || any(&new, &below)?);
        if is_concerned { Err(Errno::ACCES) } else { Ok(()) }
    }

    /// Refuses a change of names by which anybody could get more of a file, to a caller who does not have all of it. Who may do
    /// everything with it could copy it, too, and is not held up.
    fn may_change_names(&self, new: &[Vec<u8>]) -> Result<()> {
        let here = self.asking.at(&self.path);
        let mut others = self.subject.paths.iter().filter(|path| **path != self.path).chain(new);
        // With several paths each name is some other path's name, too, and none of them alone says what goes.
        let is_alone = !self.asking.shared.has_twins();
        // Names that are not known may not protect it.
        if is_alone && (!here.restricts() || others.any(|other| here.is_same_as(&self.asking.at(other)))) {
            return Ok(());
        }
        for how in USES {
            if !self.decide(how)?.is_open() {
                return Err(Errno::ACCES);
            }
        }
        Ok(())
    }
}
