//! What would become of something that somebody else might do: the guard judges it as if it were done, and it is not
//! done. So what is said is what would happen, whatever the guard comes to ask.

use std::cell::RefCell;
use std::ffi::CString;
use std::sync::Arc;

use shuntfs::{Errno, Name, NodeId, Result, SetAttr};
use shuntfs_rules::{Access, Decision, Failed, Rules};

use super::report::{Caller, RuleControl, said};
use crate::find;
use crate::guard::{
    AttributesChange, Coming, FolderOpens, Guard, Made, NameComes, NameGoes, NameMoves, SecondName, Spot,
};
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::Node;
use crate::shared::{Folder, Shared};

/// A name in a folder that the kernel knows; without a name, the folder itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place<'p> {
    /// The folder.
    pub folder: NodeId,
    /// The name.
    pub name: &'p [u8],
}

/// What somebody might do to a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Attempt<'p> {
    /// To list it, a folder.
    List,
    /// To make it, a folder (`true`) or a file.
    Make(bool),
    /// To remove it.
    Remove,
    /// To change mode, owner or times of what it means.
    SetAttributes,
    /// To move it.
    Rename(Place<'p>),
    /// To give what it means another name.
    Link(Place<'p>),
}

/// How the guard judged.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Judgement {
    /// What somebody would get; `None` where it would be done.
    pub error: Option<Errno>,
    /// What the rules said on the way.
    pub said: Vec<Said>,
}

/// What the rules said of one path.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Said {
    /// The path.
    pub path: Vec<u8>,
    /// The decision, or why a rule could not be evaluated, which is a refusal.
    pub decision: std::result::Result<Decision, String>,
    /// The rules that decided: name and line.
    pub rules: Vec<(String, usize)>,
}

impl RuleControl {
    /// What would become of an attempt of somebody.
    ///
    /// # Errors
    /// ESTALE for a folder that the kernel does not know, ENAMETOOLONG and EINVAL for what is no name.
    pub fn would(&self, place: Place<'_>, what: Attempt<'_>, caller: &Caller) -> Result<Judgement> {
        let told = Told::new(caller);
        let shared = self.shared();
        // A disk may hang, and others wait for the order of names.
        let outcome = shared.under_way(|| attempt(shared, &told, place, what))?;
        Ok(Judgement { error: outcome.err(), said: told.said.into_inner() })
    }

    /// The folders on the way to and with this one that somebody does not see, from the top on, or of which no rule can tell.
    #[must_use]
    pub fn unseen(&self, folder: NodeId, caller: &Caller) -> Vec<Said> {
        let (shared, engine, told) = (self.shared(), self.engine(), Told::new(caller));
        let guard = Guard::told(shared, &told);
        let (mut here, mut depth) = (folder, 0);
        while let (Some(asking), Ok(node)) = (&guard.asking, shared.node(here)) {
            let Some(link) = engine.paths.links(here).into_iter().next() else { break };
            if let Some(path) = engine.paths.folder(here) {
                let _noted = asking.is_hidden(&asking.of_node(&node, &path));
            }
            (here, depth) = (link.parent, depth + 1);
            if here == NodeId::ROOT || depth > DEPTH_MAX {
                break;
            }
        }
        let is_unseen = |said: &Said| match &said.decision {
            Ok(decision) => decision.access == Access::Hide,
            Err(_) => true,
        };
        let mut said = told.said.into_inner();
        said.retain(is_unseen);
        said.reverse();
        said
    }
}

/// More folders than any path has.
const DEPTH_MAX: usize = 4096;

