//! Whether what a step got was this user's to get. What it changed is noted in the model.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::act::Got;
use crate::generate::SLOTS;
use crate::model::{FileId, Model, moved};
use crate::rules::{HIDDEN_LEN, RuleSet, Taken, USERS};
use crate::step::{Action, Hold, Step};

/// What a slot holds, and what was taken from who opened it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    id: Option<FileId>,
    taken: Taken,
}

/// Everything that is known of the mount.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// The folder below the mount, or the branches.
    pub(crate) sources: Vec<PathBuf>,
    pub(crate) rules: RuleSet,
    pub(crate) model: Model,
    /// Names change below the mount, so that a name which is gone may be held against its file for a while.
    pub(crate) changes_below: bool,
    pub(crate) held: [Option<Held>; SLOTS],
}

/// One user at the world.
struct Eyes<'w> {
    world: &'w mut World,
    uid: u32,
}

impl World {
    /// Compares with the lower folder, and forgets what nobody can get at any more.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.model.check(&self.sources)?;
        let held: Vec<FileId> = self.held.iter().flatten().filter_map(|held| held.id).collect();
        self.model.forget_all_but(&held);
        Ok(())
    }

    /// Judges a step that succeeded; the error is the finding.
    pub(crate) fn judge(&mut self, step: &Step, got: &Got) -> Result<()> {
        let mut eyes = Eyes { world: self, uid: step.uid };
        eyes.judge(&step.action, got)
    }
}

