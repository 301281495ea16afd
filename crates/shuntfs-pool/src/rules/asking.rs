//! The rules as one request asks them: looked up once, so that no decision is made half by old rules and half by new ones.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use shuntfs::{Errno, NodeId, Result};
use shuntfs_rules::{Access, At, CallerFacts, Decision, FileFacts, Possible, Rules, Use};

use super::engine::Engine;
use super::facts::{OfFound, OfName, OfNode};
use super::index::Known;
use super::would::Told;
use crate::find::Found;
use crate::guard::Spot;
use crate::node::Node;
use crate::shared::Shared;
use crate::who::Who;

/// A listing asks about many paths, each for itself; what else asks about two or three.
const KNOWN_MAX: usize = 8;

/// Somebody asks the rules of a moment.
pub(crate) struct Asking<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) engine: &'s Engine,
    pub(crate) who: Who,
    /// Who is asked about, where nobody asks.
    told: Option<&'s Told<'s>>,
    /// Looked up when the first one asks: not every request does.
    rules: OnceCell<Arc<Rules>>,
    /// What paths come under, the last ones asked about.
    known: RefCell<VecDeque<Rc<At>>>,
}

impl<'s> Asking<'s> {
    pub(crate) fn new(shared: &'s Shared, engine: &'s Engine, who: Who) -> Self {
        Self { shared, engine, who, told: None, rules: OnceCell::new(), known: RefCell::default() }
    }

    /// Nobody asks: what is said of somebody is noted, and counts for nothing.
    pub(crate) fn told(shared: &'s Shared, engine: &'s Engine, told: &'s Told<'s>) -> Self {
        let who = Who::told(told.caller.uid, told.caller.gid);
        Self { told: Some(told), ..Self::new(shared, engine, who) }
    }

    fn caller(&self) -> &dyn CallerFacts {
        self.told.map_or(&self.who, |told| told.caller)
    }

    pub(crate) fn rules(&self) -> &Arc<Rules> {
        self.rules.get_or_init(|| self.engine.rules())
    }

    /// The rules that a path comes under: matched once, however often they are asked.
    pub(crate) fn at(&self, path: &[u8]) -> Rc<At> {
        let mut known = self.known.borrow_mut();
        if let Some(at) = known.iter().find(|at| at.path() == path) {
            return Rc::clone(at);
        }
        let at = Rc::new(self.rules().at(path));
        if known.len() == KNOWN_MAX {
            known.pop_back();
        }
        known.push_front(Rc::clone(&at));
        at
    }

    /// A path in a folder that the kernel named, so it knows the names that lead there.
    pub(crate) fn path_in(&self, folder: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.engine.paths.child(folder, name).ok_or(Errno::STALE)
    }

    pub(crate) fn path_of(&self, spot: Spot<'_>) -> Result<Vec<u8>> {
        self.path_in(spot.folder.id, spot.bytes())
    }

    /// The paths of a name: its own, and those by which other mounts of its file system below the source show it.
    pub(crate) fn paths_at(&self, spot: Spot<'_>) -> Result<Vec<Vec<u8>>> {
        self.paths_below(spot.folder.id, spot.bytes())
    }

    /// The same of a name in a folder.
    pub(crate) fn paths_below(&self, folder: NodeId, name: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut paths = vec![self.path_in(folder, name)?];
        self.shared.add_aliases(&mut paths);
        Ok(paths)
    }

    /// What could be said of a name to some caller, by any of its paths.
    pub(crate) fn possible_at(&self, spot: Spot<'_>) -> Result<Possible> {
        let paths = self.paths_at(spot)?;
        Ok(paths.iter().fold(Possible::default(), |all, path| all.or(self.at(path).possible())))
    }

    /// Whether a name does not exist for the caller, by any of its paths.
    pub(crate) fn hides(&self, spot: Spot<'_>) -> Result<bool> {
        for path in self.paths_at(spot)? {
            if self.is_hidden(&self.of_name(spot, &path))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same of what the name was found to mean.
    pub(crate) fn hides_found(&self, spot: Spot<'_>, found: &Found) -> Result<bool> {
        for path in self.paths_at(spot)? {
            if self.is_hidden(&self.of_found(found, &path))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The paths of a node: those by which anybody reached its inode, in whatever view, and all others in the source.
    ///
    /// # Errors
    /// EACCES where it has names that are not known, and a rule could take something from the caller for the sake of one.
    pub(crate) fn paths_of(&self, node: &Arc<Node>) -> Result<Vec<Vec<u8>>> {
        let known = self.engine.names_of(self.shared, node)?;
        let first = known.paths.first().cloned().unwrap_or_default();
        self.all_of(known, &self.of_node(node, &first))
    }

    /// The paths where they are all, or where the others do not matter to the caller; `file` is the same under one of them.
    pub(crate) fn all_of(&self, known: Known, file: &dyn FileFacts) -> Result<Vec<Vec<u8>>> {
        if known.is_all {
            return Ok(known.paths);
        }
        self.engine.want_search();
        let concerned = self.rules().concerns_names(file, self.caller());
        if let (Some(told), Err(failed)) = (self.told, &concerned) {
            told.note(self.rules(), file.path(), &Err(failed.clone()));
            return Err(Errno::ACCES);
        }
        match concerned.map_err(|failed| self.engine.refuse(self.rules(), file.path(), &failed))? {
            true => Err(self.engine.refuse_unknown(file.path())),
            false => Ok(known.paths),
        }
    }

    /// What is asked about a name before anybody made a node of it.
    pub(crate) fn of_name<'a>(&'a self, spot: Spot<'a>, path: &'a [u8]) -> OfName<'a> {
        OfName { shared: self.shared, spot, path }
    }

    /// What is asked about what a name was found to mean.
    pub(crate) fn of_found<'a>(&'a self, found: &'a Found, path: &'a [u8]) -> OfFound<'a> {
        OfFound { shared: self.shared, found, path }
    }