/// Judges it. The inner result is what somebody would get.
fn attempt(shared: &Shared, told: &Told<'_>, place: Place<'_>, what: Attempt<'_>) -> Result<Result<()>> {
    let guard = Guard::told(shared, told);
    if place.name.is_empty() {
        let node = shared.node(place.folder)?;
        return Ok(match what {
            Attempt::List => guard.judge(FolderOpens { node }).map(drop),
            // The top of a mount is in use.
            _ => Err(Errno::BUSY),
        });
    }
    let here = At::of(shared, place)?;
    let spot = here.spot();
    if !matches!(what, Attempt::Make(_)) {
        let seen = guard.check_sight(spot).and_then(|()| match &guard.asking {
            Some(asking) if asking.hides(spot)? => Err(Errno::NOENT),
            _ => Ok(()),
        });
        if seen.is_err() {
            return Ok(seen);
        }
    }
    Ok(match what {
        Attempt::Make(is_folder) => make(shared, &guard, spot, is_folder),
        Attempt::Remove => {
            let found = find::find(shared, spot);
            found.and_then(|found| {
                let is_folder = found.stat.is_dir();
                let held = guard.hold(&[spot])?;
                guard.judge(NameGoes { spot, held: &held, is_folder }).map(drop)
            })
        }
        Attempt::List => here.node(shared).and_then(|node| guard.judge(FolderOpens { node }).map(drop)),
        Attempt::SetAttributes => here.node(shared).and_then(|node| {
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            guard.judge(AttributesChange { node: &node, set }).map(drop)
        }),
        Attempt::Rename(to) => {
            let to = At::of(shared, to)?;
            guard.hold(&[spot, to.spot()]).and_then(|held| {
                guard.judge(NameMoves { from: spot, to: to.spot(), held: &held, flags: 0 }).map(drop)
            })
        }
        Attempt::Link(to) => {
            let to = At::of(shared, to)?;
            here.node(shared).and_then(|node| {
                let held = guard.hold(&[])?;
                guard.judge(SecondName { node: &node, spot: to.spot(), held: &held }).map(drop)
            })
        }
    })
}

/// Judges whether a name may come.
fn make(shared: &Shared, guard: &Guard<'_>, spot: Spot<'_>, is_folder: bool) -> Result<()> {
    if find::find(shared, spot).is_ok() {
        guard.check_overwritten(spot)?;
    }
    if is_folder {
        let what = Coming::Folder { made: Made { mode: 0o777, umask: 0o022 } };
        return guard.judge(NameComes { spot, what }).map(drop);
    }
    let by = |flags| {
        let made = Made { mode: mode::FILE | 0o666, umask: 0o022 };
        let what = Coming::File { made, flags: shuntfs::OpenFlags(flags) };
        guard.judge(NameComes { spot, what }).map(drop)
    };
    match by(mode::O_WRONLY) {
        // What may only grow is made by who lets it only grow.
        Err(Errno::PERM) => by(mode::O_WRONLY | mode::O_APPEND),
        outcome => outcome,
    }
}

/// A place, with what the guard wants of it.
struct At {
    folder: Folder,
    name: NameBuf,
}

impl At {
    fn of(shared: &Shared, place: Place<'_>) -> Result<Self> {
        let folder = shared.folder(place.folder)?;
        let name = CString::new(place.name).map_err(|_| Errno::INVAL)?;
        Ok(Self { folder, name: NameBuf::new(Name::new(&name).ok_or(Errno::INVAL)?)? })
    }

    fn spot(&self) -> Spot<'_> {
        self.folder.spot(&self.name)
    }

    /// A node that the name means: in one view or another, paths and lower inode are the same. Of copies it is the one that is shown.
    fn node(&self, shared: &Shared) -> Result<Arc<Node>> {
        let found = find::find(shared, self.spot())?;
        let is_shown = |node: &Arc<Node>| match node.is_dir() {
            true => found.stat.is_dir(),
            false => *node.key() == found.identity,
        };
        find::known(shared, self.spot())?.into_iter().find(is_shown).ok_or(Errno::NOENT)
    }
}

/// Somebody who is asked about, and what the rules say of him.
pub(crate) struct Told<'c> {
    pub(crate) caller: &'c Caller,
    said: RefCell<Vec<Said>>,
}

impl<'c> Told<'c> {
    fn new(caller: &'c Caller) -> Self {
        Self { caller, said: RefCell::default() }
    }

    /// Notes what was said of a path.
    pub(crate) fn note(&self, rules: &Rules, path: &[u8], decided: &std::result::Result<Decision, Failed>) {
        let deciding = decided.as_ref().map(|decision| decision.rules.as_slice()).unwrap_or_default();
        let named = deciding.iter().filter_map(|index| rules.rules().get(*index));
        let named = named.map(|rule| (rule.name.clone(), rule.line)).collect();
        let decision = decided.clone().map_err(|failed| said(rules, &failed));
        self.said.borrow_mut().push(Said { path: path.to_owned(), decision, rules: named });
    }
}