impl Eyes<'_> {
    fn judge(&mut self, action: &Action, got: &Got) -> Result<()> {
        match action {
            Action::Look(path) => self.meets(path),
            Action::List(path) => self.listed(path, got),
            Action::Read(path, _) => self.meets(path).and_then(|()| self.read(self.id(path)?, got)),
            Action::Write(path)
            | Action::OpenTruncating(path)
            | Action::Truncate(path)
            | Action::Punch(path) => {
                self.meets(path)?;
                self.wrote(self.id(path)?)
            }
            Action::Append(path) => self.meets(path).and_then(|()| self.appended(self.id(path)?)),
            Action::Copy(from, to) => self.copied(from, to),
            Action::Create(path) => {
                self.may_make(path)?;
                let sources = self.world.sources.clone();
                self.world.model.made(&sources, path).map(drop)
            }
            Action::MakeFolder(path) => {
                self.may_make(path)?;
                self.world.model.folders.insert(path.clone());
                Ok(())
            }
            Action::LinkBelow(from, to) => {
                let id = self.id(from)?;
                self.world.model.name(to, id);
                Ok(())
            }
            Action::RenameBelow(from, to) => {
                self.world.model.rename(from, to);
                Ok(())
            }
            Action::UnlinkBelow(path) => self.world.model.unname(path).context("was no file").map(drop),
            Action::Unlink(path) => self.unlinked(path),
            Action::RemoveFolder(path) => {
                self.may_change_name(path)?;
                ensure!(self.world.model.folders.remove(path), "{path} was no folder");
                Ok(())
            }
            Action::Link(from, to) => self.meets(from).and_then(|()| self.linked(self.id(from)?, to)),
            Action::LinkHeld(slot, to) => {
                let id = self.held(*slot)?.id.context("a folder got a second name")?;
                self.linked(id, to)
            }
            Action::Rename(from, to) | Action::Move(from, to) => self.renamed(from, to),
            Action::Exchange(one, other) => self.exchanged(one, other),
            Action::Attribute(path) | Action::Touch(path) => self.attributes_changed(path),
            Action::Hold(path, how, slot) => self.hold(path, *how, *slot),
            _ => self.by_slot(action, got),
        }
    }

    fn by_slot(&mut self, action: &Action, got: &Got) -> Result<()> {
        match action {
            Action::ReadHeld(slot) => {
                let held = self.held(*slot)?;
                self.bytes(held.id.context("a folder was read")?, got, held.taken.redact)
            }
            Action::WriteHeld(slot) => {
                let held = self.held(*slot)?;
                let [.., appends, _] = held.taken.rights();
                ensure!(appends, "written by what was opened while {}", held.taken);
                self.refresh(held.id.context("a folder was written")?)
            }
            Action::TruncateHeld(slot) => {
                let held = self.held(*slot)?;
                let [_, _, writes, ..] = held.taken.rights();
                ensure!(writes, "truncated by what was opened while {}", held.taken);
                self.refresh(held.id.context("a folder was cut")?)
            }
            Action::ReadAgain(slot) => {
                let id = self.held(*slot)?.id.context("a folder was read")?;
                self.read(id, got)
            }
            Action::WriteAgain(slot) | Action::TruncateAgain(slot) => {
                let id = self.held(*slot)?.id.context("a folder was written")?;
                self.wrote(id)
            }
            Action::Drop(slot) => {
                self.world.held[*slot] = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn held(&self, slot: usize) -> Result<Held> {
        self.world.held[slot].context("nothing was held")
    }

    fn id(&self, path: &str) -> Result<FileId> {
        self.world.model.files.get(path).copied().with_context(|| format!("{path} was no file"))
    }

    fn at(&self, path: &str) -> Taken {
        self.world.rules.taken(self.uid, path)
    }

    fn of(&self, id: FileId) -> Taken {
        self.world.model.taken(self.world.rules, self.uid, id)
    }

    fn meets(&self, path: &str) -> Result<()> {
        ensure!(self.world.rules.shows(self.uid, path), "the hidden name {path} was met");
        let model = &self.world.model;
        let is_there = model.files.contains_key(path) || model.folders.contains(path);
        ensure!(is_there, "{path} was met, and is not there");
        Ok(())
    }

    fn listed(&self, path: &str, got: &Got) -> Result<()> {
        self.meets(path)?;
        ensure!(!self.at(path).deny, "the denied folder {path} was listed");
        let Got::Names(names) = got else { return Ok(()) };
        for name in names {
            self.meets(&format!("{path}/{name}")).context("in a listing")?;
        }
        Ok(())
    }

    fn read(&self, id: FileId, got: &Got) -> Result<()> {
        let taken = self.of(id);
        let [reads, ..] = taken.rights();
        ensure!(reads, "read while {taken} for the sake of {:?}", self.world.model.known(id)?.names);
        self.bytes(id, got, taken.redact)
    }

    fn bytes(&self, id: FileId, got: &Got, is_partial: bool) -> Result<()> {
        let Got::Bytes(bytes) = got else { return Ok(()) };
        let head = bytes.get(..HIDDEN_LEN.min(bytes.len())).unwrap_or_default();
        if is_partial || self.world.changes_below && head.iter().all(|byte| *byte == 0) {
            // Pages of a view may be of an earlier content for a while, and each is redacted.
            ensure!(head.iter().all(|byte| *byte == 0), "`{}` was read in part", bytes.escape_ascii());
            return Ok(());
        }
        let expected = &self.world.model.known(id)?.bytes;
        ensure!(
            bytes == expected,
            "`{}` was read where `{}` was to be seen",
            bytes.escape_ascii(),
            expected.escape_ascii()
        );
        Ok(())
    }

    fn refresh(&mut self, id: FileId) -> Result<()> {
        self.world.model.refresh(id)
    }

    fn wrote(&mut self, id: FileId) -> Result<()> {
        let taken = self.of(id);
        let [_, _, writes, ..] = taken.rights();
        ensure!(writes, "written while {taken} for the sake of {:?}", self.world.model.known(id)?.names);
        self.refresh(id)
    }

    fn appended(&mut self, id: FileId) -> Result<()> {
        let taken = self.of(id);
        let [.., appends, _] = taken.rights();
        ensure!(appends, "appended while {taken} for the sake of {:?}", self.world.model.known(id)?.names);
        self.refresh(id)
    }

    fn copied(&mut self, from: &str, to: &str) -> Result<()> {
        self.meets(from)?;
        self.meets(to)?;
        let (from, to) = (self.id(from)?, self.id(to)?);
        let taken = self.of(from);
        ensure!(taken.rights()[0], "copied while {taken}");
        let head = self.world.model.known(from)?.bytes.get(..HIDDEN_LEN).map(<[u8]>::to_vec);
        self.wrote(to)?;
        let copy = self.world.model.known(to)?.bytes.get(..HIDDEN_LEN).map(<[u8]>::to_vec);
        ensure!(
            !taken.redact || copy != head || head == Some(vec![0; HIDDEN_LEN]),
            "a hidden beginning was copied"
        );
        Ok(())
    }

    fn may_make(&self, path: &str) -> Result<()> {
        let taken = self.at(path);
        ensure!(self.world.rules.shows(self.uid, path), "the hidden name {path} was made");
        ensure!(!taken.deny && !taken.read_only, "{path} was made, which is {taken}");
        Ok(())
    }

    fn may_change_name(&self, path: &str) -> Result<()> {
        self.meets(path)?;
        let taken = self.at(path);
        ensure!(!taken.read_only && !taken.append_only, "the name {path} was changed, which is {taken}");
        Ok(())
    }

    fn unlinked(&mut self, path: &str) -> Result<()> {
        self.may_change_name(path)?;
        let before =
            Before { files: vec![(self.id(path)?, self.of_all(self.id(path)?))], folders: Vec::new() };
        self.world.model.unname(path);
        self.none_looser(&before)
    }

    fn of_all(&self, id: FileId) -> ForAll {
        USERS.map(|uid| self.world.model.taken(self.world.rules, uid, id))
    }

    fn at_for_all(&self, path: &str) -> ForAll {
        USERS.map(|uid| self.world.rules.taken(uid, path))
    }

    /// Who may do everything with a file could give away a copy. Whoever may not gives nothing to anybody.
    fn not_looser(&self, what: &dyn std::fmt::Debug, before: &ForAll, after: &ForAll) -> Result<()> {
        let own = USERS.iter().zip(before).find(|(uid, _)| **uid == self.uid);
        if own.is_none_or(|(_, taken)| *taken == Taken::default()) {
            return Ok(());
        }
        for ((uid, before), after) in USERS.iter().zip(before).zip(after) {
            ensure!(!after.is_looser_than(*before), "{what:?} was {before} for {uid} and is {after}");
        }
        Ok(())
    }

    fn linked(&mut self, id: FileId, to: &str) -> Result<()> {
        let taken = self.of(id);
        ensure!(taken.rights()[4], "a second name was made while {taken}");
        self.may_make(to)?;
        self.world.model.name(to, id);
        Ok(())
    }

    fn renamed(&mut self, from: &str, to: &str) -> Result<()> {
        self.meets(from)?;
        ensure!(self.world.rules.shows(self.uid, to), "the hidden name {to} was made");
        let target = self.world.model.files.get(to).copied();
        if from == to || target.is_some() && self.world.model.files.get(from).copied() == target {
            return Ok(());
        }
        self.may_change_name(from)?;
        self.may_make(to)?;
        if target.is_some() || self.world.model.folders.contains(to) {
            self.may_change_name(to)?;
        }
        let before = self.all_below(&[(from, to)], target);
        self.world.model.rename(from, to);
        self.none_looser(&before)
    }

    fn exchanged(&mut self, one: &str, other: &str) -> Result<()> {
        self.meets(one)?;
        self.meets(other)?;
        let files = &self.world.model.files;
        if one == other || files.contains_key(one) && files.get(one) == files.get(other) {
            return Ok(());
        }
        for name in [one, other] {
            self.may_change_name(name)?;
            self.may_make(name)?;
        }
        let before = self.all_below(&[(one, other), (other, one)], None);
        self.world.model.exchange(one, other);
        self.none_looser(&before)
    }

    /// What is taken of everything that moves, and of a file that is replaced; folders with their next path.
    fn all_below(&self, moves: &[(&str, &str)], replaced: Option<FileId>) -> Before {
        let mut before = Before::default();
        before.files.extend(replaced.map(|id| (id, self.of_all(id))));
        for (from, to) in moves {
            let (files, folders) = self.world.model.reached(from);
            before.files.extend(files.into_iter().map(|id| (id, self.of_all(id))));
            let next = |path: &String| (moved(path, from, to), self.at_for_all(path));
            before.folders.extend(folders.iter().map(next));
        }
        before
    }

    fn none_looser(&self, before: &Before) -> Result<()> {
        for (id, before) in before.files.iter().filter(|(id, _)| self.world.model.is_named(*id)) {
            self.not_looser(&self.world.model.known(*id)?.names, before, &self.of_all(*id))?;
        }
        for (path, before) in &before.folders {
            self.not_looser(path, before, &self.at_for_all(path))?;
        }
        Ok(())
    }

    fn attributes_changed(&self, path: &str) -> Result<()> {
        self.meets(path)?;
        let taken = match self.world.model.files.get(path) {
            Some(id) => self.of(*id),
            None => self.at(path),
        };
        ensure!(taken.rights()[4], "attributes of {path} were changed while {taken}");
        Ok(())
    }

    fn hold(&mut self, path: &str, how: Hold, slot: usize) -> Result<()> {
        self.meets(path)?;
        let id = self.world.model.files.get(path).copied();
        let taken = id.map_or_else(|| self.at(path), |id| self.of(id));
        let [reads, _, writes, appends, _] = taken.rights();
        let may = match how {
            Hold::Path => true,
            Hold::Read => reads,
            Hold::Write => writes,
            Hold::Append => appends,
            Hold::Both => reads && writes,
        };
        ensure!(may, "{path} was opened for {how:?} while {taken}");
        self.world.held[slot] = Some(Held { id, taken });
        Ok(())
    }
}

/// What is taken from each user.
type ForAll = [Taken; USERS.len()];

/// What was taken before names changed.
#[derive(Default)]
struct Before {
    files: Vec<(FileId, ForAll)>,
    folders: Vec<(String, ForAll)>,
}