    /// What is asked about a node under one path.
    pub(crate) fn of_node<'a>(&'a self, node: &'a Arc<Node>, path: &'a [u8]) -> OfNode<'a> {
        OfNode { shared: self.shared, node, path }
    }

    /// What the rules say of a file under one path. What cannot be evaluated is refused.
    pub(crate) fn decide(&self, file: &dyn FileFacts, how: Use) -> Result<Decision> {
        let decided = self.at(file.path()).decide(file, self.caller(), how);
        if let Some(told) = self.told {
            told.note(self.rules(), file.path(), &decided);
            return decided.map_err(|_| Errno::ACCES);
        }
        decided.map_err(|failed| self.engine.refuse(self.rules(), file.path(), &failed))
    }

    /// What the rules say of a node: under all its paths, and the strictest of it.
    ///
    /// # Errors
    /// EACCES where a rule cannot be evaluated, and where no path leads to the node.
    pub(crate) fn decide_node(&self, node: &Arc<Node>, how: Use) -> Result<Decision> {
        self.decide_paths(node, &self.paths_of(node)?, how)
    }

    /// The same under these paths.
    pub(crate) fn decide_paths(&self, node: &Arc<Node>, paths: &[Vec<u8>], how: Use) -> Result<Decision> {
        let mut strictest: Option<Decision> = None;
        for path in paths {
            let decision = self.decide(&self.of_node(node, path), how)?;
            strictest = Some(match strictest {
                Some(earlier) => earlier.strictest(decision),
                None => decision,
            });
        }
        strictest.ok_or_else(|| {
            tracing::warn!(node = node.id.get(), "no path is known of a file, so it is refused");
            Errno::ACCES
        })
    }

    /// What could be said of a node to some caller.
    pub(crate) fn possible(&self, node: &Arc<Node>) -> Result<Possible> {
        let paths = self.paths_of(node)?;
        Ok(paths.iter().fold(Possible::default(), |all, path| all.or(self.at(path).possible())))
    }

    /// Whether a name does not exist for the caller.
    pub(crate) fn is_hidden(&self, file: &dyn FileFacts) -> Result<bool> {
        if !self.at(file.path()).possible().hide {
            return Ok(false);
        }
        Ok(self.decide(file, Use::LOOK)?.access == Access::Hide)
    }

    /// Refuses a name that is there and hidden from whoever wants to make it or open it by making it.
    pub(crate) fn refuse_hidden(&self, spot: Spot<'_>) -> Result<()> {
        if !self.rules().hides() {
            return Ok(());
        }
        if self.hides(spot)? { Err(Errno::ACCES) } else { Ok(()) }
    }

    /// Whether a move of a folder from or to its path could change what the rules say of something in it, of which something is
    /// taken from the caller.
    pub(crate) fn concerns_below(&self, folder: &dyn FileFacts) -> Result<bool> {
        let concerns = self.rules().concerns_below(folder, self.caller());
        if let (Some(told), Err(failed)) = (self.told, &concerns) {
            told.note(self.rules(), folder.path(), &Err(failed.clone()));
            return Err(Errno::ACCES);
        }
        concerns.map_err(|failed| self.engine.refuse(self.rules(), folder.path(), &failed))
    }

    /// Whether a rule may take something from the caller, of this or any other file.
    pub(crate) fn concerns(&self, file: &dyn FileFacts) -> Result<bool> {
        let concerns = self.rules().concerns(file, self.caller());
        if let (Some(told), Err(failed)) = (self.told, &concerns) {
            told.note(self.rules(), file.path(), &Err(failed.clone()));
            return Err(Errno::ACCES);
        }
        concerns.map_err(|failed| self.engine.refuse(self.rules(), file.path(), &failed))
    }
}
